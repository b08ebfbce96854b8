//! Tests of `tidegate partitions change`, which sets another list of partitions in a quiet hour. No order is lost or
//! sold twice, and no id is given out twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    num::NonZeroU32,
    process::{Child, Stdio},
    time::Duration,
};

use hyper::Method;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::RngExt;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tidegate_lab::{Proxy, Seeds};
use tidegate_orders::{
    KeyTemplates, OrderIdAllocator, Partition, RedisStore,
    scripts::{Admission, AdmitReply},
};
use tokio::time::sleep;

use crate::{
    fixture::{Fixture, WorkerPlan, redis_pool, until},
    http_gate::{address_of, ask, post},
    program::{Program, Run},
    sale::sql,
};

const VOUCHERS: std::ops::RangeInclusive<i64> = 1..=8;
const STOCK: i64 = 100;

/// A system whose list of partitions changes.
struct GrowingSystem {
    fixture: Fixture,
    next_user: i64,
    /// User and voucher of each order that was admitted.
    admitted: BTreeMap<i64, (i64, i64)>,
}

fn tags(list: &str) -> Vec<String> {
    list.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

impl GrowingSystem {
    /// A system with these partitions, and all vouchers on sale.
    async fn open(list: &str) -> Self {
        let system = Self { fixture: Fixture::open().await, next_user: 1, admitted: BTreeMap::new() };
        for voucher in VOUCHERS {
            let load = format!("voucher load --voucher {voucher} --stock {STOCK}");
            system.program(list).run(&load).expect(0);
        }
        system
    }

    fn program(&self, list: &str) -> Program {
        self.program_on(&self.fixture.redis.url(), list)
    }

    fn program_on(&self, redis: &str, list: &str) -> Program {
        let mysql = self.fixture.mysql.url();
        let set = format!("stream.partitions={list}");
        let mut flags = vec!["--redis-url", redis, "--mysql-url", &mysql];
        if !list.is_empty() {
            flags.extend(["--set", &set]);
        }
        Program::with_flags(&flags)
    }

    fn worker(&self, name: &str, list: &str) -> WorkerPlan {
        let plan = self.fixture.worker(name);
        if list.is_empty() { plan } else { plan.set("STREAM_PARTITIONS", list) }
    }

    /// The gate of a voucher, as a producer with this list opens it, and its order ids.
    async fn gate(&self, list: &str, voucher: i64) -> (RedisStore, OrderIdAllocator) {
        let all = Partition::all(&tags(list));
        let partition = all.iter().find(|it| it.owns(voucher.try_into().unwrap())).expect("an owner");
        let keys = KeyTemplates::default().of_partition(partition);
        let pool = redis_pool(&self.fixture.redis.url()).await;
        let redis = RedisStore::with_default_names(pool, keys);
        let ids = OrderIdAllocator::new(redis.clone(), NonZeroU32::new(10).unwrap());
        (redis, ids)
    }

    async fn ask(&self, list: &str, voucher: i64, user: i64) -> (i64, AdmitReply) {
        let (gate, ids) = self.gate(list, voucher).await;
        let order = ids.next().await.expect("an id");
        let reply =
            gate.admissions().admit(&admission(order.get(), user, voucher)).await.expect("the gate answers");
        (order.get(), reply)
    }

    /// Sells a unit of each voucher to this many users. Users who bought before must be refused.
    async fn sell(&mut self, list: &str, each: i64) {
        let before: Vec<(i64, i64)> = self.admitted.values().copied().collect();
        for voucher in VOUCHERS {
            let (gate, ids) = self.gate(list, voucher).await;
            for _ in 0..each {
                let (order, user) = (ids.next().await.expect("an id").get(), self.next_user);
                self.next_user += 1;
                let reply = gate
                    .admissions()
                    .admit(&admission(order, user, voucher))
                    .await
                    .expect("the gate answers");
                assert_eq!(reply, AdmitReply::Admitted);
                let known = self.admitted.insert(order, (user, voucher));
                assert_eq!(known, None, "order id {order} was given out twice");
            }
        }
        for (user, voucher) in before.into_iter().step_by(7) {
            assert_eq!(self.ask(list, voucher, user).await.1, AdmitReply::UserHasOrder);
        }
    }

    async fn all_written(&self) {
        until("all orders are written", || async {
            self.fixture.orders().await.len() == self.admitted.len()
        })
        .await;
        let rows: BTreeSet<i64> = self.fixture.orders().await.into_iter().map(|row| row.id).collect();
        assert!(self.admitted.keys().copied().eq(rows), "the orders are those that were admitted");
    }

    async fn change(&self, from: &str, to: &str) -> Run {
        let program = self.program(from);
        let to = to.to_owned();
        let run = move || program.run_with(&["partitions", "change", "--to", &to, "--yes"], &[]);
        tokio::task::spawn_blocking(run).await.expect("it runs")
    }

    /// Begins the change in the background.
    fn begin_change(&self, from: &str, to: &str) -> Child {
        self.begin_change_on(&self.fixture.redis.url(), from, to)
    }

    fn begin_change_on(&self, redis: &str, from: &str, to: &str) -> Child {
        let program = self.program_on(redis, from);
        let mut command = program.command(&["partitions", "change", "--to", to, "--yes"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    }

    /// Checks that each voucher has the units left that were not sold.
    async fn units_are(&self, list: &str) {
        for voucher in VOUCHERS {
            let sold = self.admitted.values().filter(|(_, of)| *of == voucher).count();
            let left = STOCK - i64::try_from(sold).unwrap();
            assert_eq!(self.fixture.mysql_stock(voucher).await, left, "voucher {voucher} in MySQL");
            let shown = self.program(list).run(&format!("voucher show --voucher {voucher} --json")).expect(0);
            assert_eq!(shown.json()["redis"]["stock"], left, "{shown:#?}");
        }
    }
}

fn admission(order: i64, user: i64, voucher: i64) -> Admission {
    Admission {
        order: order.try_into().unwrap(),
        user: user.try_into().unwrap(),
        voucher: voucher.try_into().unwrap(),
        quantity: 1.try_into().unwrap(),
        subjects: tidegate_orders::Subjects::none(),
        traceparent: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_system_gets_partitions_grows_shrinks_and_is_one_whole_again_and_nothing_is_lost_or_sold_twice() {
    let lists = ["", "3,1", "3,1,0,11", "0,3", ""];
    let mut system = GrowingSystem::open(lists[0]).await;
    for (number, pair) in lists.windows(2).enumerate() {
        let (from, to) = (pair[0], pair[1]);
        let mut worker = system.worker(&format!("w{number}"), from).start();
        system.sell(from, 4).await;
        let plan = system.program(from).run_with(&["partitions", "change", "--to", to, "--dry-run"], &[]);
        assert!(plan.expect(0).stdout.contains("8 sales would be paused"));
        let done = system.change(from, to).await.expect(0);
        assert!(done.stdout.contains("8 sales paused"), "{done:#?}");
        // The worker wrote what was in the streams, and ended by itself.
        assert_eq!(worker.ended().await.code(), Some(2));
        assert!(worker.log().contains("the partitions of the system are being changed"), "{}", worker.log());
        system.all_written().await;

        // A caller with the old list is refused, and loses nothing.
        let moved = VOUCHERS.filter(|id| place(from, *id) != place(to, *id));
        for voucher in moved {
            assert_eq!(system.ask(from, voucher, 999_999).await.1, AdmitReply::Paused, "voucher {voucher}");
        }
        let refused = system.program(from).run("audit").expect(2);
        assert!(refused.stderr.contains("this process would use wrong partitions"), "{refused:#?}");
        let mut old = system.worker("old", from).start();
        assert_eq!(old.ended().await.code(), Some(2));
        let again = system.change(from, to).await.expect(0);
        assert!(again.stdout.contains("already"), "{again:#?}");
        let shown = system.program(from).run("partitions show").expect(1);
        assert!(
            shown.stdout.contains("stores ANOTHER list of partitions than stream.partitions"),
            "{shown:#?}"
        );
        let shown = system.program(to).run("partitions show").expect(0);
        assert!(shown.stdout.contains("0 entries to be settled, 0 dead letters, 0 workers"), "{shown:#?}");
        system.fixture.judge_partitions(to).await;
        system.units_are(to).await;
    }
    let worker = system.worker("last", "").start();
    system.sell("", 4).await;
    system.all_written().await;
    system.fixture.settled().await;
    system.fixture.judge_partitions("").await;
    system.units_are("").await;
    assert!(worker.stop().await.success());
}

fn place(list: &str, voucher: i64) -> String {
    let all = Partition::all(&tags(list));
    all.iter().find(|it| it.owns(voucher.try_into().unwrap())).expect("an owner").prefix()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_killed_at_any_moment_goes_on_where_it_stood() {
    let mut system = GrowingSystem::open("3,1").await;
    let worker = system.worker("w", "3,1").start();
    system.sell("3,1", 20).await;
    system.all_written().await;
    let (mut kills, mut chance) = (0, Seeds::chosen(1).chance());
    for (from, to) in [("3,1", "3,1,0,11"), ("3,1,0,11", "0,11"), ("0,11", "1,13,2")] {
        for _ in 0..4 {
            let mut change = system.begin_change(from, to);
            sleep(Duration::from_millis(chance.random_range(50..700))).await;
            kills += i32::from(change.try_wait().expect("our child").is_none());
            change.kill().expect("killed");
            change.wait().expect("gone");
        }
        system.change(from, to).await.expect(0);
        system.fixture.judge_partitions(to).await;
        system.units_are(to).await;
        // The new system sells and writes orders, so that there is something to count; then the worker is stopped.
        let mut next = system.worker("next", to).start();
        system.sell(to, 2).await;
        system.all_written().await;
        next.signal(Signal::SIGTERM);
        assert!(next.ended().await.success());
    }
    assert!(kills >= 3, "it was killed {kills} times only");
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_killed_at_each_of_its_steps_goes_on_where_it_stood() {
    let (from, to) = ("3,1", "1,0,3,11");
    let mut system = GrowingSystem::open(from).await;
    let proxy = Proxy::start(system.fixture.redis.port()).await.expect("a proxy");
    let through = proxy.url_for(&system.fixture.redis);
    let mut worker = system.worker("w", from).start();
    system.sell(from, 3).await;
    // The first write of each step, and the scripts between the steps.
    let scripts =
        [include_str!("../../lua/import_sale.lua"), include_str!("../../lua/remove_moved_sale.lua")];
    let [import, remove] = scripts.map(fred::util::sha1_hash);
    for (step, is_done) in [
        (r#""step":"draining""#, false),
        (r#""step":"stopping""#, false),
        (r#""step":"moving""#, false),
        (":rebuild:", false),
        (import.as_str(), false),
        (import.as_str(), true),
        (remove.as_str(), false),
        (remove.as_str(), true),
        (r#""step":"opening""#, false),
        ("tidegate:partitions:retired", true),
    ] {
        let hold = if is_done { proxy.hold_reply_when(step) } else { proxy.hold_when(step) };
        let mut change = system.begin_change_on(&through, from, to);
        hold.reached().await.unwrap_or_else(|error| panic!("{step}: {error}"));
        change.kill().expect("killed");
        change.wait().expect("gone");
        hold.cut();
    }
    system.change(from, to).await.expect(0);
    assert_eq!(worker.ended().await.code(), Some(2));
    system.all_written().await;
    system.fixture.judge_partitions(to).await;
    system.units_are(to).await;

    let worker = system.worker("last", to).start();
    system.sell(to, 2).await;
    system.all_written().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_are_not_paid_in_time_expire_in_the_partitions_of_the_new_list() {
    let (from, to) = ("3,1,0", "10,3,43,11,2,42,12,1,41,13,0,40");
    let mut system = GrowingSystem::open(from).await;
    sql(&system.fixture, "UPDATE tb_seckill_voucher SET pay_within = 3600").await;
    let mut worker = system.worker("w", from).start();
    system.sell(from, 3).await;
    system.all_written().await;
    let kept = async |code: &str| -> i64 {
        let kept = format!("SELECT COUNT(*) FROM tidegate_unpaid_order WHERE partition_code = {code}");
        sqlx::query_scalar(AssertSqlSafe(kept)).fetch_one(&system.fixture.pool).await.expect("MySQL answers")
    };
    assert_eq!(kept("64 * 3 + voucher_id % 3").await, 24);
    system.change(from, to).await.expect(0);
    assert_eq!(worker.ended().await.code(), Some(2));
    assert_eq!(kept("64 * 12 + voucher_id % 12").await, 24);
    // A worker of an earlier version wrote one of these rows.
    let due = "UPDATE tidegate_unpaid_order SET due_ms = 1, ask_ms = 1, partition_code = IF(voucher_id = 5, 0, partition_code)";
    sql(&system.fixture, due).await;
    let worker = system.worker("next", to).start();
    until("all have expired", || async { system.fixture.live_orders().await.is_empty() }).await;
    system.admitted.clear();
    system.units_are(to).await;
    system.fixture.judge_partitions(to).await;
    let shown = system.program(to).run("partitions show").expect(0);
    assert!(shown.stdout.contains("0 entries to be settled, 0 dead letters"), "{shown:#?}");
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_way_of_a_change_is_said_and_it_can_be_given_up_until_the_streams_are_empty() {
    let mut system = GrowingSystem::open("").await;
    system.program("").run("pause --voucher 1 --yes").expect(0);
    system.sell_only(2, 1).await;
    // No worker writes what is in the stream.
    let mut change = system.begin_change("", "3,1");
    let is_closed = |voucher: i64| {
        let fixture = &system.fixture;
        async move {
            !fixture.redis_says(&["HGET", &format!("seckill:voucher:{voucher}"), "moving"]).await.is_null()
        }
    };
    until("all sales are closed", || is_closed(8)).await;
    // No other command opens the sales, and no other change begins.
    let resumed = system.program("").run("resume --voucher 2 --yes");
    assert_eq!(system.ask("", 2, 900).await.1, AdmitReply::Paused, "{resumed:#?}");
    let shown = system.program("").run("partitions show").expect(1);
    assert!(shown.stdout.contains("to 3,1 (draining); 8 vouchers, 1 entry to be settled"), "{shown:#?}");
    let other = system.change("", "9").await.expect(1);
    assert!(other.stdout.contains("a change of the partitions from none (one whole) to 3,1 is in progress"));
    system.program("3,1").run("audit").expect(2);
    kill(Pid::from_raw(i32::try_from(change.id()).unwrap()), Signal::SIGINT).expect("it is there");
    assert_eq!(change.wait().expect("it ends").code(), Some(6));

    let given_up = system.change("", "").await.expect(0);
    assert!(given_up.stdout.contains("the partitions stay none (one whole)"), "{given_up:#?}");
    system.sell_only(3, 1).await;
    assert_eq!(system.ask("", 1, 900).await.1, AdmitReply::Paused, "it was paused before");
    system.program("").run("resume --voucher 1 --yes").expect(0);
    system.sell_only(1, 1).await;

    // A pause of the workers would stay in the old partition.
    system.program("").run("pause --workers --yes").expect(0);
    let refused = system.change("", "3,1").await.expect(1);
    assert!(refused.stdout.contains("the workers are paused"), "{refused:#?}");
    system.program("").run("resume --workers --yes").expect(0);
    for wrong in ["3,3", "3,,1", "{3}"] {
        system.change("", wrong).await.expect(2);
    }

    // A dead letter would stay in the old partition.
    system.fixture.add(&[("userId", "1"), ("voucherId", "x"), ("id", "5")]).await;
    let worker = system.worker("w", "").start();
    until("the bad entry is dead", || async { system.fixture.dead().await.len() == 1 }).await;
    system.all_written().await;
    let refused = system.change("", "3,1").await.expect(1);
    assert!(refused.stdout.contains("there is 1 dead letter"), "{refused:#?}");
    system.program("").run("dead drop --all --yes").expect(0);
    system.program("").run("pause --yes").expect(0);
    system.change("", "3,1").await.expect(0);
    assert_eq!(system.ask("3,1", 4, 900).await.1, AdmitReply::Paused, "all were paused before");
    system.program("3,1").run("resume --yes").expect(0);
    assert_eq!(system.ask("3,1", 4, 900).await.1, AdmitReply::Admitted);
    drop(worker);
}

impl GrowingSystem {
    /// Sells units of this voucher to new users, in a system without partitions.
    async fn sell_only(&mut self, voucher: i64, times: i64) {
        for _ in 0..times {
            let user = self.next_user;
            self.next_user += 1;
            let (order, reply) = self.ask("", voucher, user).await;
            assert_eq!(reply, AdmitReply::Admitted);
            self.admitted.insert(order, (user, voucher));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_late_into_a_stream_that_is_no_more_is_written_all_the_same() {
    let system = GrowingSystem::open("").await;
    system.change("", "3,1").await.expect(0);
    let worker = system.worker("w", "3,1").start();
    // This producer uses a script of its own and no gate.
    system.fixture.add(&[("userId", "70"), ("voucherId", "5"), ("id", "770")]).await;
    system.fixture.add(&[("userId", "71"), ("voucherId", "6"), ("id", "771")]).await;
    until("both are written", || async { system.fixture.orders().await.len() == 2 }).await;
    until("the old stream is empty", || async { system.fixture.open_entries().await == Some(0) }).await;
    assert!(worker.stop().await.success());
}

impl GrowingSystem {
    /// Buys each voucher at this gate, with a new user each.
    async fn buy_at(&mut self, gate: SocketAddr) {
        for voucher in VOUCHERS {
            let user = self.next_user;
            self.next_user += 1;
            let answer = post(gate, &json!({ "voucherId": voucher.to_string(), "userId": user })).await;
            assert_eq!(answer.status, 202, "voucher {voucher}: {:#}", answer.body);
            let order = answer.body["orderId"].as_str().and_then(|id| id.parse().ok()).expect("an id");
            let known = self.admitted.insert(order, (user, voucher));
            assert_eq!(known, None, "order id {order} was given out twice");
        }
    }
}

/// Waits until the gate has reached all partitions. It is ready once it has reached one.
async fn all_reached(gate: SocketAddr) {
    for voucher in VOUCHERS {
        until("the partition of the voucher is reached", || async {
            ask(gate, Method::GET, &format!("/orders/1?voucherId={voucher}"), &[], "").await.status == 404
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_follows_a_change_of_the_list_by_itself_and_the_change_waits_for_each_that_has_not_heard_of_it()
 {
    let (from, to) = ("3,1", "1,0,3,11");
    let mut system = GrowingSystem::open(from).await;
    let mut worker = system.worker("w", from).start();
    let gate = |name: &str| system.worker(name, from).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let (own, frozen) = (gate("own"), gate("frozen"));
    let (address, of_frozen) = (address_of(&own).await, address_of(&frozen).await);
    all_reached(address).await;
    system.buy_at(address).await;
    system.all_written().await;
    let shown = system.program(from).run("partitions show").expect(0);
    assert!(shown.stdout.contains("1 worker, 2 gates"), "{shown:#?}");

    // One gate does not notice the change for a while: no sale moves meanwhile.
    frozen.signal(Signal::SIGSTOP);
    let mut change = system.program(from).command(&["partitions", "change", "--to", to, "--yes"]);
    let change = change.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let change = change.expect("it starts");
    until("the other one lets go of the list before", || async {
        let ready = ask(address, Method::GET, "/readyz", &[], "").await;
        ready.status == 503 && ready.text.contains("are being changed from 3,1 to 1,0,3,11")
    })
    .await;
    assert_eq!(worker.ended().await.code(), Some(2));
    for voucher in VOUCHERS {
        let answer = post(address, &json!({ "voucherId": voucher, "userId": 900 })).await;
        assert_eq!(
            (answer.status, &answer.body["type"]),
            (503, &json!("/problems/paused")),
            "{:#}",
            answer.body
        );
    }
    let shown = system.program(from).run("partitions show").expect(1);
    assert!(shown.stdout.contains("(stopping)") && shown.stdout.contains("0 workers, 1 gate"), "{shown:#?}");
    frozen.signal(Signal::SIGCONT);
    let changed = Run::from(change.wait_with_output().expect("it ends")).expect(0);
    assert!(
        changed.all().contains("waiting until these gates have stopped using the old list"),
        "{changed:#?}"
    );

    // The gates were not restarted, and sell all vouchers, also those that have moved.
    for address in [address, of_frozen] {
        until("it has the new list", || async {
            ask(address, Method::GET, "/readyz", &[], "").await.status == 200
        })
        .await;
        all_reached(address).await;
        system.buy_at(address).await;
    }
    let shown = system.program(to).run("partitions show").expect(0);
    assert!(shown.stdout.contains("0 workers, 2 gates"), "{shown:#?}");
    assert!(own.log().contains("the gate continues with the system's list"), "{}", own.log());
    // A gate that is started with the old list takes the list of the system.
    let late = system.worker("late", from).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let of_late = address_of(&late).await;
    all_reached(of_late).await;
    system.buy_at(of_late).await;

    let worker = system.worker("next", to).start();
    system.all_written().await;
    system.fixture.judge_partitions(to).await;
    system.units_are(to).await;
    assert!(worker.stop().await.success());
    for gate in [own, frozen, late] {
        assert!(gate.stop().await.success());
    }
    let shown = system.program(to).run("partitions show").expect(0);
    assert!(shown.stdout.contains("0 workers, 0 gates"), "a gate that stops says so: {shown:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_keeps_its_list_if_a_change_ends_early_and_one_of_a_partition_says_why_it_is_unready() {
    let (from, to) = ("3,1", "1,0,3,11");
    let mut system = GrowingSystem::open(from).await;
    let gate = system.worker("all", from).set("GATE_LISTEN", "127.0.0.1:0").start_as("gate");
    let alone = system.worker("alone", from).set("GATE_LISTEN", "127.0.0.1:0");
    let alone = alone.start_with(&["--partition", "1", "gate"]);
    let (address, of_alone) = (address_of(&gate).await, alone.gate_address().await);
    all_reached(address).await;
    system.buy_at(address).await;
    // Without a worker, the change stays at its first step.
    let mut change = system.begin_change(from, to);
    until("all sales are closed", || async {
        !system.fixture.redis_says(&["HGET", "{1}:seckill:voucher:7", "moving"]).await.is_null()
    })
    .await;
    kill(Pid::from_raw(i32::try_from(change.id()).unwrap()), Signal::SIGINT).expect("it is there");
    assert_eq!(change.wait().expect("it ends").code(), Some(6));
    assert_eq!(ask(address, Method::GET, "/readyz", &[], "").await.status, 200, "its list still holds");
    system.change(from, from).await.expect(0);
    system.buy_at(address).await;

    let mut worker = system.worker("w", from).start();
    system.all_written().await;
    system.change(from, to).await.expect(0);
    assert_eq!(worker.ended().await.code(), Some(2));
    until("it says why", || async {
        let ready = ask(of_alone, Method::GET, "/readyz", &[], "").await;
        ready.status == 503 && ready.text.contains("the system has the partitions 1,0,3,11")
    })
    .await;
    until("the other one goes on", || async {
        ask(address, Method::GET, "/readyz", &[], "").await.status == 200
    })
    .await;
    all_reached(address).await;
    system.buy_at(address).await;
    for gate in [gate, alone] {
        assert!(gate.stop().await.success());
    }
}
