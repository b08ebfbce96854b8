//! Tests of reading, settling and trying again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tidegate_stream::{LaneSettings, Outcome};

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, number, set_aside, settings};

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_handled_in_stream_order_and_acknowledged() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    let mut ids = fixture.add(25).await;
    ids.extend(fixture.add(25).await);
    handler.until_seen(50).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids(), ids);
    eventually("all are counted", async || fixture.counters.counts().done == 50).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_waits_to_fill_a_batch() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let block = ms(10_000);
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 1000, block, ..settings() }).await;
    fixture.until_blocked(1).await;
    let begun = Instant::now();
    fixture.add(1).await;
    handler.until_seen(1).await;
    fixture.nothing_is_pending().await;
    assert!(begun.elapsed() < block / 4, "took {:?}", begun.elapsed());
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flooded_stream_gives_full_batches() {
    let fixture = Fixture::start().await;
    fixture.add(1000).await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, LaneSettings { batch: 100, ..settings() }).await;
    handler.until_seen(1000).await;
    assert_eq!(handler.sizes(), [100; 10]);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_own_pending_list_comes_first_at_start() {
    let fixture = Fixture::start().await;
    let mut ids = fixture.add_delivered(15, "c1").await;
    ids.extend(fixture.add(15).await);
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(30).await;
    assert_eq!(handler.ids(), ids);
    assert_eq!(handler.sizes(), [10, 5, 10, 5]);
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_entries_of_the_own_pending_list_are_counted_and_acknowledged() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(25, "c1").await;
    for id in ids.iter().step_by(2) {
        fixture.call::<u64>(&format!("XDEL s {id}")).await;
    }
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, settings()).await;
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || fixture.counters.counts().gone == 13).await;
    assert_eq!(handler.ids(), ids.iter().copied().skip(1).step_by(2).collect::<Vec<_>>());
    assert_eq!(fixture.counters.counts().done, 12);
    assert!(fixture.log.count("ERROR pending entries without payload") > 0);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_to_be_tried_again_stays_pending_while_others_go_on() {
    let fixture = Fixture::start().await;
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = Arc::clone(&is_ready);
    let handler = RecordingHandler::new(move |entry| {
        if number(entry) == 3 && !ready.load(Ordering::Relaxed) { set_aside() } else { Outcome::Done }
    });
    let lane = fixture.run("c1", &handler, settings()).await;
    let stubborn = fixture.add(5).await[2];
    for _ in 0..5 {
        fixture.add(20).await;
        eventually("all others are settled", async || fixture.pending().await == 1).await;
    }
    let tries = || handler.ids().iter().filter(|id| **id == stubborn).count();
    eventually("it is tried again and again", async || tries() >= 4).await;
    assert_eq!(fixture.counters.counts().done, 104);

    is_ready.store(true, Ordering::Relaxed);
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || fixture.counters.counts().done == 105).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_slow_down_however_well_others_go() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::new(|entry| if number(entry) == 1 { set_aside() } else { Outcome::Done });
    let lane = fixture.run("c1", &handler, LaneSettings { block: ms(5), ..settings() }).await;
    let stubborn = fixture.add(1).await[0];
    let tries = || -> Vec<Instant> {
        let batches = handler.batches();
        batches.iter().filter(|batch| batch.ids.contains(&stubborn)).map(|batch| batch.at).collect()
    };
    eventually("six tries", async || {
        fixture.add(1).await;
        tries().len() >= 6
    })
    .await;
    // At least half of 20, 40, 80 and 160 ms. The second try follows the first at once, after the first scan.
    let took = tries()[5] - tries()[1];
    assert!(took >= ms(150), "five tries in {took:?}");
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_handler_is_seen_and_loses_nothing() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    let handler = RecordingHandler::new(|_| panic!("a defect of the handler"));
    let lane = fixture.run("c1", &handler, settings()).await;
    assert!(lane.ended().await.unwrap_err().is_panic());
    assert_eq!(fixture.pending().await, 5);
}
