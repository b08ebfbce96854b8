"""Sells through the shop while workers and the gate are killed, then compares what buyers were told with MySQL.

Usage: drill.py FOLDER_OF_PROGRAMS [--webhooks]. Five buyers are pages in Chromium, if node and chromium are installed.
"""
import collections, hashlib, http.client, itertools, json, os, pathlib, re, secrets, shlex, shutil, signal, subprocess
import sys, tempfile, threading, time, urllib.error, urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = pathlib.Path(sys.argv[1]).resolve()
MODULES = PROGRAMS.parent / "shop-drill"
PLAYWRIGHT = "playwright-core@1.65.1"
BUYERS, STOCK, PAY_WITHIN = 50, 30, "20s"
DEADLINE_S = 120
STATUS = {"confirmed": 1, "paid": 2, "expired": 4, "cancelled": 4, "refunding": 5, "refunded": 6}
SETTINGS = {
    "TIDEGATE_ADMIN_LISTEN": "off", "TIDEGATE_LOG_FORMAT": "json", "TIDEGATE_WORKER_HEARTBEAT_TTL_MS": "2000",
    "TIDEGATE_WORKER_LOCK_LEASE_MS": "2000", "TIDEGATE_WORKER_CLAIM_IDLE_MS": "3000",
    "TIDEGATE_WORKER_CLAIM_EVERY_MS": "200",
}


def say(text):
    print(f"shop-drill: {text}", flush=True)


class Process:
    """A process that can be killed and started again. Its log goes on."""

    def __init__(self, folder, name, command, env):
        self.name, self.command, self.env, self.log = name, command, env, folder / f"{name}.log"
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def find(self, pattern):
        """Waits until the log contains the pattern, and returns its group."""
        def found():
            assert self.child.poll() is None, f"{self.name} ended:\n{self.log.read_text()}"
            return re.search(pattern, self.log.read_text())
        return until(f"{self.name} logs {pattern}", found)[1]

    def kill9_and_restart(self):
        self.end(signal.SIGKILL)
        self.start()
        say(f"{self.name} was killed (-9) and started again")

    def end(self, with_signal):
        self.child.send_signal(with_signal)
        return self.child.wait(DEADLINE_S)


def until(what, is_so):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := is_so()):
        assert time.monotonic() < deadline, f"Waited in vain until {what}"
        time.sleep(0.02)
    return found


class Sale:
    """The servers, the programs, and what buyers were told so far."""

    def __init__(self, folder, has_webhooks):
        self.folder, self.running, self.buyers, self.news = folder, [], [], threading.Condition()
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "SHOP_"))}
        self.env |= {name: value for name, value in os.environ.items() if name.startswith("TIDEGATE_LAB_")}
        printed = subprocess.check_output([PROGRAMS / "tidegate-lab", "up"], cwd=folder, env=self.env, text=True)
        self.env |= dict(re.findall(r"export (\w+)='(.*)'", printed)) | SETTINGS
        self.mysql = shlex.split(re.search(r"alias mysql='(.*)'", printed)[1])
        self.tidegate("migrate")
        self.tidegate("voucher", "load", "--voucher", "1", "--stock", str(STOCK), "--pay-within", PAY_WITHIN)
        token, secret = secrets.token_hex(32), "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
        digest = hashlib.sha256(token.encode()).hexdigest()
        of_gate = self.env | {"TIDEGATE_GATE_LISTEN": "127.0.0.1:0", "TIDEGATE_TOKENS": f"shop:order+event:{digest}"}
        self.gate = self.start("gate", [PROGRAMS / "tidegate", "gate"], of_gate)
        # A gate that starts again listens where callers expect it.
        of_gate["TIDEGATE_GATE_LISTEN"] = self.gate.find(r'"address":"([^"]+)"')
        shop = {"SHOP_GATE": "http://" + of_gate["TIDEGATE_GATE_LISTEN"], "SHOP_TOKEN": token}
        shop |= {"SHOP_LISTEN": "127.0.0.1:0"} | ({"SHOP_WEBHOOK_SECRET": secret} if has_webhooks else {})
        self.shop = self.start("shop", [sys.executable, HERE.parent / "shop.py"], self.env | shop)
        self.address = self.shop.find(r"(http://\S+)")
        if has_webhooks:
            (folder / "secret").write_text(secret)
            webhook = f"shop:{folder / 'secret'}:{self.address}/hooks"
            self.env["TIDEGATE_WEBHOOKS"] = webhook
        names = ("worker-1", "worker-2")
        command = [PROGRAMS / "tidegate", "worker"]
        self.workers = [self.start(name, command, self.env | {"TIDEGATE_WORKER_NAME": name}) for name in names]

    def start(self, name, command, env):
        self.running.append(Process(self.folder, name, command, env))
        return self.running[-1]

    def tidegate(self, *words):
        done = subprocess.run([PROGRAMS / "tidegate", *words], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, f"tidegate {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def rows(self, sql):
        printed = subprocess.check_output([*self.mysql, "--batch", "--skip-column-names", "--execute", sql], text=True)
        return [line.split("\t") for line in printed.splitlines()]

    def until(self, what, is_so):
        """Waits until the buyers were told enough."""
        with self.news:
            is_so_now = self.news.wait_for(lambda: is_so() or any(buyer.error for buyer in self.buyers), DEADLINE_S)
        failed = next((f"{buyer.name}: {buyer.error}" for buyer in self.buyers if buyer.error), None)
        assert is_so_now and not failed, failed or f"Waited in vain until {what}"

    def count(self, name):
        return sum(bool(getattr(buyer, name)) for buyer in self.buyers)

    def end(self):
        ended = [(process.name, process.end(signal.SIGTERM)) for process in reversed(self.running)]
        subprocess.run([PROGRAMS / "tidegate-lab", "down"], cwd=self.folder, env=self.env, capture_output=True)
        return ended


class Buyer:
    """One user: the orders and the last state that the user was told, and the user's payments."""

    def __init__(self, sale, name, role):
        self.sale, self.name, self.role, self.user, self.orders, self.state = sale, name, role, None, set(), None
        self.is_refused = self.is_paid = self.is_done = self.error = None
        sale.buyers.append(self)

    def note(self, **told):
        with self.sale.news:
            vars(self).update(told)
            self.sale.news.notify_all()


class Caller(Buyer):
    """A buyer who sends what a page sends, each request of it twice."""

    def __init__(self, sale, number):
        super().__init__(sale, f"caller-{number}", ("pay", "refund", "expire", "late", "pay")[number % 5])
        self.cookie = ""

    def ask(self, path, method="POST", key=None):
        """Repeats the request until there is an answer, as a page does."""
        def answer():
            headers = {"Cookie": self.cookie} | ({"Idempotency-Key": key} if key else {})
            request = urllib.request.Request(self.sale.address + path, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=60) as got:
                    self.cookie = got.headers.get("Set-Cookie", self.cookie).split(";")[0]
                    return got.status != 202 or path == "/orders", got.status, got.read()
            except urllib.error.HTTPError as refusal:
                return refusal.code < 500, refusal.code, refusal.read()
            except (OSError, http.client.HTTPException):
                return False, 0, b""
        _, status, body = until(f"{self.name} has an answer of {path}", lambda: (got := answer())[0] and got)
        return status, json.loads(body) if body.startswith(b"{") else {}

    def ask_twice(self, path, key=None):
        answers = [None, None]
        def one(at):
            answers[at] = self.ask(path, key=key)
        both = [threading.Thread(target=one, args=(at,)) for at in (0, 1)]
        [thread.start() for thread in both]
        [thread.join() for thread in both]
        return answers

    def run(self, may_act):
        try:
            self.ask("/", "GET")
            self.user = self.cookie.removeprefix("user=").partition(".")[0]
            self.buy()
            may_act.wait(DEADLINE_S)
            if self.orders:
                self.act(*self.orders)
            self.note(is_done=True)
        except Exception as error:  # The drill ends with it.
            self.note(error=repr(error))

    def buy(self):
        answers = self.ask_twice("/orders", secrets.token_hex(16))
        orders = {told["orderId"] for status, told in answers if status == 202}
        refusals = {told.get("type") for status, told in answers if status != 202}
        assert refusals <= {"/problems/sold-out"}, answers
        assert len(orders) + len(refusals) == 1, f"one key had two answers: {answers}"
        if orders:
            status, told = self.ask("/orders", key=secrets.token_hex(16))
            assert status == 409 and told["type"] in ("/problems/second-order", "/problems/sold-out"), told
        self.note(orders=orders, is_refused=bool(refusals))

    def act(self, order):
        expected = "expired"
        if self.role == "late":
            self.follow(order, "expired")
        if self.role != "expire":
            answers = self.ask_twice(f"/orders/{order}/pay")
            outcomes = {told.get("outcome") for _, told in answers}
            self.note(is_paid=True)
            # A payment is either taken or goes back. Calls that are repeated, because the gate was killed before the
            # shop had an answer about the refund, may find the payment gone back.
            is_back = all(told.get("outcome") != "unchanged" or told["state"] == "refunded" for _, told in answers)
            assert outcomes == {"applied"} or outcomes <= {"refund_due", "unchanged"} and is_back, answers
            assert self.role != "late" or "applied" not in outcomes, outcomes
            expected = "paid" if outcomes == {"applied"} else "refunded"
        if self.role == "refund" and expected == "paid":
            outcomes = {told.get("outcome") for _, told in self.ask_twice(f"/orders/{order}/refund")}
            assert outcomes == {"applied"}, outcomes
            expected = "refunded"
        self.follow(order, expected)

    def follow(self, order, expected):
        """Follows the order like a page, until its state is the one that the answers promise."""
        deadline = time.monotonic() + DEADLINE_S
        while self.state != expected:
            assert time.monotonic() < deadline, f"{order} is {self.state}, not {expected}"
            url = f"{self.sale.address}/orders/{order}/events"
            request = urllib.request.Request(url, headers={"Cookie": self.cookie})
            try:
                with urllib.request.urlopen(request, timeout=60) as lines:
                    for line in lines:
                        self.state = json.loads(line[6:])["state"] if line.startswith(b"data: ") else self.state
                        if self.state == expected:
                            return
            except (OSError, http.client.HTTPException):
                time.sleep(0.1)


class Pages:
    """Five pages in Chromium, which another program drives. It writes a line for each thing that a page shows."""

    ROLES = ("pay", "refund", "expire", "late", "sold_out")

    def __init__(self, sale, browser):
        self.buyers = [Buyer(sale, f"page-{role}", role) for role in self.ROLES]
        command = ["node", HERE / "pages.mjs", browser, sale.address, MODULES]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        sale.until("all pages are open", lambda: all(buyer.user for buyer in self.buyers))

    def read(self):
        for line in self.child.stdout:
            told = json.loads(line)
            order = told.pop("order", None)
            self.buyers[told.pop("page")].note(**told, **({"orders": {order}} if order else {}))
        if not all(buyer.is_done for buyer in self.buyers):
            self.buyers[0].note(error="the pages ended early")

    def tell(self, word):
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()


def browser():
    """The path of a browser that can be driven, or None with a message."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    missing = [name for name in ("node", "npm") if not shutil.which(name)] + ([] if chromium else ["chromium"])
    if missing:
        say(f"left out: the five pages, because {', '.join(missing)} is missing; all 50 buyers are callers over HTTP")
        return None
    if not (MODULES / "node_modules/playwright-core").is_dir():
        MODULES.mkdir(exist_ok=True)
        npm = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", MODULES, PLAYWRIGHT]
        if subprocess.run(npm).returncode != 0:
            say(f"left out: the five pages, because npm cannot install {PLAYWRIGHT} (see above)")
            return None
    return chromium


def sell(sale, pages):
    may_act = threading.Event()
    if pages:
        pages.tell("buy")
        sale.gate.kill9_and_restart()
        sale.until("four pages have bought", lambda: sale.count("orders") == 4)
    callers = [Caller(sale, number) for number in range(BUYERS - len(sale.buyers))]
    say(f"{len(callers)} callers race for {STOCK - sale.count('orders')} vouchers")
    for caller in callers:
        threading.Thread(target=caller.run, args=(may_act,), daemon=True).start()
    sale.until("some have bought", lambda: sale.count("orders") >= 10)
    sale.workers[0].kill9_and_restart()
    sale.until("more have bought", lambda: sale.count("orders") >= 20)
    sale.gate.kill9_and_restart()
    sale.until("all have an answer", lambda: sale.count("orders") + sale.count("is_refused") == BUYERS)
    may_act.set()
    if pages:
        pages.tell("act")
    sale.until("some have paid", lambda: sale.count("is_paid") >= 5)
    sale.workers[1].kill9_and_restart()
    sale.gate.kill9_and_restart()
    sale.until("all orders have ended", lambda: sale.count("is_done") == BUYERS)


def judge(sale):
    """Compares both lists: what buyers were told, and what MySQL holds. Returns the differences."""
    wrong, rows = [], collections.defaultdict(list)
    for order, user, status in sale.rows("SELECT id, user_id, status FROM tb_voucher_order"):
        rows[user].append((order, int(status)))
    for buyer in sale.buyers:
        told = [(order, STATUS.get(buyer.state)) for order in buyer.orders]
        if (held := rows.pop(buyer.user, [])) != told:
            wrong.append(f"{buyer.name}: told {told} ({buyer.state}), but MySQL holds {held}")
    wrong += [f"no buyer was told of {held}" for held in rows.values()]
    live = int(sale.rows("SELECT COUNT(*) FROM tb_voucher_order WHERE slot IS NOT NULL")[0][0])
    left = int(sale.rows("SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1")[0][0])
    if live + left != STOCK:
        wrong.append(f"{live} units sold and {left} left of {STOCK}")
    ends = collections.Counter(buyer.state or "sold out" for buyer in sale.buyers)
    say("buyers were told: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    missing = {"paid", "refunded", "expired", "sold out"} - set(ends)
    return wrong + [f"nobody was told {end}, so the drill shows too little" for end in missing]


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="shop-drill-"))
    sale = pages = None
    wrong = ["the drill broke off (see above)"]
    try:
        chromium = browser()
        sale = Sale(folder, "--webhooks" in sys.argv)
        pages = Pages(sale, chromium) if chromium else None
        sell(sale, pages)
        wrong = judge(sale)
        say("tidegate audit\n" + sale.tidegate("audit"))
    finally:
        if pages:
            pages.child.kill()
        ended = sale.end() if sale else []
        # The shop has no stop of its own.
        wrong += [f"{name} did not stop in good order: {code}" for name, code in ended if code and name != "shop"]
        if not wrong:
            shutil.rmtree(folder)
    if wrong:
        sys.exit("\n".join([*wrong, f"VERDICT: FAILED. Logs: {folder}"]))
    say("VERDICT: each buyer ended in what MySQL holds; no order was lost, doubled or oversold.")


main()
