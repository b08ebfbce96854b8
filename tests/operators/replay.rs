//! Tests of `tidegate replay`: existing orders stay, missing ones are written, and the command can be stopped, killed
//! and repeated.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use fred::{
    interfaces::ClientLike,
    types::{CustomCommand, Value},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value as Json;
use sqlx::Row;
use tempfile::TempDir;
use tidegate_lab::{Hold, Proxy};

use crate::{
    fixture::{
        DEAD, Fixture, GROUP, STREAM,
        rush::{PLENTY, SHORT},
        until,
    },
    order_event::with_unpaid_orders,
    program::pastes,
    terminal::Terminal,
};

/// The whole stream.
const ALL: [&str; 4] = ["--from", "2020-01-01", "--to", "0s"];
/// The end of a transaction. The leading `;` excludes `READ COMMITTED`.
const COMMIT: &[u8] = b";COMMIT";
/// The transaction of a batch in which some orders are refused.
const REFUSING_COMMIT: &[u8] = b",'out_of_stock','";

/// The data of both stores, without the operator log and the row that probes change.
struct Dump(BTreeMap<String, String>);

impl Dump {
    /// Checks that nothing has changed since `before`.
    #[track_caller]
    fn expect(&self, before: &Self) {
        let differs = |name: &&String| self.0.get(*name) != before.0.get(*name);
        let differing: Vec<&String> = self.0.keys().chain(before.0.keys()).filter(differs).collect();
        let shown = |dump: &Self| differing.first().and_then(|name| dump.0.get(*name)).cloned();
        assert!(differing.is_empty(), "{differing:?} differ: {:?}, before: {:?}", shown(self), shown(before));
    }
}

async fn dump(fixture: &Fixture) -> Dump {
    let mut all = BTreeMap::new();
    for key in fixture.call("KEYS *").await.into_array() {
        let key = key.as_string().expect("a key");
        // Hashes and sets have no fixed order.
        let held = match fixture.call(&format!("TYPE {key}")).await.as_string().as_deref() {
            Some("hash") => sorted(fixture.call(&format!("HGETALL {key}")).await),
            Some("set") => sorted(fixture.call(&format!("SMEMBERS {key}")).await),
            _ => format!("{:?}", fixture.call(&format!("DUMP {key}")).await.as_bytes()),
        };
        all.insert(key, held);
    }
    all.remove("tidegate:log");
    for (table, sql) in [
        (
            "orders",
            "SELECT CONCAT_WS(' ', id, user_id, voucher_id, quantity, slot, entry_id, status, create_time, \
             update_time) FROM tb_voucher_order ORDER BY id",
        ),
        (
            "refusals",
            "SELECT CONCAT_WS(' ', order_id, user_id, voucher_id, quantity, reason, entry_id, at) \
             FROM tidegate_refusal ORDER BY order_id",
        ),
        (
            "vouchers",
            "SELECT CONCAT_WS(' ', voucher_id, stock, initial_stock, refusals) FROM tb_seckill_voucher \
             ORDER BY voucher_id",
        ),
    ] {
        let rows = sqlx::query(sql).fetch_all(&fixture.pool).await.expect("MySQL answers");
        let rows: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        all.insert(table.to_owned(), rows.join("\n"));
    }
    Dump(all)
}

fn sorted(reply: Value) -> String {
    let items = match reply {
        Value::Map(map) => map.iter().map(|(name, value)| format!("{name:?} {value:?}")).collect(),
        reply => reply.into_array().into_iter().map(|item| format!("{item:?}")).collect::<Vec<_>>(),
    };
    let mut items = items;
    items.sort_unstable();
    items.join("\n")
}

/// The orders in MySQL, without the times at which their rows were created.
async fn mysql_outcome(fixture: &Fixture) -> Vec<String> {
    let mut rows = Vec::new();
    for sql in [
        "SELECT CONCAT_WS(' ', id, user_id, voucher_id, quantity, slot, entry_id) FROM tb_voucher_order ORDER BY id",
        "SELECT CONCAT_WS(' ', order_id, reason, entry_id) FROM tidegate_refusal ORDER BY order_id",
        "SELECT CONCAT_WS(' ', voucher_id, stock, refusals) FROM tb_seckill_voucher ORDER BY voucher_id",
    ] {
        let found = sqlx::query(sql).fetch_all(&fixture.pool).await.expect("MySQL answers");
        rows.extend(found.iter().map(|row| row.get::<String, _>(0)));
    }
    rows
}

/// Lets a worker write all orders of the stream.
async fn work(fixture: &Fixture, name: &str) {
    let worker = fixture.worker(name).start();
    // If a replay has left nothing, all is settled before the worker listens for signals.
    worker.says("worker started").await;
    fixture.settled().await;
    assert!(worker.stop().await.success());
}

/// Deletes all orders and refusals from MySQL and resets the stock, as if a backup were restored.
async fn mysql_forgets(fixture: &Fixture) {
    for sql in [
        "DELETE FROM tb_voucher_order",
        "DELETE FROM tidegate_refusal",
        "UPDATE tb_seckill_voucher SET stock = initial_stock, refusals = 0",
    ] {
        sqlx::query(sql).execute(&fixture.pool).await.expect("MySQL answers");
    }
}

fn replay(fixture: &Fixture, args: &[&str]) -> Output {
    fixture.tidegate(&[&["replay"], args].concat())
}

/// Checks the exit code, and returns the printed JSON.
#[track_caller]
fn told(output: &Output, code: i32) -> Json {
    assert_eq!(output.status.code(), Some(code), "{}", shown(output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown(output)))
}

fn shown(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[track_caller]
fn counts(told: &Json, expected: &[(&str, u64)]) {
    for (name, count) in expected {
        assert_eq!(told[*name], *count, "{name}: {told:#}");
    }
}

/// A command on these stores.
fn command(redis: &str, mysql: &str, args: &[&str]) -> Command {
    let mut command = crate::fixture::program();
    command.env("TIDEGATE_REDIS_URL", redis).env("TIDEGATE_MYSQL_URL", mysql).args(args);
    command
}

/// The command line that the output proposes to continue with.
fn go_on(shown: &str) -> Vec<String> {
    let hint = shown.lines().skip_while(|line| !line.to_lowercase().contains("go on with:")).nth(1);
    let words = hint.unwrap_or_else(|| panic!("no hint: {shown}")).trim();
    let words = words.split_once(' ').expect("a command of ours").1;
    let words = words.split(' ').filter(|word| !["--yes", "--json"].contains(word));
    words.map(|word| word.trim_matches('\'').to_owned()).collect()
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_bounds_or_with_wrong_ones_nothing_is_run() {
    let fixture = Fixture::open().await;
    for args in [
        &["--yes"][..],
        &["--from", "-1h", "--yes"],
        &["--to", "-1h", "--yes"],
        &["--from", "-1h", "--to", "-2h", "--yes"],
        &["--from", "yesterday", "--to", "0s", "--yes"],
        &["--from", "-1h", "--to", "0s", "--rate", "0", "--yes"],
        &["--file", "/dev/null", "--yes"],
    ] {
        let output = replay(&fixture, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", shown(&output));
    }
    let nothing = replay(&fixture, &ALL);
    assert!(
        nothing.status.success() && shown(&nothing).contains("there is no entry to replay"),
        "{}",
        shown(&nothing)
    );

    fixture.load(PLENTY, 10).await;
    fixture.add_order(1, 1, PLENTY).await;
    let unasked = replay(&fixture, &ALL);
    assert_eq!(unasked.status.code(), Some(2), "{}", shown(&unasked));
    assert!(shown(&unasked).contains("--yes") && fixture.orders().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_can_be_run_again_and_again_and_changes_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 3_000).await;
    fixture.add_poison().await;
    work(&fixture, "w").await;
    let before = dump(&fixture).await;
    let refused = fixture.refused().await.len() as u64;
    assert!(refused > 300, "{refused}");

    let expected = [
        ("entries", 3_002),
        ("already_there", 3_000 - refused),
        ("created", 0),
        ("refused", 0),
        ("refused_before", refused),
        ("released", 0),
        ("buried", 0),
        ("dead", 2),
    ];
    let dry = told(&replay(&fixture, &[&ALL[..], &["--dry-run", "--json"]].concat()), 0);
    counts(&dry["foreseen"], &expected);
    for _ in 0..2 {
        let done = told(&replay(&fixture, &[&ALL[..], &["--yes", "--json"]].concat()), 0);
        counts(&done, &expected);
        counts(&done, &[("acknowledged", 0), ("left", 0)]);
    }
    dump(&fixture).await.expect(&before);
    fixture.invariants().await;

    let log = told(&fixture.tidegate(&["log", "--json"]), 0);
    assert_eq!((&log[0]["command"], &log[0]["outcome"]), (&"replay".into(), &"done".into()), "{log:#}");
    counts(&log[0]["counts"], &expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_mysql_lost_is_written_again_and_the_dry_run_has_said_so() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 1_500).await;
    fixture.add_poison().await;
    work(&fixture, "w").await;
    let (before, released) = (fixture.orders().await, fixture.released().await.len() as u64);
    mysql_forgets(&fixture).await;

    let dry = told(&replay(&fixture, &[&ALL[..], &["--dry-run", "--json"]].concat()), 0);
    let done = told(&replay(&fixture, &[&ALL[..], &["--yes", "--json"]].concat()), 0);
    for told in [&dry["foreseen"], &done] {
        // Orders that were refused and released are not sold a second time.
        let written = before.len() as u64;
        counts(told, &[("created", written), ("released", released), ("refused", 0), ("dead", 2)]);
    }
    assert_eq!(fixture.orders().await, before);
    fixture.judge().await;
    let again = told(&replay(&fixture, &[&ALL[..], &["--yes", "--json"]].concat()), 0);
    counts(&again, &[("created", 0), ("already_there", before.len() as u64), ("released", released)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dry_run_counts_what_would_be_created_refused_and_buried_and_changes_nothing() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // A dead consumer holds the first half, and the second half is undelivered.
    fixture.rush(1_000, 400).await;
    fixture.add_poison().await;
    fixture.call("XGROUP CREATE stream.orders g1 0").await;
    fixture.hand_over("c1", 402).await;
    fixture.rush(2_000, 400).await;
    fixture.add_poison().await;
    let before = dump(&fixture).await;

    let dry = told(&replay(&fixture, &[&ALL[..], &["--dry-run", "--json"]].concat()), 0);
    counts(&dry, &[("entries", 804), ("unread", 402)]);
    let text = replay(&fixture, &[&ALL[..], &["--dry-run"]].concat());
    assert!(shown(&text).contains("among them 402 that no worker has read yet"), "{}", shown(&text));
    assert!(shown(&text).contains("2 would be buried"), "{}", shown(&text));
    dump(&fixture).await.expect(&before);

    let done = told(&replay(&fixture, &[&ALL[..], &["--yes", "--json"]].concat()), 0);
    for name in
        ["entries", "already_there", "created", "refused", "refused_before", "released", "buried", "dead"]
    {
        assert_eq!(dry["foreseen"][name], done[name], "{name}: {dry:#} {done:#}");
    }
    // The refused orders: 40 second orders of their users, twice, and the orders beyond the 12 units of the short
    // voucher.
    counts(&done, &[("refused", 80 + 80 - 12), ("buried", 2), ("dead", 2), ("acknowledged", 400)]);
    assert_eq!(
        (fixture.pending().await, fixture.open_entries().await),
        (0, Some(402)),
        "what is unread stays unread"
    );
    assert_eq!(fixture.dead().await.len(), 2);

    let outcome = mysql_outcome(&fixture).await;
    work(&fixture, "w").await;
    assert_eq!(mysql_outcome(&fixture).await, outcome, "the worker has found all of it there");
    fixture.invariants().await;
}

/// The name of a step, and a function that holds the command there.
type Step<'a> = (&'static str, Box<dyn Fn() -> Hold + 'a>);

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_killed_anywhere_and_typed_again() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let proxies = [
        Proxy::start(fixture.redis.port()).await.expect("a proxy"),
        Proxy::start(fixture.mysql.port()).await.expect("a proxy"),
    ];
    let [redis, mysql] = &proxies;
    let script = |lua: &str| fred::util::sha1_hash(lua);
    let (release, unlock) =
        (script(include_str!("../../lua/release_many.lua")), script(include_str!("../../lua/unlock.lua")));
    let bury = script(include_str!("../../lua/bury.lua"));
    let steps: [Step<'_>; 8] = [
        ("locking", Box::new(|| redis.hold_when("lock:order:"))),
        ("the commit", Box::new(|| mysql.hold_when(REFUSING_COMMIT))),
        ("the reply of the commit", Box::new(|| mysql.hold_reply_when(REFUSING_COMMIT))),
        ("releasing", Box::new(|| redis.hold_when(release.clone()))),
        ("the reply of releasing", Box::new(|| redis.hold_reply_when(release.clone()))),
        ("unlocking", Box::new(|| redis.hold_when(unlock.clone()))),
        ("acknowledging", Box::new(|| redis.hold_when("\r\nXACK\r\n"))),
        ("burying", Box::new(|| redis.hold_when(bury.clone()))),
    ];
    fixture.call("XGROUP CREATE stream.orders g1 0 MKSTREAM").await;
    let lease = ["--set", "worker.lock_lease_ms=600", "--set", "worker.claim_idle_ms=5000"];
    for (round, (step, arm)) in (1..).zip(&steps) {
        fixture.rush(round * 1_000, 200).await;
        fixture.add_poison().await;
        fixture.hand_over("c1", 10_000).await;
        let hold = arm();
        let args = [&lease[..], &["replay"], &ALL, &["--yes", "--json"]].concat();
        let mut child = command(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql), &args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        hold.reached().await.unwrap_or_else(|error| panic!("{step}: {error}"));
        child.kill().expect("it is there");
        child.wait().expect("it is gone");
        hold.cut();
        let done = told(&fixture.tidegate(&args), 0);
        counts(&done, &[("left", 0)]);
        assert_eq!(fixture.pending().await, 0, "{step}");
        fixture.invariants().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it_after_the_batch_in_progress_and_what_it_says_goes_on_with_the_rest() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 500).await;
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let small = ["--set", "worker.batch=100"];
    let args = [&small[..], &["replay"], &ALL].concat();
    let held = mysql.hold_when(COMMIT);
    let mut terminal = Terminal::start(&command(&fixture.redis.url(), &mysql.url_for(&fixture.mysql), &args));
    let asked = terminal.shows("Run 500 entries of stream.orders again? [y/N]");
    assert!(asked.contains("0 already there, 500 would be created"), "{asked}");
    terminal.types("y");
    held.reached().await.expect("it comes to the first commit");
    terminal.shows("0/500");
    terminal.presses_control('c');
    terminal.shows("stopping after the step in progress");
    held.release();
    let (code, shown) = terminal.ends();
    assert_eq!(code, 6, "{shown}");
    assert!(shown.contains("100 created"), "{shown}");
    assert_eq!(fixture.orders().await.len(), 100);

    let rest = go_on(&shown);
    let done = told(&fixture.tidegate(&[&strs(&rest)[..], &["--yes", "--json"]].concat()), 0);
    counts(&done, &[("entries", 400), ("created", 400)]);
    work(&fixture, "w").await;
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_running_workers_each_order_is_written_once() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let workers = [fixture.worker("a").start(), fixture.worker("b").start()];
    let replays = async {
        for _ in 0..8 {
            let args = [&["replay"], &ALL[..], &["--yes", "--json"]].concat();
            let child = command(&fixture.redis.url(), &fixture.mysql.url(), &args);
            let output = tokio::process::Command::from(child).output().await.expect("it runs");
            assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        }
    };
    let rush = async {
        for round in 1..=8 {
            fixture.rush(round * 10_000, 500).await;
            fixture.add_poison().await;
        }
    };
    tokio::join!(replays, rush);
    fixture.settled().await;
    for worker in workers {
        assert!(worker.stop().await.success());
    }
    fixture.invariants().await;
    let before = dump(&fixture).await;
    told(&replay(&fixture, &[&ALL[..], &["--yes", "--json"]].concat()), 0);
    dump(&fixture).await.expect(&before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_an_outage_is_written_and_a_store_that_goes_away_ends_it_with_what_to_type() {
    let fixture = Fixture::with_own_mysql().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    fixture.rush(1_000, 100).await;
    fixture.settled().await;
    fixture.mysql.kill9().expect("MySQL is killed");
    fixture.rush(2_000, 600).await;
    worker.says("outage began").await;
    worker.kill9();

    let away = replay(&fixture, &[&ALL[..], &["--yes"]].concat());
    assert_eq!(away.status.code(), Some(3), "{}", shown(&away));
    fixture.mysql.restart().expect("MySQL is back");

    // MySQL goes away once more, in the middle of the replay.
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let flags = [
        &["--set", "worker.batch=100", "--set", "mysql.acquire_timeout_ms=3000", "replay"][..],
        &ALL,
        &["--yes", "--json"],
    ]
    .concat();
    let held = mysql.hold_when("INSERT INTO tb_voucher_order (id,");
    let child = command(&fixture.redis.url(), &mysql.url_for(&fixture.mysql), &flags);
    let child = tokio::process::Command::from(child).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    held.reached().await.expect("it comes to its first write");
    mysql.cut().await;
    held.cut();
    let output = child.expect("it starts").wait_with_output().await.expect("it ends");
    let failed = told(&output, 3);
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("MySQL")), "{failed:#}");
    // The replay finds what the worker has written, and writes nothing itself.
    counts(&failed, &[("already_there", 90), ("refused_before", 10), ("created", 0)]);
    let log = told(&fixture.tidegate(&["log", "--json"]), 0);
    let last = log.as_array().and_then(|lines| lines.last()).expect("a line").clone();
    assert_eq!(
        (&last["outcome"], &last["counts"]["created"]),
        (&"failed".into(), &failed["created"]),
        "{last:#}"
    );

    let rest = go_on(&shown(&output));
    told(&fixture.tidegate(&[&strs(&rest)[..], &["--yes", "--json"]].concat()), 0);
    let outcome = mysql_outcome(&fixture).await;
    work(&fixture, "v").await;
    assert_eq!(mysql_outcome(&fixture).await, outcome);
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_goes_away_ends_it_with_what_to_type() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 400).await;
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let held = mysql.hold_when(COMMIT);
    let lease = ["--set", "worker.lock_lease_ms=2000"];
    let args = [
        &["--set", "worker.batch=100", "--set", "redis.command_timeout_ms=3000"][..],
        &lease,
        &["replay"],
        &ALL,
        &["--yes", "--json"],
    ]
    .concat();
    let child = command(&redis.url_for(&fixture.redis), &mysql.url_for(&fixture.mysql), &args);
    let child = tokio::process::Command::from(child).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    held.reached().await.expect("it comes to its first commit");
    redis.cut().await;
    held.release();
    let output = child.expect("it starts").wait_with_output().await.expect("it ends");
    let failed = told(&output, 3);
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("Redis")), "{failed:#}");

    let rest = go_on(&shown(&output));
    let rest = [&lease[..], &strs(&rest), &["--yes", "--json"]].concat();
    told(&fixture.tidegate(&rest), 0);
    assert_eq!(fixture.orders().await.len(), 400);
    work(&fixture, "w").await;
    fixture.invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replay_has_settled_has_no_crashes_any_more() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.add_order(1, 1, PLENTY).await;
    fixture.add_order(2, 2, 9).await;
    fixture.call(&format!("XGROUP CREATE {STREAM} {GROUP} 0")).await;
    fixture.call(&format!("XREADGROUP GROUP {GROUP} gone-0 STREAMS {STREAM} >")).await;
    for pending in fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 2")).await.into_array() {
        let id = pending.into_array()[0].as_string().expect("an id");
        fixture.call(&format!("HSET {STREAM}.deaths {id} 2")).await;
    }
    let args = [&ALL[..], &["--yes", "--json"]].concat();
    let done = told(&self::replay(&fixture, &args), 0);
    counts(&done, &[("created", 1), ("buried", 1), ("acknowledged", 1)]);
    assert_eq!(fixture.call(&format!("HLEN {STREAM}.deaths")).await.as_u64(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_living_worker_has_in_progress_is_not_buried_under_its_hands() {
    const NEW: i64 = 9;
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.add_order(1, 1, NEW).await;
    fixture.add_order(2, 2, PLENTY).await;
    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let locking = redis.hold_when("lock:order:");
    let worker = fixture.worker("w").set("WORKER_LANES", 1).set("REDIS_COMMAND_TIMEOUT_MS", 60_000);
    let worker = worker.set("REDIS_URL", redis.url_for(&fixture.redis)).start();
    locking.reached().await.expect("both entries are in progress");
    let dry_args = [&ALL[..], &["--dry-run"]].concat();
    let dry = self::replay(&fixture, &dry_args);
    assert!(
        shown(&dry).contains("0 would be buried, 1 left to a living worker that has them in progress"),
        "{}",
        shown(&dry)
    );
    let dry = told(&self::replay(&fixture, &[&dry_args[..], &["--json"]].concat()), 0);
    counts(
        &dry["foreseen"],
        &[("entries", 2), ("created", 1), ("buried", 0), ("dead", 0), ("in_progress", 1)],
    );

    // The replay finds no voucher, and the worker finds one: the row of the voucher is added in between.
    let operator = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let burying = operator.hold_when(fred::util::sha1_hash(include_str!("../../lua/bury.lua")));
    let args = [&["replay"], &ALL[..], &["--yes", "--json"]].concat();
    let mut replay = command(&operator.url_for(&fixture.redis), &fixture.mysql.url(), &args);
    let replay = replay.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    burying.reached().await.expect("the replay is about to bury");
    fixture.load(NEW, 10).await;
    let acknowledging = redis.hold_when("\r\nXACK\r\n");
    locking.release();
    acknowledging.reached().await.expect("the worker has written it");
    burying.release();

    let done = told(&replay.wait_with_output().expect("it ends"), 0);
    counts(&done, &[("entries", 2), ("created", 1), ("already_there", 1), ("buried", 0), ("left", 0)]);
    acknowledging.release();
    assert_eq!((fixture.orders().await.len(), fixture.dead().await.len()), (2, 0));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_user_is_locked_by_another_is_tried_again_and_holds_up_nobody_for_ever() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 50).await;
    fixture.call("SET lock:order:1007 somebody PX 1500").await;
    fixture.call("SET lock:order:1009 somebody").await;
    let quick = ["--set", "worker.lock_lease_ms=2000", "replay"];
    let some = told(&fixture.tidegate(&[&quick[..], &ALL, &["--yes", "--json"]].concat()), 1);
    counts(&some, &[("created", 49), ("left", 1)]);
    assert_eq!(some["notes"][0]["what"], "left", "{some:#}");
    fixture.call("DEL lock:order:1009").await;
    // The command to continue begins with the entry that is left.
    let stores = [("TIDEGATE_REDIS_URL", fixture.redis.url()), ("TIDEGATE_MYSQL_URL", fixture.mysql.url())];
    let stores = stores.each_ref().map(|(name, url)| (*name, url.as_str()));
    let line = some["go_on"].as_str().expect("a line");
    assert!(line.starts_with("tidegate --set worker.lock_lease_ms=2000 replay --from "), "{line}");
    let rest = pastes(line, &stores).expect(0).json();
    counts(&rest, &[("created", 1), ("left", 0)]);
    let all = told(&fixture.tidegate(&[&quick[..], &ALL, &["--yes", "--json"]].concat()), 0);
    counts(&all, &[("created", 0), ("already_there", 50), ("left", 0)]);
    work(&fixture, "w").await;
    fixture.invariants().await;
}

/// The recorded events of an order, in their sequence.
async fn recorded(fixture: &Fixture, order: i64) -> Vec<String> {
    let sql = "SELECT event FROM tidegate_event WHERE order_id = ? ORDER BY step";
    sqlx::query_scalar(sql).bind(order).fetch_all(&fixture.pool).await.expect("MySQL answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_event_overtakes_an_older_one_of_its_order_that_no_worker_has_read() {
    let fixture = with_unpaid_orders(1_000, 1..=3).await;
    let event = async |event: &str, order: &str| {
        fixture.add(&[("event", event), ("orderId", order), ("userId", order), ("voucherId", "1")]).await
    };
    let paid = event("paid", "1").await;
    event("paid", "2").await;
    let cancelled = event("cancelled", "1").await;
    event("cancelled", "2").await;
    // The payments are left out.
    let from = ["replay", "--from", &cancelled, "--to", "0s", "--yes", "--json"];
    let some = told(&fixture.tidegate(&from), 1);
    counts(&some, &[("events", 0), ("left", 2)]);
    let behind = |note: &Json| {
        note["why"].as_str().is_some_and(|why| why.starts_with("an older entry of the same order"))
    };
    assert!(behind(&some["notes"][0]), "{some:#}");
    assert_eq!((recorded(&fixture, 1).await.len(), recorded(&fixture, 2).await.len()), (0, 0));

    // The payment of order 1 is left, because its user is locked. The lock ends during the replay.
    fixture.call("SET lock:order:1 somebody PX 1500").await;
    let one_by_one = ["--set", "worker.lock_lease_ms=500", "--set", "worker.batch=1", "replay"];
    let some = fixture.tidegate(&[&one_by_one[..], &ALL, &["--yes", "--json"]].concat());
    assert_ne!(recorded(&fixture, 1).await.first().map(String::as_str), Some("cancelled"), "{some:?}");
    assert_eq!(recorded(&fixture, 2).await, ["paid", "cancelled"], "nobody else waits");

    // The lock does not end. So the command to continue begins with the event that is left, behind other events that no
    // worker has read.
    event("paid", "3").await;
    event("cancelled", "3").await;
    fixture.call("SET lock:order:3 somebody").await;
    let from = ["--from", &paid, "--to", "0s", "--yes", "--json"];
    let some = told(&fixture.tidegate(&[&one_by_one[..], &from].concat()), 1);
    counts(&some, &[("left", 2)]);
    assert!(behind(&some["notes"][1]), "{some:#}");
    fixture.call("DEL lock:order:3").await;
    let stores = [("TIDEGATE_REDIS_URL", fixture.redis.url()), ("TIDEGATE_MYSQL_URL", fixture.mysql.url())];
    let stores = stores.each_ref().map(|(name, url)| (*name, url.as_str()));
    let rest = pastes(some["go_on"].as_str().expect("a line"), &stores).expect(0).json();
    counts(&rest, &[("events", 2), ("left", 0)]);
    told(&fixture.tidegate(&[&["replay"], &ALL[..], &["--yes", "--json"]].concat()), 0);
    for order in 1..=3 {
        assert_eq!(recorded(&fixture, order).await, ["paid", "cancelled"], "order {order}");
    }
    work(&fixture, "w").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_below_its_rate_and_within_its_voucher_and_user() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 60).await;
    fixture.add_order(2_000, 1_005, SHORT).await;
    // An entry that is no order names the voucher nevertheless.
    let broken = fixture.add(&[("userId", "9"), ("voucherId", "2"), ("id", "x")]).await;
    let short = told(&replay(&fixture, &[&ALL[..], &["--voucher", "2", "--yes", "--json"]].concat()), 0);
    counts(&short, &[("entries", 2), ("created", 1), ("dead", 1)]);
    assert_eq!(short["notes"][0]["entry"], broken.as_str(), "{short:#}");
    let user = told(&replay(&fixture, &[&ALL[..], &["--user", "1005", "--yes", "--json"]].concat()), 0);
    counts(&user, &[("entries", 2), ("created", 1), ("already_there", 1)]);

    let began = Instant::now();
    let slow = replay(&fixture, &[&ALL[..], &["--voucher", "1", "--rate", "40", "--yes", "--json"]].concat());
    counts(&told(&slow, 0), &[("entries", 60), ("created", 59)]);
    // The last step begins after the time of all earlier steps.
    assert!(began.elapsed() >= Duration::from_millis(50 * 1_000 / 40), "{:?}", began.elapsed());
}

/// Exports the whole stream into a new file.
fn export(fixture: &Fixture, folder: &TempDir) -> PathBuf {
    let path = folder.path().join("orders.jsonl");
    let file = path.to_str().expect("a path");
    let output = fixture.tidegate(&[&["export"], &ALL[..], &["--out", file, "--json"]].concat());
    told(&output, 0);
    path
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).expect("the file is there").lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_gone_is_run_from_its_export() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.rush(1_000, 800).await;
    fixture.add_poison().await;
    let strange = CustomCommand::new("XADD", None, false);
    let words: [&[u8]; 10] = [
        STREAM.as_bytes(),
        b"*",
        b"userId",
        b"7001",
        b"voucherId",
        b"1",
        b"id",
        b"7001",
        b"\xff\"\n",
        b"\xfe\0",
    ];
    let words: Vec<Value> = words.into_iter().map(Value::from).collect();
    let _: Value = fixture.client.custom(strange, words).await.expect("it is added");
    let folder = TempDir::new().expect("a folder");
    let path = export(&fixture, &folder);
    let file = path.to_str().expect("a path");
    assert_eq!(lines(&path).len(), 803);
    assert!(
        lines(&path)[802].ends_with(r#",[{"base64":"/yIK"},{"base64":"/gA="}]]}"#),
        "{}",
        lines(&path)[802]
    );

    // A replay of the file must lead to the same result as a worker that reads the stream.
    work(&fixture, "w").await;
    let (orders, released) = (fixture.orders().await, fixture.released().await.len() as u64);
    fixture.call("XTRIM stream.orders MAXLEN 0").await;
    assert!(shown(&replay(&fixture, &ALL)).contains("there is no entry to replay"));
    let there = told(&replay(&fixture, &["--file", file, "--yes", "--json"]), 0);
    counts(&there, &[("created", 0), ("already_there", orders.len() as u64), ("refused", 0), ("dead", 2)]);

    mysql_forgets(&fixture).await;
    let dry = told(&replay(&fixture, &["--file", file, "--dry-run", "--json"]), 0);
    let done = told(&replay(&fixture, &["--file", file, "--yes", "--json"]), 0);
    for told in [&dry["foreseen"], &done] {
        counts(told, &[("created", orders.len() as u64), ("released", released), ("buried", 0), ("dead", 2)]);
    }
    assert_eq!(fixture.orders().await, orders);
    let before = dump(&fixture).await;
    told(&replay(&fixture, &["--file", file, "--yes", "--json"]), 0);
    dump(&fixture).await.expect(&before);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_has_lost_everything_and_the_file_has_it() {
    let fixture = Fixture::open().await;
    fixture.load(PLENTY, 100_000).await;
    fixture.plain_rush(1_000, 300).await;
    let folder = TempDir::new().expect("a folder");
    let path = export(&fixture, &folder);
    let file = path.to_str().expect("a path");
    fixture.call("FLUSHALL").await;
    let done = told(&replay(&fixture, &["--file", file, "--user", "1100", "--yes", "--json"]), 0);
    counts(&done, &[("entries", 1), ("created", 1)]);
    // A replay that is stopped in the middle continues from there.
    let mysql = Proxy::start(fixture.mysql.port()).await.expect("a proxy");
    let held = mysql.hold_when(COMMIT);
    let args = ["--set", "worker.batch=100", "replay", "--file", file, "--yes", "--json"];
    let child = command(&fixture.redis.url(), &mysql.url_for(&fixture.mysql), &args);
    let child = tokio::process::Command::from(child).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    held.reached().await.expect("it comes to its first commit");
    let pid = i32::try_from(child.id().expect("it lives")).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("it is there");
    let stopping = child.wait_with_output();
    held.release();
    let output = stopping.await.expect("it ends");
    let stopped = told(&output, 6);
    counts(&stopped, &[("entries", 100)]);
    let rest = go_on(&shown(&output));
    let done = told(&fixture.tidegate(&[&strs(&rest)[..], &["--yes", "--json"]].concat()), 0);
    counts(&done, &[("entries", 200)]);
    assert_eq!(fixture.orders().await.len(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_bad_line_is_refused_as_a_whole() {
    let fixture = Fixture::open().await;
    fixture.load(PLENTY, 100).await;
    fixture.plain_rush(1_000, 3).await;
    let folder = TempDir::new().expect("a folder");
    let path = export(&fixture, &folder);
    let whole = fs::read_to_string(&path).expect("the file is there");
    // A copy of the file was cut off.
    fs::write(&path, &whole[..whole.len() - 10]).expect("written");
    let file = path.to_str().expect("a path");
    let output = replay(&fixture, &["--file", file, "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(shown(&output).contains("orders.jsonl, line 3: not of the form "), "{}", shown(&output));
    // Opening a FIFO would wait for its writer.
    let fifo = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs").success());
    let output = replay(&fixture, &["--file", fifo.to_str().expect("a path"), "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
    assert!(shown(&output).contains("is not a regular file"), "{}", shown(&output));
    assert!(fixture.orders().await.is_empty());

    let taken = fixture.tidegate(&[&["export"], &ALL[..], &["--out", file]].concat());
    assert_eq!(taken.status.code(), Some(2), "{}", shown(&taken));
    assert!(shown(&taken).contains("already exists and is not overwritten"), "{}", shown(&taken));

    // The file is not sorted, has an empty line, and one line twice.
    let mut turned: Vec<&str> = whole.lines().rev().collect();
    turned.extend(["", turned[0]]);
    fs::write(&path, turned.join("\n")).expect("written");
    let done = told(&replay(&fixture, &["--file", file, "--yes", "--json"]), 0);
    counts(&done, &[("entries", 4), ("created", 3), ("already_there", 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_changes_nothing_and_goes_on_where_it_was_stopped() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.plain_rush(1_000, 2_500).await;
    let before = dump(&fixture).await;
    let whole = fixture.tidegate(&[&["export"], &ALL[..]].concat());
    assert!(whole.status.success(), "{}", shown(&whole));
    let whole = String::from_utf8(whole.stdout).expect("text");
    assert_eq!(whole.lines().count(), 2_500);
    let one = fixture.tidegate(&[&["export"], &ALL[..], &["--voucher", "1", "--user", "1007"]].concat());
    let one = String::from_utf8(one.stdout).expect("text");
    assert!(one.lines().count() == 1 && whole.contains(&one) && one.contains("\"1007\""), "{one}");
    assert_eq!(fixture.tidegate(&["export", "--from", "-1h"]).status.code(), Some(2));

    // A date alone is its midnight. Nothing is written, and no file prevents the next export.
    let folder = TempDir::new().expect("a folder");
    let day = folder.path().join("day.jsonl");
    let day = ["--out", day.to_str().expect("a path")];
    let midnight = ["--from", "2024-02-01T00:00:00Z", "--to", "2024-02-01T00:00:00Z"];
    for out in [&day[..], &[]] {
        let empty = fixture.tidegate(&[&["export"], &midnight[..], out].concat());
        let nothing = "stream.orders: no entry between 2024-02-01T00:00:00Z and 2024-02-01T00:00:00Z";
        assert!(empty.status.success() && shown(&empty).contains(nothing), "{}", shown(&empty));
    }
    let run = fixture.tidegate(&[&["export"], &ALL[..], &day].concat());
    assert!(run.status.success(), "{}", shown(&run));
    for command in ["export", "replay"] {
        let turned = fixture.tidegate(&[command, "--from", "-1h", "--to", "2024-02-01T00:00:00Z"]);
        assert_eq!(turned.status.code(), Some(2));
        let words = "--to 2024-02-01T00:00:00Z (2024-02-01T00:00:00Z) lies before --from -1h (";
        assert!(shown(&turned).contains(words), "{}", shown(&turned));
    }

    let redis = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("part.jsonl");
    let out = path.to_str().expect("a path");
    let entry = |line: usize| -> Json {
        serde_json::from_str(whole.lines().nth(line).expect("a line")).expect("JSON")
    };
    let second_page = format!("({}", entry(99)["entry"].as_str().expect("an id"));
    let held = redis.hold_when(second_page);
    let args = [&["export"], &ALL[..], &["--out", out, "--json"]].concat();
    let mut command = command(&redis.url_for(&fixture.redis), &fixture.mysql.url(), &args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    held.reached().await.expect("it comes to its second page");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    interrupt(&child);
    let mut said = String::new();
    errors.read_line(&mut said).expect("it speaks");
    assert!(said.contains("stopping after the step in progress"), "{said}");
    held.release();
    errors.read_to_string(&mut said).expect("it speaks");
    let output = child.wait_with_output().expect("it ends");
    counts(&told(&output, 6), &[("entries", 100)]);
    let rest = go_on(&said);
    let shell = rest.iter().position(|word| word == ">>").expect("it is to be appended");
    let rest = fixture.tidegate(&strs(&rest[..shell]));
    let part = fs::read_to_string(&path).expect("the file is there");
    assert_eq!(part + &String::from_utf8(rest.stdout).expect("text"), whole);
    dump(&fixture).await.expect(&before);
    until("nobody has read it", || async { fixture.open_entries().await.is_none() }).await;
    assert!(fixture.dead().await.is_empty(), "{DEAD}");
}

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    kill(pid, Signal::SIGINT).expect("it is there");
}

/// The reader of the pipe does not read, and a page is half written.
#[tokio::test(flavor = "multi_thread")]
async fn an_export_into_a_pipe_that_nobody_empties_can_be_stopped() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // This is more than a pipe holds.
    fixture.add(&[("note", &"x".repeat(300_000))]).await;
    fixture.plain_rush(1_000, 2_500).await;
    let args = [&["export"], &ALL[..]].concat();
    let mut command = command(&fixture.redis.url(), &fixture.mysql.url(), &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("it has begun to write");
    let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
    interrupt(&child);
    let mut said = String::new();
    errors.read_line(&mut said).expect("it speaks");
    assert!(said.contains("a second signal stops at once"), "{said}");
    interrupt(&child);
    until("it has ended", || {
        let ended = child.try_wait().expect("it is our child");
        async move { ended.is_some() }
    })
    .await;
    errors.read_to_string(&mut said).expect("it speaks");
    assert_eq!(child.wait().expect("it is our child").code(), Some(6), "{said}");
    assert!(said.contains("the last line of the export may be incomplete"), "{said}");
    let rest = go_on(&said);
    let rest = fixture.tidegate(&strs(&rest));
    assert_eq!(
        String::from_utf8(rest.stdout).expect("text").lines().count(),
        2_501,
        "from the page in progress on"
    );
}
