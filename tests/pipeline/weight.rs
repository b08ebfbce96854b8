//! Tests of the memory of a worker, whatever producers send.

use std::{fs, os::unix::process::CommandExt, process::Command};

use fred::types::Value;
use tidegate_lab::{MysqlServer, RedisServer};

use crate::fixture::{Fixture, STREAM, Worker, until};

const MIB: u64 = 1 << 20;
/// The bound for a worker, far below the 256 MiB that deploy/ gives it.
const MOST: u64 = 80 * MIB;
/// The bound after outages, when each lane has a batch in progress and reads another one. Twelve outages on a busy
/// machine led to 114 MiB, and the last five of them added nothing.
const MOST_AFTER_OUTAGES: u64 = 140 * MIB;

/// The bound for an event, a comparison or a command while large entries are pending.
const MOST_BESIDE_LARGE: u64 = 96 * MIB;

/// The peak of the resident memory in bytes, without the pages of the program file. In a test build, these take about
/// 35 MiB, and the system may drop them at any time.
fn peak(worker: &Worker) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", worker.pid())).expect("it lives");
    let kib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a line of it");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number")
    };
    (kib("VmHWM:") - kib("RssFile:")) * 1024
}

/// Orders with a field of this size each.
pub async fn add_orders(fixture: &Fixture, ids: std::ops::Range<i64>, bytes: usize) {
    let lua = "local id = tonumber(ARGV[1])
        while id < tonumber(ARGV[2]) do
            redis.call('XADD', KEYS[1], '*', 'userId', id, 'voucherId', 1, 'id', id, 'note', string.rep('x', tonumber(ARGV[3])))
            id = id + 1
        end";
    let (first, end, bytes) = (ids.start.to_string(), ids.end.to_string(), bytes.to_string());
    let _nothing: Value = fixture.redis_says(&["EVAL", lua, "1", STREAM, &first, &end, &bytes]).await;
}

async fn sum_of(worker: &Worker, metric: &str) -> f64 {
    let samples = crate::browser::get(worker, "/metrics").await.samples();
    samples.iter().filter(|(name, _)| name.starts_with(metric)).map(|(_, value)| value).sum()
}

/// Runs the program in a process that may have at most this many bytes of its own.
fn run_within(fixture: &Fixture, bytes: u64, words: &[&str]) -> String {
    let program = fixture.command(words);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -d {}; exec \"$@\"", bytes / 1024), "sh"]);
    command.arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.arg0("sh").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some_and(|code| code < 2), "{words:?}: {output:?}");
    text
}

/// A fixture whose Redis stores nothing on disk. Gigabytes pass through it, and files do not matter for the memory of a
/// worker.
async fn fleeting(mysql: MysqlServer) -> Fixture {
    let redis = RedisServer::options().args(["--appendonly", "no"]).start().expect("a Redis");
    Fixture::on(redis, mysql).await.migrated().await
}

async fn written(fixture: &Fixture) -> i64 {
    1_000_000 - fixture.mysql_stock(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_its_defaults_stays_small_also_when_small_entries_turn_into_large_ones() {
    let fixture = fleeting(MysqlServer::shared().expect("a database")).await;
    fixture.load(1, 1_000_000).await;
    add_orders(&fixture, 1..12_000, 1).await;
    for first in (12_000..18_000).step_by(500) {
        add_orders(&fixture, first..first + 500, 64 << 10).await;
    }
    let worker = fixture.worker("w").start();
    until("all are written", || async { written(&fixture).await == 17_999 }).await;
    let peak = peak(&worker);
    eprintln!("peak: {:.1} MiB", peak as f64 / MIB as f64);
    assert!(peak <= MOST, "{} MiB", peak / MIB);
    assert!(worker.stop().await.success());
}

/// A worker releases the entries that were in progress at an outage, and reuses their memory.
#[tokio::test(flavor = "multi_thread")]
async fn outages_with_large_entries_in_progress_leave_no_memory_behind() {
    let fixture = fleeting(MysqlServer::start().expect("a MySQL")).await;
    fixture.load(1, 1_000_000).await;
    let plan = fixture.worker("w").set("MYSQL_STATEMENT_TIMEOUT_MS", 1_200);
    let worker = plan.start();
    worker.says("worker started").await;
    let mut end = 1;
    let outages = || worker.log().matches("outage began").count();
    for _ in 0..6 {
        let before = outages();
        fixture.mysql.stop().expect("it stands still");
        // Small entries come first, so that the worker does not expect the large ones.
        add_orders(&fixture, end..end + 500, 1).await;
        for first in (end + 500..end + 3_500).step_by(500) {
            add_orders(&fixture, first..first + 500, 64 << 10).await;
        }
        end += 3_500;
        until("it is an outage", || async { outages() > before }).await;
        fixture.mysql.cont().expect("it goes on");
        until("all are written", || async { written(&fixture).await == end - 1 }).await;
        let _trimmed: Value = fixture.redis_says(&["XTRIM", STREAM, "MAXLEN", "0"]).await;
    }
    let peak = peak(&worker);
    eprintln!("peak: {:.1} MiB", peak as f64 / MIB as f64);
    assert!(peak <= MOST_AFTER_OUTAGES, "{} MiB", peak / MIB);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_set_aside_weighs_little() {
    const HELD: i64 = 60_000;
    // Each entry took about 120 bytes when measured; the rest is the buffers of four lanes.
    const GROWTH: u64 = 24 * MIB;
    let fixture = fleeting(MysqlServer::shared().expect("a database")).await;
    fixture.load(1, 1_000_000).await;
    let mut other = fixture.pool.begin().await.expect("a transaction");
    sqlx::query("SELECT stock FROM tb_seckill_voucher FOR UPDATE").execute(&mut *other).await.expect("held");
    for first in (1..=HELD).step_by(20_000) {
        add_orders(&fixture, first..first + 20_000, 1).await;
    }
    let worker = fixture.worker("w").set("WORKER_LANES", 4).set("WORKER_BATCH", 1_000).start();
    worker.says("worker started").await;
    let small = peak(&worker);
    until("all are set aside", || async {
        let held = crate::browser::get(&worker, "/metrics").await.samples();
        held.iter()
            .filter(|(name, _)| name.starts_with("tidegate_entries_set_aside{"))
            .map(|(_, value)| value)
            .sum::<f64>()
            >= HELD as f64 - 100.0
    })
    .await;
    let peak = peak(&worker);
    eprintln!("peak: {:.1} MiB, at the start {:.1} MiB", peak as f64 / MIB as f64, small as f64 / MIB as f64);
    assert!(peak <= MOST && peak - small <= GROWTH, "{} MiB", peak / MIB);
    other.rollback().await.expect("the row is free");
    until("all are written", || async { written(&fixture).await == HELD }).await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_large_pending_entries_an_event_a_comparison_and_commands_stay_small() {
    const LARGE: i64 = 600;
    let fixture = fleeting(MysqlServer::shared().expect("a database")).await;
    fixture.load(1, 1_000_000).await;
    fixture.load(2, 100).await;
    let mut other = fixture.pool.begin().await.expect("a transaction");
    let hold = "SELECT stock FROM tb_seckill_voucher WHERE voucher_id = 1 FOR UPDATE";
    sqlx::query(hold).execute(&mut *other).await.expect("held");
    let worker = fixture.worker("w").set("RECONCILE_EVERY_S", 1).set("WORKER_CLAIM_IDLE_MS", 60_000).start();
    // One entry comes first, because a worker decides by earlier entries how many it reads at once.
    for (first, end) in [(1, 2), (2, 101), (101, 301), (301, LARGE + 1)] {
        add_orders(&fixture, first..end, 900_000).await;
        until("all are set aside", || async {
            sum_of(&worker, "tidegate_entries_set_aside{").await >= (end - 1) as f64
        })
        .await;
    }
    let before = peak(&worker);
    fixture.admit(9_001, 9_001, 2, 1).await;
    let paid = [("event", "paid"), ("orderId", "9001"), ("userId", "9001"), ("voucherId", "2"), ("ref", "p")];
    fixture.add(&paid).await;
    let is_paid = async || {
        let sql = "SELECT COUNT(*) FROM tb_voucher_order WHERE id = 9001 AND status = 2";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&fixture.pool).await.expect("MySQL answers") == 1
    };
    until("it is paid", is_paid).await;
    let after_event = peak(&worker);
    // The second comparison begins after the event.
    for _ in 0..2 {
        let compared = sum_of(&worker, "tidegate_reconcile_last_seconds").await;
        let is_newer = async || sum_of(&worker, "tidegate_reconcile_last_seconds").await > compared;
        until("it has compared", is_newer).await;
    }
    let peak = peak(&worker);
    let mib = [before, after_event, peak].map(|bytes| bytes as f64 / MIB as f64);
    eprintln!("peak: {mib:.1?} MiB, before the event, after it, and after a comparison");
    assert!(peak <= MOST_BESIDE_LARGE, "{} MiB", peak / MIB);
    let found =
        run_within(&fixture, MOST_BESIDE_LARGE, &["order", "find", "--voucher", "1", "--open", "--json"]);
    assert_eq!(found.matches("\"pending\"").count(), 100, "as many as are shown: {found}");
    // A lane tries some entries again every now and then, and has them in progress for a moment.
    until("all are listed with what they wait for", || async {
        let listed =
            run_within(&fixture, MOST_BESIDE_LARGE, &["pending", "list", "--limit", "500", "--json"]);
        listed.matches("\"voucher_row\"").count() == 500
    })
    .await;
    run_within(&fixture, MOST_BESIDE_LARGE, &["reconcile", "--json"]);
    other.rollback().await.expect("the row is free");
    until("all are written", || async { written(&fixture).await == LARGE }).await;
    assert!(worker.stop().await.success());
}
