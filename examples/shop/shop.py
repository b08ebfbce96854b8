"""A shop that sells one voucher through Tidegate's gate. It knows neither Redis nor MySQL.

SHOP_GATE            the gate (default: http://127.0.0.1:8434)
SHOP_TOKEN           a token of the gate with the scopes order and event
SHOP_VOUCHER         the voucher on sale (default: 1)
SHOP_LISTEN          the shop's own address (default: 127.0.0.1:8435; port 0: any free port)
SHOP_WEBHOOK_SECRET  the secret of a webhook that sends results to /hooks (default: the shop follows orders at the gate)
"""
import base64, collections, hashlib, hmac, http.client, http.cookies, http.server, json, os, pathlib, queue, secrets
import time, urllib.error, urllib.request

GATE = os.environ.get("SHOP_GATE", "http://127.0.0.1:8434")
TOKEN = os.environ.get("SHOP_TOKEN", "")
VOUCHER = os.environ.get("SHOP_VOUCHER", "1")
LISTEN = os.environ.get("SHOP_LISTEN", "127.0.0.1:8435")
WEBHOOK_SECRET = os.environ.get("SHOP_WEBHOOK_SECRET")
PATIENCE_S = 10
FOLDER = pathlib.Path(__file__).parent
COOKIE_KEY = secrets.token_bytes(32)  # A real shop keeps its sessions when it restarts.
followers = collections.defaultdict(set)  # The queues of the pages that show an order, by order id.


def request(method, path, body=None, headers={}):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}", **headers}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.Request(GATE + path, data, headers, method=method)


def opened(request):
    try:
        return urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as refusal:
        return refusal


def gate(method, path, body=None, headers={}):
    """Asks the gate, again and again while it is away. This is safe: orders have a key, and events have a ref."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with opened(request(method, path, body, headers)) as answer:
                status, told = answer.status, json.load(answer)
        except (OSError, http.client.HTTPException, ValueError):
            status, told = 503, {"title": "The gate does not answer"}
        is_away = status in (503, 504) and told.get("type") not in ("/problems/busy", "/problems/paused")
        if not is_away or time.monotonic() > deadline:
            return status, told
        time.sleep(0.2)


def look(order):
    return gate("GET", f"/orders/{order}?voucherId={VOUCHER}")


def report(user, order, event, ref, **more):
    body = {"event": event, "voucherId": VOUCHER, "userId": user, "ref": ref, **more}
    return gate("POST", f"/orders/{order}/events", body, {"Prefer": "wait=5"})


def pay(user, order):
    """The call of a payment provider, which repeats it until the answer is 200. A late payment goes back at once."""
    payment = f"pay-{order}"
    status, told = report(user, order, "paid", payment)
    if told.get("outcome") == "refund_due":
        status, _ = refund(user, order, payment)
    return status, told


def refund(user, order, payment):
    return report(user, order, "refunded", f"back-{payment}", payment=payment)


def states_from_gate(order):
    """The states of an order as JSON, from the gate's server-sent events."""
    events = request("GET", f"/orders/{order}/events?voucherId={VOUCHER}")
    with opened(events) as lines:
        yield from (line[6:].strip() for line in lines if line.startswith(b"data: "))


def states_after_webhooks(order):
    """The states of an order as JSON. The shop looks after a webhook, and each second for the place in the queue."""
    news = queue.Queue()
    followers[order].add(news)
    has_news = True
    try:
        while True:
            if has_news:
                status, shown = look(order)
                if status != 200:
                    return  # The browser comes again.
            yield json.dumps(shown).encode()
            is_waiting = shown["state"] == "waiting"
            try:
                has_news = news.get(timeout=1 if is_waiting else 15)
            except queue.Empty:
                has_news = is_waiting  # Otherwise the same state again, which shows whether the browser is still there.
    finally:
        followers[order].discard(news)
        if not followers[order]:
            followers.pop(order, None)


def take_result(result):
    """A result that a webhook brought. It may come twice: the gate then answers the second refund as the first."""
    status = 200
    if result["state"] == "refund_due" and result["voucherId"] == VOUCHER:
        status, _ = refund(result["userId"], result["orderId"], result["ref"])
    for news in list(followers.get(result["orderId"], ())):
        news.put(True)
    return (200 if status < 300 else 503), {}


def is_genuine(headers, body):
    """Whether the holder of the webhook's secret has signed this request (docs/webhooks.md)."""
    key = base64.b64decode(WEBHOOK_SECRET.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    is_new = abs(time.time() - int(headers.get("webhook-timestamp", 0))) < 300
    return is_new and any(hmac.compare_digest(digest, one) for one in headers.get("webhook-signature", "").split())


def cookie_of(user):
    return f"{user}.{hmac.digest(COOKIE_KEY, user.encode(), 'sha256').hex()}"


class Shop(http.server.BaseHTTPRequestHandler):
    """The pages. Only the signed cookie names the user; nothing else in a request does."""

    def user(self):
        cookies = http.cookies.SimpleCookie(self.headers.get("Cookie"))
        said = cookies["user"].value if "user" in cookies else ""
        user = said.partition(".")[0]
        return user if hmac.compare_digest(said.encode(), cookie_of(user).encode()) else None

    def do_GET(self):
        match self.path.split("/")[1:], self.user():
            case [""], user:
                # The login: a real shop asks for a password, and has its own user ids.
                cookie = cookie_of(user or str(1 + secrets.randbelow(2**53 - 1)))
                cookie = f"user={cookie}; HttpOnly; SameSite=Strict; Path=/"
                self.answer(200, (FOLDER / "index.html").read_bytes(), "text/html", {"Set-Cookie": cookie})
            case ["shop.js"], _:
                self.answer(200, (FOLDER / "shop.js").read_bytes(), "text/javascript")
            case ["voucher"], _:
                self.answer(*gate("GET", f"/vouchers/{VOUCHER}"))
            case _, None:
                self.answer(401, {"title": "Open the page first"})
            case ["orders"], user:
                self.answer(*gate("GET", f"/orders?voucherId={VOUCHER}&userId={user}"))
            case ["orders", order, "events"], user:
                self.if_owned(user, order, lambda: self.stream(order))
            case _:
                self.answer(404, {"title": "No such page"})

    def do_POST(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length", 0)), 1 << 16))
        match self.path.split("/")[1:], self.user():
            case ["hooks"], _ if WEBHOOK_SECRET and is_genuine(self.headers, body):
                self.answer(*take_result(json.loads(body)))
            case _, None:
                self.answer(401, {"title": "Open the page first"})
            case ["orders"], user:
                # The page chooses the key. A key belongs to its user, so it reaches no order of another user.
                key = {"Idempotency-Key": self.headers.get("Idempotency-Key", secrets.token_hex(16))}
                self.answer(*gate("POST", "/orders", {"voucherId": VOUCHER, "userId": user}, key))
            case ["orders", order, "pay"], user:
                self.if_owned(user, order, lambda: self.answer(*pay(user, order)))
            case ["orders", order, "refund"], user:
                self.if_owned(user, order, lambda: self.answer(*refund(user, order, f"pay-{order}")))
            case _:
                self.answer(404, {"title": "No such page"})

    def if_owned(self, user, order, act):
        status, shown = look(order) if order.isascii() and order.isdigit() else (404, {})
        if shown.get("userId") == user:
            act()
        else:
            self.answer(status if status > 404 else 404, {"title": "You have no such order"})

    def answer(self, status, body, kind="application/json", headers={}):
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Cache-Control": "no-store", **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if isinstance(body, bytes) else json.dumps(body).encode())

    def stream(self, order):
        self.answer(200, b"retry: 500\n\n", "text/event-stream")
        try:
            for state in states_after_webhooks(order) if WEBHOOK_SECRET else states_from_gate(order):
                self.wfile.write(b"data: " + state + b"\n\n")
        except (OSError, http.client.HTTPException):
            pass  # The gate or the browser is gone. A browser comes again.

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    host, port = LISTEN.rsplit(":", 1)
    server = Server((host, int(port)), Shop)
    print(f"The shop is open: http://{host}:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
