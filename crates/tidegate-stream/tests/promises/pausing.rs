//! Tests of the pause switch, with which an operator stops all reads for a while.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tidegate_stream::{Activity, LaneSettings, Outcome};

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, number, set_aside, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_ends_a_blocked_read_at_once_and_nothing_is_read_until_it_is_over() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.lane("c1", &handler, LaneSettings { block: ms(20_000), ..settings() }).await;
    let lane_status = lane.lane_status();
    let lane = fixture.run_lane(lane);
    fixture.until_blocked(1).await;
    let begun = std::time::Instant::now();
    fixture.pause_switch.pause("a test", "to see what happens");
    eventually("it is paused", async || lane_status.state().activity == Activity::Paused).await;
    assert!(begun.elapsed() < ms(2000), "took {:?}", begun.elapsed());

    fixture.pause_switch.pause("another", "");
    fixture.add(30).await;
    let reads = fixture.calls_of("xreadgroup").await;
    fixture.pause_switch.resume("a test");
    fixture.lanes_had_their_turn().await;
    assert_eq!(
        (fixture.calls_of("xreadgroup").await, fixture.pending().await),
        (reads, 0),
        "another one still holds"
    );
    assert!(handler.batches().is_empty());

    fixture.pause_switch.resume("another");
    handler.until_seen(30).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
    assert_eq!(fixture.log.count("outage"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_lane_settles_what_is_in_progress_keeps_what_waits_and_claims_nothing() {
    let fixture = Fixture::start().await;
    let is_ready = Arc::new(AtomicBool::new(false));
    let ready = Arc::clone(&is_ready);
    let handler = RecordingHandler::new(move |entry| {
        if number(entry) == 3 && !ready.load(Ordering::Relaxed) { set_aside() } else { Outcome::Done }
    });
    let claiming = LaneSettings { claim_idle: ms(3_600), claim_every: ms(20), ..settings() };
    let lane = fixture.lane("c1", &handler, claiming).await;
    let lane_status = lane.lane_status();
    handler.shut_door();
    fixture.add(5).await;
    let lane = fixture.run_lane(lane);
    handler.until_seen(5).await;
    fixture.pause_switch.pause("a test", "");
    fixture.add_delivered(10, "dead").await;
    fixture.age("dead").await;
    handler.open_door();
    eventually("it is paused", async || lane_status.state().activity == Activity::Paused).await;
    assert_eq!(
        (fixture.pending().await, fixture.counters.counts().done),
        (11, 4),
        "all but what waits is settled"
    );

    let (seen, claims) = (handler.ids().len(), fixture.calls_of("xautoclaim").await);
    let idle_ms = fixture.idle_ms("dead").await;
    eventually("ten times as long as between claims", async || fixture.idle_ms("dead").await > idle_ms + 200)
        .await;
    assert_eq!((handler.ids().len(), fixture.calls_of("xautoclaim").await), (seen, claims));
    is_ready.store(true, Ordering::Relaxed);
    fixture.pause_switch.resume("a test");
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || fixture.counters.counts().done == 15).await;
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_lane_obeys_a_stop_at_once() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    fixture.pause_switch.pause("a test", "");
    let handler = RecordingHandler::done();
    let lane = fixture.lane("c1", &handler, settings()).await;
    let lane_status = lane.lane_status();
    let lane = fixture.run_lane(lane);
    eventually("it is paused", async || lane_status.state().activity == Activity::Paused).await;
    assert!(lane.stop().await < ms(1000));
    assert!(handler.batches().is_empty(), "paused from the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn pauses_at_any_moment_lose_nothing() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.lane("c1", &handler, LaneSettings { block: ms(20_000), ..settings() }).await;
    let lane_status = lane.lane_status();
    let lane = fixture.run_lane(lane);
    for turn in 0..30 {
        fixture.add(7).await;
        for _ in 0..turn * 20 {
            tokio::task::yield_now().await;
        }
        fixture.pause_switch.pause("a test", "");
        eventually("it is paused", async || lane_status.state().activity == Activity::Paused).await;
        assert_eq!(fixture.pending().await, 0, "what is in progress was settled");
        fixture.pause_switch.resume("a test");
    }
    handler.until_seen(210).await;
    fixture.nothing_is_pending().await;
    assert_eq!(handler.ids().len(), 210, "each once");
    lane.stop().await;
}
