//! Tests of pausing one process by signals, while others work.

use std::{cell::Cell, time::Instant};

use nix::sys::signal::Signal;

use super::{SOON, nothing_is_read, program};
use crate::{
    browser::{until_all, until_page},
    fixture::{Fixture, GROUP, STREAM, until},
};

#[tokio::test(flavor = "multi_thread")]
async fn sigtstp_takes_nothing_new_sigcont_goes_on_and_the_process_lives_all_the_while() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let first = fixture.worker("a").set("WORKER_LANES", 2).set("WORKER_BLOCK_MS", 10_000).start();
    first.says("worker started").await;
    fixture.plain_rush(1_000, 50).await;
    fixture.settled().await;

    let begun = Instant::now();
    first.signal(Signal::SIGTSTP);
    until_all(&first, "paused").await;
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    fixture.plain_rush(2_000, 50).await;
    nothing_is_read(&fixture).await;
    assert_eq!(fixture.open_entries().await, Some(50));
    let lowest = Cell::new(i64::MAX);
    until("its heartbeat is renewed", || async {
        let left_ms = fixture.call("PTTL tidegate:worker:a").await.as_i64().expect("a number");
        assert!(left_ms > 0, "its heartbeat has ended");
        left_ms > lowest.replace(left_ms.min(lowest.get()))
    })
    .await;
    until_page(&first, "/metrics", 200, "tidegate_paused{reason=\"signal\"} 1").await;
    first.signal(Signal::SIGTSTP);

    let second = fixture.worker("b").start();
    fixture.settled().await;
    assert_eq!(fixture.orders().await.len(), 100, "others go on");
    assert!(second.stop().await.success());

    first.signal(Signal::SIGCONT);
    first.says("pause over: entries are read again").await;
    fixture.plain_rush(3_000, 50).await;
    fixture.settled().await;
    fixture.invariants().await;
    assert_eq!(first.log().matches("paused: no entries are read").count(), 1, "{}", first.log());
    assert!(first.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_goes_on_when_neither_the_fleet_nor_the_process_is_paused() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    let worker = fixture.worker("w").start();
    worker.says("worker started").await;
    worker.signal(Signal::SIGTSTP);
    worker.says("paused: no entries are read").await;
    program(&fixture).run("pause --workers --yes").expect(0);
    until_page(&worker, "/metrics", 200, "tidegate_paused{reason=\"fleet\"} 1").await;
    worker.signal(Signal::SIGCONT);
    worker.says("pause over, but another pause continues").await;
    fixture.plain_rush(1_000, 10).await;
    nothing_is_read(&fixture).await;

    worker.signal(Signal::SIGTSTP);
    until_page(&worker, "/metrics", 200, "tidegate_paused{reason=\"signal\"} 1").await;
    program(&fixture).run("resume --workers --yes").expect(0);
    until_page(&worker, "/metrics", 200, "tidegate_paused{reason=\"fleet\"} 0").await;
    nothing_is_read(&fixture).await;
    worker.signal(Signal::SIGCONT);
    fixture.settled().await;
    fixture.invariants().await;
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigusr1_writes_the_state_of_every_lane_and_why_they_do_not_read() {
    let fixture = Fixture::open().await;
    let worker = fixture.worker("w").set("WORKER_LANES", 3).set("LOG_LEVEL", "info").start();
    worker.says("worker started").await;
    worker.signal(Signal::SIGTSTP);
    until_all(&worker, "paused").await;
    worker.signal(Signal::SIGUSR1);
    worker.says("the worker is paused reason=\"signal\"").await;
    for lane in 0..3 {
        worker.says(&format!("state of a lane consumer=\"w-{lane}\" activity=\"paused\"")).await;
    }
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_a_paused_worker_at_once_and_one_that_still_waits_for_redis_can_be_paused() {
    let fixture = Fixture::open().await;
    fixture.open_sale().await;
    fixture.redis.stop().expect("Redis is stopped");
    let mut worker = fixture.worker("w").set("REDIS_COMMAND_TIMEOUT_MS", 500).start();
    worker.says("Waiting for Redis").await;
    worker.signal(Signal::SIGTSTP);
    worker.says("paused: no entries are read").await;
    fixture.redis.cont().expect("Redis goes on");
    worker.says("worker started").await;
    fixture.plain_rush(1_000, 10).await;
    until_all(&worker, "paused").await;
    until("the group is there", || async { fixture.open_entries().await == Some(10) }).await;
    assert_eq!(fixture.call(&format!("XPENDING {STREAM} {GROUP}")).await.into_array()[0].as_u64(), Some(0));
    let begun = Instant::now();
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ended().await.code(), Some(0));
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
    let next = fixture.worker("w").log_as("next").start();
    fixture.settled().await;
    fixture.invariants().await;
    assert!(next.stop().await.success());
}
