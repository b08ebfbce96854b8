//! Tests of pauses: of the gate for one voucher or all, of the whole fleet, and of one process by signals. After the
//! pause, no order is lost.

mod gate;
mod signals;

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use tidegate_lab::Proxy;

use crate::{
    browser::{until_all, until_page},
    fixture::{Fixture, GROUP, STREAM, rush::PLENTY, until},
    program::Program,
    sale::program,
    terminal::Terminal,
};

/// The promised time. A batch in this test takes milliseconds.
const SOON: Duration = Duration::from_secs(2);

/// The id of the last entry that was delivered.
async fn last_delivered(fixture: &Fixture) -> String {
    let groups = fixture.call(&format!("XINFO GROUPS {STREAM}")).await.into_array();
    let words: Vec<String> =
        groups[0].clone().into_array().iter().filter_map(|word| word.as_string()).collect();
    let at = words.iter().position(|word| word == "last-delivered-id").expect("a field");
    words[at + 1].clone()
}

/// The number of reads and of claims by workers.
async fn reads(fixture: &Fixture) -> [u64; 2] {
    [fixture.calls_of("xreadgroup").await, fixture.calls_of("xautoclaim").await]
}

/// Checks that no entry is in progress, and that workers read none although there are some. It waits until up to two
/// workers have checked twice whether they are paused.
async fn nothing_is_read(fixture: &Fixture) {
    let before = (last_delivered(fixture).await, reads(fixture).await);
    let looks = fixture.calls_of("get").await;
    until("the workers have looked again", || async { fixture.calls_of("get").await >= looks + 4 }).await;
    assert_eq!((last_delivered(fixture).await, reads(fixture).await), before);
    assert!(fixture.open_entries().await.expect("a group") > 0, "there is something to read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_under_load_stops_reading_and_goes_on_where_it_was() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let plan = |name: &str| fixture.worker(name).set("WORKER_LANES", 2).set("WORKER_BATCH", 20);
    // The second worker has a long block, because a pause must not wait until the block of an idle lane is over.
    let (first, second) = (plan("a").start(), plan("b").set("WORKER_BLOCK_MS", 10_000).start());
    let is_paused = AtomicBool::new(false);
    let rush = async {
        let parts = |part: i64| fixture.plain_rush(1_000 + part * 100, 100);
        let mut part = 0;
        while !is_paused.load(Relaxed) {
            parts(part).await;
            part += 1;
        }
        // These come after the pause, so they wait.
        parts(part).await;
    };
    let pausing = async {
        until("there are orders", || async { fixture.orders().await.len() > 300 }).await;
        let done = program(&fixture).run("pause --workers --yes --as alice --json").expect(0).json();
        let begun = Instant::now();
        assert_eq!(done["outcome"], "paused", "{done}");
        until_all(&first, "paused").await;
        until_all(&second, "paused").await;
        assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
        assert_eq!(fixture.pending().await, 0, "what was in progress is settled");
        is_paused.store(true, Relaxed);
        last_delivered(&fixture).await
    };
    let ((), stopped_at) = tokio::join!(rush, pausing);
    let written = fixture.outcomes().await;
    nothing_is_read(&fixture).await;
    assert_eq!(
        (fixture.outcomes().await, last_delivered(&fixture).await),
        (written, stopped_at),
        "kept its place"
    );
    // This is longer than heartbeats last without being renewed.
    let status = program(&fixture).run("status --json").expect(0).json();
    let consumers = status["stream"]["consumers"].as_array().expect("consumers");
    assert!(
        consumers.iter().all(|consumer| consumer["alive"] == true && consumer["pending"] == 0),
        "{status}"
    );

    let resumed = program(&fixture).run("resume --workers --yes --json").expect(0).json();
    assert_eq!(resumed["workers"], "resumed", "{resumed}");
    fixture.settled().await;
    fixture.invariants().await;
    for worker in [&first, &second] {
        let log = worker.log();
        let told = |text: &str| log.matches(text).count();
        assert_eq!(told(" WARN "), 2, "begin and end:\n{log}");
        assert!(
            log.contains("paused: no entries are read until the pause ends")
                && log.contains("by alice since")
        );
        assert!(log.contains("pause over: entries are read again"), "{log}");
    }
    assert!(first.stop().await.success() && second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_another_try_stays_with_its_paused_worker() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.call("SET lock:order:1005 somebody").await;
    let plan =
        |name: &str| fixture.worker(name).set("WORKER_LOCK_LEASE_MS", 500).set("WORKER_CLAIM_IDLE_MS", 1_000);
    let (first, second) = (plan("a").start(), plan("b").start());
    fixture.plain_rush(1_000, 10).await;
    until("all others are written", || async { fixture.orders().await.len() == 9 }).await;
    program(&fixture).run("pause --workers --yes").expect(0);
    until_all(&first, "paused").await;
    until_all(&second, "paused").await;
    fixture.call("DEL lock:order:1005").await;

    let pending = fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 10")).await.into_array();
    let held = |entry: &fred::types::Value| {
        let entry = entry.clone().into_array();
        (entry[0].as_string(), entry[1].as_string(), entry[3].as_u64())
    };
    assert_eq!(pending.len(), 1);
    until("it lay longer than it takes to be claimed", || async {
        fixture.longest_idle_ms().await.expect("it is pending") > 2_500
    })
    .await;
    let still = fixture.call(&format!("XPENDING {STREAM} {GROUP} - + 10")).await.into_array();
    assert_eq!(held(&still[0]), held(&pending[0]), "the same consumer, no further delivery");

    program(&fixture).run("resume --workers --yes").expect(0);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(first.stop().await.success() && second.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_with_an_end_ends_by_itself() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    worker.says("worker started").await;
    let program = program(&fixture);
    let done = program.run("pause --workers --for 3s --yes --json").expect(0).json();
    assert_eq!((&done["outcome"], &done["ends_in_s"]), (&"paused".into(), &3.0.into()), "{done}");
    worker.says("paused: no entries are read").await;
    until_all(&worker, "paused").await;
    fixture.plain_rush(1_000, 10).await;
    let paused = program.run("status --json").expect(0).json()["workers_paused"].clone();
    assert!(paused["ends_in_s"].as_f64().is_some_and(|left_s| left_s <= 3.0), "{paused}");
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.log().contains("pause over: entries are read again"));
    assert_eq!(program.run("status --json").expect(0).json()["workers_paused"], Json::Null);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_restarts_keeps_the_pause_and_its_workers_stay_paused() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").set("REDIS_COMMAND_TIMEOUT_MS", 500).start();
    worker.says("worker started").await;
    program(&fixture).run("pause --workers --yes").expect(0);
    until_all(&worker, "paused").await;
    fixture.redis.kill9().expect("Redis is killed");
    worker.says("cannot read whether the workers are still paused: the workers stay paused").await;
    fixture.redis.restart().expect("Redis is back");
    fixture.plain_rush(1_000, 10).await;
    nothing_is_read(&fixture).await;
    let log = worker.log();
    assert_eq!(
        (log.matches("cannot read whether the workers are still").count(), log.matches("pause over").count()),
        (1, 0)
    );

    program(&fixture).run("resume --workers --yes").expect(0);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_started_while_all_are_paused_reads_nothing_and_stops_at_once() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    // Any value is a pause, so that redis-cli is enough in an emergency.
    fixture.call("SET tidegate:pause maintenance").await;
    fixture.plain_rush(1_000, 20).await;
    let mut worker = fixture.worker("w").start();
    until_all(&worker, "paused").await;
    assert!(
        worker.log().contains("by an operator who set the key manually (maintenance)"),
        "{}",
        worker.log()
    );
    nothing_is_read(&fixture).await;
    assert_eq!(fixture.open_entries().await, Some(20));
    until_page(&worker, "/livez", 200, "alive").await;
    until_page(&worker, "/readyz", 200, "ready").await;
    until_page(&worker, "/metrics", 200, "tidegate_paused{reason=\"fleet\"} 1").await;
    let begun = Instant::now();
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(0));
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());

    let again = fixture.worker("w").log_as("again").start();
    until_all(&again, "paused").await;
    fixture.call("DEL tidegate:pause").await;
    fixture.settled().await;
    fixture.invariants().await;
    assert!(again.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_cannot_look_does_not_start_and_doctor_says_why() {
    let fixture = Fixture::open().await;
    fixture.call("LPUSH tidegate:pause x").await;
    let mut worker = fixture.worker("w").start();
    assert_eq!(worker.ended().await.code(), Some(3));
    assert!(
        worker.log().contains("Failed to read whether the workers are paused (tidegate:pause)"),
        "{}",
        worker.log()
    );
    let doctor = program(&fixture).run("doctor").expect(1);
    assert!(
        doctor.stdout.contains("Failed to read the pause of the workers from the key tidegate:pause"),
        "{doctor:?}"
    );
    program(&fixture).run("status").expect(3);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_paused_the_workers_since_when_and_why_is_shown_everywhere() {
    let fixture = Fixture::open().await;
    fixture.load(PLENTY, 10).await;
    let program = program(&fixture);
    let typed = ["pause", "--workers", "--for", "10m", "--reason", "new disk", "--as", "bob", "--yes"];
    program.run_with(&typed, &[]).expect(0);
    // No worker is alive, and a sale is open.
    let status = program.run("status --json").expect(1).json();
    let paused = &status["workers_paused"];
    assert_eq!((&paused["by"], &paused["reason"]), (&"bob".into(), &"new disk".into()), "{paused}");
    assert!(paused["since"].as_str().is_some_and(|since| since.ends_with('Z')), "{paused}");
    assert!(paused["lasting_s"].as_f64().is_some_and(|lasting_s| lasting_s < 60.0), "{paused}");
    for (line, level) in
        [("status", "The workers are paused for "), ("doctor", "warning  redis  the workers are paused for ")]
    {
        let said = program.run(line);
        assert!(said.stdout.contains(level), "{said:?}");
        for text in ["by bob since 20", "(new disk)", "the pause ends in ", "tidegate resume --workers"] {
            assert!(said.stdout.contains(text), "{text} is missing in {said:?}");
        }
    }

    // The same pause again changes nothing; a pause with another end replaces it.
    let before = fixture.call("GET tidegate:pause").await;
    let replaced = program.run("pause --workers --for 20m --as eve --dry-run").expect(0);
    assert!(
        replaced.stdout.contains("paused by bob since")
            && replaced.stdout.contains("would replace this pause")
    );
    assert_eq!(fixture.call("GET tidegate:pause").await, before);
    program.run("pause --workers --as eve --yes").expect(0);
    let again = program.run("pause --workers --as mallory --json").expect(0).json();
    assert_eq!(
        (&again["outcome"], &again["before"]["by"]),
        (&"paused_before".into(), &"eve".into()),
        "{again}"
    );
    assert_eq!(again["before"]["ends_in_s"], Json::Null);
    for gate in ["pause --voucher 7 --for 10m --yes", "pause --for 10m --yes"] {
        assert!(
            program.run(gate).expect(2).stderr.contains("only a pause of workers ends by itself"),
            "{gate}"
        );
    }
    let left = program.run("resume --yes").expect(1);
    assert!(left.stdout.contains("the workers stay paused, by eve since 2"), "{left:?}");
    assert!(left.stdout.contains("tidegate resume --workers"), "{left:?}");
    program.run("resume --workers --yes").expect(0);
    assert_eq!(
        program.run("resume --workers --json").expect(0).json()["workers"],
        Json::Null,
        "nothing is paused"
    );

    let log = program.run("log --json").expect(0).json();
    let line = |line: &Json| {
        format!(
            "{} {} {}",
            line["who"].as_str().unwrap(),
            line["arguments"].as_str().unwrap(),
            line["outcome"]
        )
    };
    let lines: Vec<String> = log.as_array().unwrap().iter().map(line).collect();
    assert_eq!(lines[0], "bob --workers --for 10m --reason 'new disk' --yes --as bob \"done\"");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_changed_while_somebody_was_asked_is_left_alone() {
    let fixture = Fixture::open().await;
    let program = program(&fixture);
    let mut terminal = Terminal::start(&program.command(&["pause", "--workers"]));
    terminal.shows("Pause all workers? [y/N]");
    fixture.call("SET tidegate:pause others").await;
    terminal.types("y");
    let (code, shown) = terminal.ends();
    assert!(
        code == 1 && shown.contains("another command has paused the workers meanwhile"),
        "{code}: {shown}"
    );

    let mut terminal = Terminal::start(&program.command(&["resume", "--workers"]));
    let shown = terminal.shows("Resume the workers? [y/N]");
    assert!(shown.contains("(others) and would be resumed"), "{shown}");
    fixture.call("SET tidegate:pause again").await;
    terminal.types("y");
    let (code, shown) = terminal.ends();
    assert!(
        code == 1 && shown.contains("another command has changed the pause meanwhile"),
        "{code}: {shown}"
    );
    assert_eq!(fixture.call("GET tidegate:pause").await.as_string().as_deref(), Some("again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_reply_does_not_make_our_own_pause_somebody_elses() {
    let fixture = Fixture::open().await;
    let proxy = Proxy::start(fixture.redis.port()).await.expect("a proxy");
    let (url, mysql_url) = (proxy.url_for(&fixture.redis), fixture.mysql.url());
    let through = Program::with_flags(&["--redis-url", &url, "--mysql-url", &mysql_url]);
    let lost = proxy.drop_next_reply("\r\nSET\r\n");
    let paused = through.run("pause --workers --yes --json").expect(0);
    lost.reached().await.expect("it was lost");
    assert_eq!(paused.json()["outcome"], "paused", "{paused:?}");

    program(&fixture).run("resume --workers --yes").expect(0);
    program(&fixture).run("pause --workers --yes").expect(0);
    let lost = proxy.drop_next_reply("\r\nEVALSHA\r\n");
    let resumed = through.run("resume --workers --yes --json").expect(0);
    lost.reached().await.expect("it was lost");
    assert_eq!(resumed.json()["workers"], "resumed", "{resumed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_whose_other_keys_are_of_another_type_is_stopped_all_the_same() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.call("RPUSH seckill:order:1 x").await;
    fixture.call("RPUSH seckill:journal:1 x").await;
    let program = program(&fixture);
    program.run("pause --voucher 1 --yes").expect(0);
    assert_eq!(fixture.call("HGET seckill:voucher:1 state").await.as_string().as_deref(), Some("paused"));
    program.run("resume --voucher 1 --yes").expect(0);
}
