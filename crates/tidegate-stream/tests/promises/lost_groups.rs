//! Tests of a group, a stream or a whole data set that is gone.

use fred::types::Value;
use tidegate_stream::{LaneSettings, Outcome};

use crate::fixture::{Fixture, RecordingHandler, dead, eventually, ms, number, settings};

/// Runs `harm` while readers are blocked. The lanes must log the loss and what they `found` then, and handle new
/// entries.
async fn survives(harm: &str, found: &str) {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    // A reader that was not woken would sleep for longer than the test.
    let patient = LaneSettings { block: ms(60_000), ..settings() };
    let lanes =
        [fixture.run("c1", &handler, patient.clone()).await, fixture.run("c2", &handler, patient).await];
    fixture.add(5).await;
    fixture.nothing_is_pending().await;
    fixture.until_blocked(2).await;
    let _done: Value = fixture.call(harm).await;
    eventually("it is told", async || fixture.log.count(found) == 1).await;
    let ids = fixture.add(25).await;
    eventually("all are handled", async || {
        let seen = handler.ids();
        ids.iter().all(|id| seen.contains(id))
    })
    .await;
    fixture.nothing_is_pending().await;
    assert_eq!(fixture.log.count("ERROR the consumer group was gone"), 1);
    for lane in lanes {
        lane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_group_is_made_again_from_the_first_entry() {
    survives("XGROUP DESTROY s g1", "the stream exists (entries: 5, the oldest is ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_stream_is_made_again() {
    survives("DEL s", "the stream was also gone and is empty now").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flushed_redis_is_set_up_again() {
    survives("FLUSHALL", "the stream was also gone and is empty now").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_of_scripts_is_harmless() {
    let fixture = Fixture::start().await;
    let handler =
        RecordingHandler::new(
            |entry| if number(entry).is_multiple_of(2) { dead("even") } else { Outcome::Done },
        );
    let lane = fixture.run("c1", &handler, settings()).await;
    for round in 1..=5 {
        let _ok: Value = fixture.call("SCRIPT FLUSH").await;
        fixture.add(10).await;
        eventually("half are buried", async || fixture.call::<usize>("XLEN s.dead").await == round * 5).await;
    }
    fixture.nothing_is_pending().await;
    assert_eq!(fixture.log.count("outage"), 0);
    assert_eq!(fixture.counters.counts().buried, 25);
    lane.stop().await;
}
