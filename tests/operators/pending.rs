//! Tests of the commands for pending entries, on real servers with real workers: list, make claimable, bury, remove
//! consumers. Afterwards each order is written once, or is where the operator can find it.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

use fred::types::Value;
use nix::sys::signal::Signal;
use serde_json::Value as Json;
use tidegate_lab::{Hold, Proxy};

use crate::{
    browser::until_all,
    fixture::{DEAD, Fixture, STREAM, Worker, WorkerPlan, rush::PLENTY, until},
    program::{Program, Run, go_on, pastes},
    terminal::Terminal,
};

/// A request that locks the users of a batch.
const LOCK: &[u8] = b"lock:order:";
/// The end of a batch that writes all its orders: one packet, with its commit.
const COMMIT: &[u8] = b"(ROW_COUNT() <> ";

/// A worker of one lane that claims entries of other consumers after an hour, unless they are claimable.
fn patient(fixture: &Fixture, name: &str) -> WorkerPlan {
    let plan = fixture.worker(name).set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 600);
    let plan = plan.set("WORKER_CLAIM_IDLE_MS", 3_600_000);
    plan.set("WORKER_CLAIM_EVERY_MS", 100).set("WORKER_HEARTBEAT_TTL_MS", 600)
}

/// Commands on the servers of a fixture, with the lock lease of the worker of [`patient`].
fn operator(fixture: &Fixture) -> Program {
    operator_by_way_of(fixture, &fixture.redis.url())
}

fn operator_by_way_of(fixture: &Fixture, redis_url: &str) -> Program {
    let mysql_url = fixture.mysql.url();
    let flags = ["--redis-url", redis_url, "--mysql-url", &mysql_url, "--set", "worker.lock_lease_ms=600"];
    Program::with_flags(&flags)
}

/// A fixture with a rush of orders that can all be written. Its worker has them in progress and is held at `step`.
async fn held_up(step: &[u8], orders: i64) -> (Fixture, Proxy, Proxy, Hold, Worker) {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    fixture.plain_rush(1_000, orders).await;
    let hold = if step == COMMIT { mysql.hold_when(step) } else { redis.hold_reply_when(step) };
    let plan = patient(&fixture, "victim").set("REDIS_URL", redis.url_for(&fixture.redis));
    let worker = plan.set("MYSQL_URL", mysql.url_for(&fixture.mysql)).start();
    hold.reached().await.expect("the worker comes to this step");
    (fixture, redis, mysql, hold, worker)
}

/// Waits until a consumer counts as dead and its locks have ended.
async fn until_dead(fixture: &Fixture, consumer: &str) {
    until_gone(fixture, consumer).await;
    until("its locks are over", || async { fixture.locks().await == 0 }).await;
}

/// Waits until a consumer counts as dead.
async fn until_gone(fixture: &Fixture, consumer: &str) {
    until("the consumer is dead", || async {
        let list = operator(fixture).run("consumers list --json").expect(0).json();
        let consumers = list["consumers"].as_array().expect("an array").clone();
        consumers.iter().any(|it| it["name"] == consumer && it["alive"] == false)
    })
    .await;
}

/// Delivers entries to a consumer that does not handle them.
async fn delivered_to(fixture: &Fixture, consumer: &str, count: usize) {
    fixture.redis_says(&["XGROUP", "CREATE", STREAM, "g1", "0", "MKSTREAM"]).await;
    fixture.hand_over(consumer, count).await;
}

/// All data of Redis, byte for byte, without the operator log.
async fn dump(fixture: &Fixture) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for key in fixture.redis_says(&["KEYS", "*"]).await.convert::<Vec<String>>().expect("keys") {
        if key != "tidegate:log" {
            all.insert(key.clone(), fixture.redis_says(&["DUMP", &key]).await);
        }
    }
    all
}

/// The data of [`dump`] without the parts that an idle worker changes: heartbeats, and the last activity of each
/// consumer.
async fn still(fixture: &Fixture) -> BTreeMap<String, Value> {
    let mut all = dump(fixture).await;
    all.retain(|key, _| key != STREAM && !key.starts_with("tidegate:worker:"));
    all.insert(STREAM.to_owned(), fixture.redis_says(&["XRANGE", STREAM, "-", "+"]).await);
    let held = fixture.redis_says(&["XPENDING", STREAM, "g1", "-", "+", "100000"]).await.into_array();
    let held = held.into_iter().map(|row| {
        let [id, consumer, _idle, deliveries] = row.into_array().try_into().expect("four of them");
        Value::Array(vec![id, consumer, deliveries])
    });
    all.insert("pending".to_owned(), Value::Array(held.collect()));
    all
}

fn spawned(command: &mut Command) -> std::process::Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// The last line of the operator log.
fn logged(fixture: &Fixture) -> Json {
    let log = operator(fixture).run("log --last 1 --json").expect(0).json();
    log[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_had_in_progress_is_taken_at_once_and_written_once() {
    let (fixture, _redis, _mysql, hold, victim) = held_up(COMMIT, 300).await;
    let heir = patient(&fixture, "heir").start();
    heir.says("worker started").await;
    victim.kill9();
    hold.cut();
    until_dead(&fixture, "victim-0").await;

    let operator = operator(&fixture);
    let list = operator.run("pending list --dead --limit 1000 --json").expect(0).json();
    let entries = list["entries"].as_array().expect("an array");
    assert_eq!((entries.len(), &list["more"]), (300, &Json::Bool(false)));
    let entry = &entries[0];
    assert_eq!((&entry["consumer"], &entry["alive"]), (&"victim-0".into(), &false.into()), "{entry}");
    assert_eq!((&entry["payload"], &entry["deliveries"]), (&"order".into(), &1.into()), "{entry}");
    assert!(entry["order"]["id"].is_string(), "{entry}");

    let before = still(&fixture).await;
    let dry = operator.run("consumers drain --dead --dry-run").expect(0);
    assert!(dry.stdout.contains("victim-0: 300 entries") && dry.stdout.contains("within about"), "{dry:?}");
    let asked = operator.run("consumers drain --dead").expect(2);
    assert!(asked.stderr.contains("Make 300 entries claimable for all workers?"), "{asked:?}");
    let list = operator.run("pending list --dead --limit 1000 --json").expect(0).json();
    let offered = list["entries"].as_array().expect("an array").iter().filter(|it| it["offered"] == true);
    assert_eq!(offered.count(), 0, "{list}");
    assert_eq!(still(&fixture).await, before, "nobody has taken them by himself");

    let claimed = operator.run("consumers drain --dead --wait 1m --yes --json").expect(0).json();
    assert_eq!((&claimed["offered"], &claimed["left"]), (&300.into(), &0.into()), "{claimed}");
    fixture.settled().await;
    fixture.invariants().await;
    let line = logged(&fixture);
    assert_eq!((&line["command"], &line["outcome"]), (&"consumers drain".into(), &"done".into()), "{line}");
    assert_eq!(line["counts"]["offered"], 300, "{line}");
    assert!(heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_living_worker_has_in_progress_is_left_to_it_unless_somebody_insists() {
    let (fixture, _redis, _mysql, hold, victim) = held_up(LOCK, 100).await;
    let operator = operator(&fixture);
    let before = dump(&fixture).await;
    let refused = operator.run("consumers drain victim-0 --yes").expect(1);
    assert!(
        refused.stdout.contains("victim-0 is alive") && refused.stdout.contains("--force"),
        "{refused:?}"
    );
    let nobody = operator.run("consumers drain --dead --yes").expect(0);
    assert!(nobody.stdout.contains("No consumer is dead"), "{nobody:?}");
    let protected = operator.run("pending bury --consumer victim-0 --why test --yes").expect(1);
    assert!(protected.stdout.contains("may be writing the order"), "{protected:?}");
    let stays = operator.run("consumers drain victim-0 --remove --yes").expect(1);
    assert!(stays.stdout.contains("victim-0 is alive"), "{stays:?}");
    let after = dump(&fixture).await;
    for key in [STREAM, DEAD] {
        assert_eq!(before.get(key), after.get(key), "{key} is as it was");
    }

    // The entries are taken from the frozen worker and written by another one. Later, the frozen worker continues.
    let heir = patient(&fixture, "heir").start();
    let forced = operator.run("consumers drain victim-0 --force --wait 1m --yes").expect(0);
    assert!(forced.stdout.contains("100 entries made claimable"), "{forced:?}");
    until("the heir has written them", || async { fixture.orders().await.len() == 100 }).await;
    hold.release();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(victim.stop().await.success() && heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_slept_while_its_entries_were_handed_over_doubles_nothing() {
    let (fixture, _redis, _mysql, hold, sleeper) = held_up(LOCK, 200).await;
    sleeper.signal(Signal::SIGSTOP);
    let heir = patient(&fixture, "heir").start();
    until_dead(&fixture, "victim-0").await;
    operator(&fixture).run("consumers drain --dead --wait 1m --yes").expect(0);
    until("the heir has written them", || async { fixture.orders().await.len() == 200 }).await;
    sleeper.signal(Signal::SIGCONT);
    hold.release();
    fixture.plain_rush(2_000, 50).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success() && sleeper.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_offer_each_entry_once_and_both_remove_the_consumer() {
    let (fixture, _redis, _mysql, hold, victim) = held_up(COMMIT, 500).await;
    victim.kill9();
    hold.cut();
    until_dead(&fixture, "victim-0").await;
    let operator = operator(&fixture);
    let claim = ["consumers", "drain", "--dead", "--yes", "--json"];
    let both = [(); 2].map(|()| spawned(&mut operator.command(&claim)));
    let both = both.map(|child| Run::from(child.wait_with_output().expect("it ends")).expect(0).json());
    let sum = |field: &str| both.iter().map(|it| it[field].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(sum("offered"), 500, "{both:?}");
    let told = operator.run("consumers drain --dead --yes").expect(0);
    assert!(told.stdout.contains("No living worker reads the stream"), "{told:?}");
    let list = operator.run("pending list --json").expect(0).json();
    assert_eq!((&list["entries"][0]["offered"], &list["entries"][0]["idle_s"]), (&true.into(), &Json::Null));
    assert_eq!(list["entries"][0]["deliveries"], 1, "no delivery was counted");

    let stuck = operator.run("consumers drain --dead --remove --yes").expect(1);
    assert!(stuck.stdout.contains("No living worker reads the stream"), "{stuck:?}");
    let heir = patient(&fixture, "heir").start();
    let remove = ["consumers", "drain", "victim-0", "--remove", "--yes"];
    heir.says("worker started").await;
    let both = [(); 2].map(|()| spawned(&mut operator.command(&remove)));
    for child in both {
        let run = Run::from(child.wait_with_output().expect("it ends"));
        // One command may find that the other one has removed the consumer.
        assert!(run.code == 0 || run.stdout.contains("has no consumer"), "{run:?}");
    }
    let consumers = operator.run("consumers list --json").expect(0).json();
    assert!(!consumers.to_string().contains("victim-0"), "{consumers}");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_removed_only_after_others_have_taken_what_it_holds() {
    let (fixture, _redis, _mysql, hold, victim) = held_up(COMMIT, 300).await;
    victim.kill9();
    hold.cut();
    until_dead(&fixture, "victim-0").await;
    let operator = operator(&fixture);
    let stuck = operator.run("consumers drain victim-0 --remove --yes").expect(1);
    assert!(stuck.stdout.contains("No living worker reads the stream and can take 300 entries"), "{stuck:?}");
    assert!(
        operator
            .run("consumers drain nobody --remove --yes")
            .expect(1)
            .stdout
            .contains("has no consumer nobody")
    );

    // Workers are alive, but do not claim entries within the time.
    let busy = patient(&fixture, "busy").set("WORKER_CLAIM_EVERY_MS", 3_600_000).start();
    busy.says("worker started").await;
    until("its first look is over", || async { fixture.calls_of("xautoclaim").await > 0 }).await;
    let kept = operator.run("consumers drain victim-0 --remove --wait 1s --yes").expect(1);
    assert!(kept.stdout.contains("victim-0 still has 300 entries pending"), "{kept:?}");
    assert_eq!(fixture.pending().await, 300);
    assert_eq!(logged(&fixture)["outcome"], "refused");

    let heir = patient(&fixture, "heir").start();
    let removed = operator.run("consumers drain --dead --remove --yes --json").expect(0).json();
    assert_eq!((&removed["removed"][0], &removed["kept"]), (&"victim-0".into(), &Json::Array(vec![])));
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success() && busy.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_comes_back_before_the_step_keeps_its_entries_and_its_consumer() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 20).await;
    delivered_to(&fixture, "back-0", 20).await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let through = operator_by_way_of(&fixture, &proxy.url_for(&fixture.redis));
    // The scripts are loaded.
    until("they are old enough", || async { fixture.longest_idle_ms().await > Some(700) }).await;
    let alive = fixture.worker("other").set("WORKER_CLAIM_EVERY_MS", 3_600_000).start();
    alive.says("worker started").await;
    for (line, told) in [
        ("consumers drain back-0 --yes", "back-0 is alive again"),
        ("consumers drain back-0 --remove --yes", "back-0 is alive again"),
        ("pending bury --consumer back-0 --why test --yes", "may be writing the order"),
    ] {
        let held = proxy.hold_when("EVALSHA");
        let child = spawned(&mut through.command(&line.split(' ').collect::<Vec<_>>()));
        held.reached().await.expect("it comes to the step");
        fixture.call("SET tidegate:worker:back somebody").await;
        held.release();
        let run = Run::from(child.wait_with_output().expect("it ends")).expect(1);
        assert!(run.stdout.contains(told), "{line}: {run:?}");
        assert_eq!(fixture.pending().await, 20, "{line}");
        fixture.call("DEL tidegate:worker:back").await;
    }
    assert!(fixture.dead().await.is_empty());
    operator(&fixture).run("consumers drain back-0 --yes").expect(0);
    assert!(alive.stop().await.success());
    let heir = patient(&fixture, "heir").start();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_buried_is_a_dead_letter_and_what_mysql_has_decided_is_left_to_workers() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 6).await;
    delivered_to(&fixture, "dead-0", 6).await;
    let operator = operator(&fixture);
    let ids = || async {
        let list = operator.run("pending list --json").expect(0).json();
        let entries = list["entries"].as_array().expect("an array").clone();
        entries.iter().map(|it| it["entry"].as_str().expect("an id").to_owned()).collect::<Vec<_>>()
    };
    let entries = ids().await;
    let order = |at: usize| {
        let shown = operator.run(&format!("pending show {} --json", entries[at])).expect(0).json();
        shown["entry"]["order"]["id"].as_str().expect("an id").to_owned()
    };
    // The first order was written and the second refused before the acknowledgement; the payload of the third is
    // deleted.
    let (written, refused, gone) = (order(0), order(1), order(2));
    for sql in [
        format!(
            "INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity, slot, entry_id) \
             VALUES ({written}, {written}, {PLENTY}, 1 + {written} % 3, 1, '{}')",
            entries[0]
        ),
        format!(
            "UPDATE tb_seckill_voucher SET stock = stock - 1 - {written} % 3, refusals = 1 WHERE voucher_id = {PLENTY}"
        ),
        format!(
            "INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
             VALUES ({refused}, {refused}, {PLENTY}, 1 + {refused} % 3, 'user_has_order', '{}')",
            entries[1]
        ),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&fixture.pool).await.expect("MySQL answers");
    }
    fixture.call(&format!("XDEL {STREAM} {}", entries[2])).await;

    for (line, code) in [
        ("pending bury --why x --yes", 2),
        ("pending bury --dead --yes", 2),
        ("pending bury --dead --why x", 2),
        ("pending bury 1-1 --why x --yes", 1),
        ("pending bury --dead --deliveries 2 --why x --yes", 1),
        ("pending bury --dead --older-than 1h --why x --yes", 1),
        ("pending bury --consumer nobody --why x --yes", 1),
    ] {
        operator.run(line).expect(code);
    }
    let before = dump(&fixture).await;
    let dry = operator.run("pending bury --dead --why x --dry-run --json").expect(0).json();
    let left: Vec<&str> =
        dry["left"].as_array().expect("an array").iter().filter_map(|it| it["why"].as_str()).collect();
    assert_eq!((dry["bury"].as_array().map(Vec::len), left), (Some(3), vec!["written", "refused", "gone"]));
    assert_eq!(dump(&fixture).await, before);

    fixture.call(&format!("HSET {STREAM}.deaths {} 4", entries[3])).await;
    let one = ["pending", "bury", &entries[3], "--why", "crashes every worker", "--yes", "--as", "alice"];
    operator.run_with(&one, &[]).expect(0);
    let crashes = fixture.call(&format!("HLEN {STREAM}.deaths")).await;
    assert_eq!(crashes.as_u64(), Some(0), "what is settled has no crashes");
    let letters = fixture.dead().await;
    assert_eq!((letters.len(), &letters[0]["dead:reason"]), (1, &"by_operator".to_owned()));
    assert_eq!(letters[0]["dead:error"], "crashes every worker");
    assert_eq!(
        (&letters[0]["dead:entry"], &letters[0]["dead:consumer"]),
        (&entries[3], &"dead-0".to_owned())
    );
    let line = logged(&fixture);
    assert_eq!((&line["who"], &line["counts"]["buried"]), (&"alice".into(), &1.into()), "{line}");
    assert!(line["arguments"].as_str().expect("text").contains("'crashes every worker'"), "{line}");

    // Two commands run at once, and a third one comes too late: each entry is buried once.
    let bury = ["pending", "bury", "--dead", "--why", "x", "--yes", "--json"];
    let mut buried = Vec::new();
    for child in [(); 2].map(|()| spawned(&mut operator.command(&bury))) {
        let output = child.wait_with_output().expect("it ends");
        // The exit code is 1 if the other command had settled entries before this one read them.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        let done: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        buried.extend(
            done["buried"].as_array().into_iter().flatten().map(|id| id.as_str().expect("an id").to_owned()),
        );
    }
    buried.sort();
    assert_eq!(buried, entries[4..], "each of them has told of its own");
    assert_eq!(fixture.dead().await.len(), 3);
    operator.run_with(&one, &[]).expect(1);
    assert_eq!(fixture.dead().await.len(), 3);
    assert_eq!(ids().await, entries[..3]);

    // Only the order whose payload was deleted is lost.
    let worker = fixture.worker("w").start();
    fixture.settled().await;
    assert!(worker.stop().await.success());
    // The user of that order may not order again, and neither may the user of the refusal, who has no other order.
    let (gone, barred) = (format!("order {gone} is admitted as"), format!("not buy: [{refused}, {gone}]"));
    fixture.judge_except(&[gone, barred]).await;
    assert_eq!((fixture.dead().await.len(), fixture.live_orders().await.len()), (3, 1));
    assert_eq!(fixture.released().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_workers_is_asked_first_may_stop_waiting_and_is_told_how_to_go_on() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 30).await;
    delivered_to(&fixture, "dead-0", 30).await;
    until("they are old enough", || async { fixture.longest_idle_ms().await > Some(700) }).await;
    // Workers are alive, but do not claim entries.
    let busy = patient(&fixture, "busy").set("WORKER_CLAIM_EVERY_MS", 3_600_000).start();
    busy.says("worker started").await;
    until("its first look is over", || async { fixture.calls_of("xautoclaim").await > 0 }).await;
    let operator = operator(&fixture);
    let mut terminal = Terminal::start(&operator.command(&["consumers", "drain", "--dead", "--wait", "10m"]));
    let shown = terminal.shows("Make 30 entries claimable for all workers? [y/N]");
    assert!(shown.contains("dead-0: 30 entries"), "{shown}");
    terminal.types("y");
    until("they are claimable", || async {
        operator.run("pending list --limit 1 --json").json()["entries"][0]["offered"] == true
    })
    .await;
    terminal.presses_control('c');
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("30 entries not taken yet"), "{shown}");
    assert!(
        go_on(&shown).ends_with(" --set worker.lock_lease_ms=600 consumers drain --dead --wait 10m"),
        "{shown}"
    );
    assert_eq!(logged(&fixture)["outcome"], "stopped");

    let mut terminal = Terminal::start(&operator.command(&["consumers", "drain", "dead-0", "--remove"]));
    terminal.shows("Remove 1 consumer of group g1, after workers have claimed 30 entries? [y/N]");
    terminal.types("y");
    until("it has begun", || async { logged(&fixture)["outcome"] == "began" }).await;
    terminal.presses_control('c');
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(go_on(&shown).ends_with(" consumers drain dead-0 --remove"), "{shown}");
    assert_eq!(fixture.pending().await, 30, "nothing is gone");
    busy.kill9();

    let heir = patient(&fixture, "heir").start();
    heir.says("worker started").await;
    operator.run("consumers drain dead-0 --remove --yes").expect(0);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_entries_are_shown_with_what_is_in_them_also_when_nothing_is() {
    let fixture = Fixture::open().await;
    let operator = operator(&fixture);
    assert!(operator.run("pending list").expect(0).stdout.contains("No pending entry matches: 0 entries"));
    assert!(operator.run("consumers list").expect(0).stdout.contains("has no consumers"));
    operator.run("consumers drain --dead --yes").expect(0);
    operator.run("consumers drain --dead --remove --yes").expect(0);
    operator.run("consumers drain x --yes").expect(1);
    operator.run("pending show 1-1").expect(1);
    operator.run("pending show x").expect(2);

    let order = fixture.add_order(9_007_199_254_740_993, 42, 7).await;
    let no_order = fixture.add(&[("userId", "x\u{1b}[2J"), ("voucherId", "7"), ("id", "1")]).await;
    let gone = fixture.add_order(3, 43, 7).await;
    delivered_to(&fixture, "c1", 3).await;
    let unread = fixture.add_order(4, 44, 7).await;
    fixture.call(&format!("XDEL {STREAM} {gone}")).await;
    let list = operator.run("pending list --json").expect(0).json();
    let payloads: Vec<_> =
        (0..3).map(|at| list["entries"][at]["payload"].as_str().expect("a word")).collect();
    assert_eq!(payloads, ["order", "no_order", "gone"]);
    assert_eq!(list["entries"][0]["order"]["id"], "9007199254740993");
    let table = operator.run("pending list").expect(0);
    assert!(table.stdout.contains("no payload (deleted or trimmed)"), "{table:?}");
    assert!(!table.stdout.contains('\u{1b}'), "the terminal is not steered by it: {table:?}");
    let limited = operator.run("pending list --limit 2").expect(0);
    assert!(limited.stdout.contains("2 shown of 3 entries pending, and more match"), "{limited:?}");

    let shown = |id: &str, code| operator.run(&format!("pending show {id}")).expect(code).stdout;
    assert!(shown(&order, 0).contains(" consumers drain c1"));
    assert!(shown(&no_order, 0).contains("no order: the field userId"));
    assert!(shown(&gone, 0).contains("its payload was deleted"));
    assert!(shown(&unread, 1).contains("no worker has read it yet"));
    fixture.call(&format!("XACK {STREAM} g1 {order}")).await;
    assert!(shown(&order, 1).contains("it is acknowledged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_wrong_type_are_told_and_nothing_is_done() {
    let fixture = Fixture::open().await;
    let operator = operator(&fixture);
    fixture.add_order(1, 1, 7).await;
    delivered_to(&fixture, "c1", 1).await;
    fixture.call(&format!("SET {DEAD} x")).await;
    let failed = operator.run("pending bury --dead --why x --yes").expect(3);
    assert!(failed.stderr.contains("WRONGTYPE"), "{failed:?}");
    assert_eq!(fixture.pending().await, 1, "it is still pending");
    assert_eq!(logged(&fixture)["outcome"], "failed");

    fixture.call(&format!("DEL {STREAM}")).await;
    fixture.call(&format!("SET {STREAM} x")).await;
    for line in [
        "pending list",
        "pending show 1-1",
        "consumers drain --dead --yes",
        "pending bury --dead --why x --yes",
        "consumers list",
        "consumers drain --dead --remove --yes",
    ] {
        let failed = operator.run(line).expect(3);
        assert!(failed.stderr.contains("WRONGTYPE"), "{line}: {failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burial_tells_what_it_left_and_what_is_over_its_limit() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 9).await;
    delivered_to(&fixture, "dead-0", 9).await;
    let operator = operator(&fixture);
    let list = operator.run("pending list --json").expect(0).json();
    let gone = list["entries"][0]["entry"].as_str().expect("an id").to_owned();
    fixture.call(&format!("XDEL {STREAM} {gone}")).await;

    let some = operator.run_with(
        &["pending", "bury", "--dead", "--limit", "5", "--why", "it's bad", "--yes", "--json"],
        &[],
    );
    let some = some.expect(1);
    let told = some.json();
    assert_eq!((told["buried"].as_array().map(Vec::len), &told["more"]), (Some(4), &true.into()), "{told}");
    assert_eq!(
        (&told["left"][0]["entry"], &told["left"][0]["why"]),
        (&gone.into(), &"gone".into()),
        "{told}"
    );
    let logged_now = logged(&fixture);
    assert_eq!(logged_now["outcome"], "refused", "{logged_now}");
    assert_eq!(
        logged_now["counts"],
        serde_json::json!({ "buried": 4, "left": 1, "over_limit": 1 }),
        "{logged_now}"
    );

    // Only the entry without a payload is left then, and no burial settles that one.
    let rest = pastes(&go_on(&some.stderr), &[]).expect(1);
    assert_eq!(rest.json()["buried"].as_array().map(Vec::len), Some(4), "{rest:?}");
    let last = operator.run_with(&["pending", "bury", "--dead", "--why", "x", "--yes"], &[]).expect(1);
    assert!(last.stdout.contains("its payload was deleted"), "{last:?}");
    assert_eq!((fixture.dead().await.len(), fixture.pending().await), (8, 1));
    assert_eq!(fixture.dead().await[7]["dead:error"], "it's bad");
}

/// MySQL fails after a hundred entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_burial_that_loses_mysql_half_way_tells_what_it_has_buried_and_goes_on_with_the_rest() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 150).await;
    delivered_to(&fixture, "dead-0", 150).await;
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let (redis_url, mysql_url) = (redis.url_for(&fixture.redis), mysql.url_for(&fixture.mysql));
    let through = Program::with_flags(&["--redis-url", &redis_url, "--mysql-url", &mysql_url]);
    let held = redis.hold_when(fred::util::sha1_hash(include_str!("../../lua/bury.lua")));
    let words = ["pending", "bury", "--dead", "--limit", "200", "--why", "x", "--yes", "--json"];
    let child = spawned(&mut through.command(&words));
    held.reached().await.expect("it buries the first");
    mysql.cut().await;
    held.release();
    let failed = Run::from(child.wait_with_output().expect("it ends")).expect(3);
    assert_eq!(failed.json()["buried"].as_array().map(Vec::len), Some(100), "{failed:?}");
    assert_eq!((fixture.dead().await.len(), fixture.pending().await), (100, 50));
    let line = logged(&fixture);
    assert_eq!((&line["outcome"], &line["counts"]["buried"]), (&"failed".into(), &100.into()), "{line}");

    mysql.pass();
    let rest = pastes(&go_on(&failed.stderr), &[]).expect(0);
    assert_eq!(rest.json()["buried"].as_array().map(Vec::len), Some(50), "{rest:?}");
}

/// Redis fails after the entries of one consumer are claimable, and before those of the other are.
#[tokio::test(flavor = "multi_thread")]
async fn a_handover_that_loses_redis_half_way_tells_what_it_has_offered() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 30).await;
    delivered_to(&fixture, "first-0", 10).await;
    fixture.hand_over("second-0", 20).await;
    until("they are old enough", || async { fixture.longest_idle_ms().await > Some(700) }).await;
    let busy = patient(&fixture, "busy").set("WORKER_CLAIM_EVERY_MS", 3_600_000).start();
    busy.says("worker started").await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let url = proxy.url_for(&fixture.redis);
    let mysql_url = fixture.mysql.url();
    let flags = ["--redis-url", &url, "--mysql-url", &mysql_url, "--set", "worker.lock_lease_ms=600"];
    let through = Program::with_flags(&[&flags[..], &["--set", "redis.command_timeout_ms=500"]].concat());
    for (line, told, done) in [
        ("consumers drain --dead --yes --json", "offered", 10),
        // These entries were offered before, so they are not offered again.
        ("consumers drain --dead --remove --yes --json", "handed_over", 0),
    ] {
        let held = proxy.hold_when("second-0");
        let child = spawned(&mut through.command(&line.split(' ').collect::<Vec<_>>()));
        held.reached().await.expect("it comes to the second");
        proxy.cut().await;
        let failed = Run::from(child.wait_with_output().expect("it ends")).expect(3);
        assert_eq!(failed.json()[told], done, "{line}: {failed:?}");
        proxy.pass();
        assert!(go_on(&failed.stderr).ends_with(line), "{failed:?}");
    }
    let rest =
        pastes(&format!("tidegate {} consumers drain --dead --yes --json", flags.join(" ")), &[]).expect(0);
    assert_eq!(rest.json()["offered"], 20, "{rest:?}");
    busy.kill9();
    let heir = patient(&fixture, "heir").start();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_does_not_read_all_of_it_again_and_again() {
    let fixture = Fixture::open().await;
    for id in 1..=5_000 {
        fixture.redis_says(&["XADD", STREAM, "*", "id", &id.to_string()]).await;
    }
    delivered_to(&fixture, "dead-0", 5_000).await;
    // A worker is alive, and claims nothing.
    fixture.call("SET tidegate:worker:busy somebody").await;
    fixture.redis_says(&["XGROUP", "CREATECONSUMER", STREAM, "g1", "busy-0"]).await;
    until("they are old enough", || async { fixture.longest_idle_ms().await > Some(700) }).await;
    let operator = operator(&fixture);
    let reads = async |line: &str, code: i32| {
        let before = fixture.calls_of("xpending").await;
        operator.run(line).expect(code);
        fixture.calls_of("xpending").await - before
    };
    let offering = reads("consumers drain --dead --yes", 0).await;
    let looks = reads("consumers drain --dead --wait 3s --yes", 1).await - offering;
    // The command counts all entries once, at its end.
    assert!(looks <= 20, "{looks} times a page of the pending list was read, which has six of them");

    let before = fixture.calls_of("xinfo|consumers").await + fixture.calls_of("xinfo").await;
    operator.run("consumers drain dead-0 --remove --wait 3s --yes").expect(1);
    let looks = fixture.calls_of("xinfo|consumers").await + fixture.calls_of("xinfo").await - before;
    assert!(looks < 5, "{looks} times the consumers were read");
}

/// A paused worker that has set one order aside, because another client holds its user's lock. It does not try that
/// order again, so it has nothing in progress.
async fn with_one_set_aside(fixture: &Fixture) -> Worker {
    fixture.open_sale().await;
    fixture.redis_says(&["SET", "lock:order:1005", "somebody"]).await;
    let worker = patient(fixture, "holder").start();
    fixture.plain_rush(1_000, 10).await;
    until("all others are written", || async { fixture.orders().await.len() == 9 }).await;
    paused_with_one_set_aside(fixture, &worker, "holder-0").await;
    worker
}

async fn paused_with_one_set_aside(fixture: &Fixture, worker: &Worker, consumer: &str) {
    worker.signal(Signal::SIGTSTP);
    until_all(worker, "paused").await;
    set_aside_by(fixture, consumer).await;
}

async fn set_aside_by(fixture: &Fixture, consumer: &str) {
    until("it is set aside", || async {
        let list = operator(fixture).run("pending list --json").expect(0).json();
        let entries = list["entries"].as_array().expect("an array");
        entries.len() == 1 && entries[0]["set_aside"] == true && entries[0]["consumer"] == consumer
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_offers_nothing_does_not_say_that_all_was_taken() {
    let fixture = Fixture::open().await;
    fixture.load(1, 10).await;
    fixture.admit(1, 1, 1, 1).await;
    fixture.call("XGROUP CREATE stream.orders g1 0").await;
    fixture.hand_over("ghost", 1).await;
    let leases = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
    let claimed = leases.run("consumers drain --dead --wait 1s --yes").expect(1).stdout;
    assert!(claimed.contains("0 entries made claimable") && claimed.contains("1 entry skipped"), "{claimed}");
    assert!(!claimed.contains("taken"), "{claimed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_is_claimed_at_once_from_the_dead_and_from_the_living_only_by_force() {
    let fixture = Fixture::open().await;
    let holder = with_one_set_aside(&fixture).await;
    // The leases have their defaults, which are far longer than this test takes.
    let leases = Program::with_variables(&fixture.redis.url(), &fixture.mysql.url());
    let careful = |line: &str| leases.run(line);
    let refused = careful("consumers drain holder-0 --yes").expect(1);
    assert!(refused.stdout.contains("holder-0 is alive"), "{refused:?}");

    let heir = patient(&fixture, "heir").start();
    heir.says("worker started").await;
    let forced = careful("consumers drain holder-0 --force --wait 1m --yes").expect(0);
    assert!(forced.stdout.contains("1 entry made claimable"), "{forced:?}");
    paused_with_one_set_aside(&fixture, &heir, "heir-0").await;
    assert!(holder.stop().await.success());

    // Entries in progress would stay until their leases are over. This entry is in progress at no worker.
    heir.kill9();
    until_gone(&fixture, "heir-0").await;
    let third = patient(&fixture, "third").start();
    third.says("worker started").await;
    let claimed = careful("consumers drain --dead --wait 1m --yes --json").expect(0).json();
    assert_eq!((&claimed["offered"], &claimed["young"], &claimed["left"]), (&1.into(), &0.into(), &0.into()));
    set_aside_by(&fixture, "third-0").await;
    fixture.call("DEL lock:order:1005").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(third.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_has_set_something_aside_is_removed_once_it_is_dead_and_another_keeps_it() {
    let fixture = Fixture::open().await;
    let holder = with_one_set_aside(&fixture).await;
    let operator = operator(&fixture);
    let stays = operator.run("consumers drain holder-0 --remove --yes").expect(1);
    assert!(stays.stdout.contains("holder-0 is alive"), "{stays:?}");
    holder.kill9();
    until_gone(&fixture, "holder-0").await;
    let heir = patient(&fixture, "heir").start();
    heir.says("worker started").await;
    let removed = operator.run("consumers drain holder-0 --remove --yes --json").expect(0).json();
    assert_eq!(
        (&removed["removed"][0], &removed["handed_over"]),
        (&"holder-0".into(), &1.into()),
        "{removed}"
    );
    set_aside_by(&fixture, "heir-0").await;
    let left = operator.run("consumers drain --dead --remove --yes").expect(0);
    assert!(left.stdout.contains("No consumer of group g1 is dead"), "{left:?}");
    fixture.call("DEL lock:order:1005").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(heir.stop().await.success());
}
