//! Tests of the stop signal.

use tidegate_stream::LaneSettings;

use crate::fixture::{Fixture, RecordingHandler, eventually, ms, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_blocked_read_at_once() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let patient = LaneSettings { block: ms(20_000), ..settings() };
    let lane = fixture.run("c1", &handler, patient.clone()).await;
    let other = fixture.run("c2", &handler, patient).await;
    fixture.until_blocked(2).await;
    let took = lane.stop().await;
    assert!(took < ms(1000), "took {took:?}");
    assert!(other.is_running());
    fixture.until_blocked(1).await;
    fixture.add(1).await;
    handler.until_seen(1).await;
    other.stop().await;
    assert_eq!(fixture.log.count("outage"), 0);
    assert_eq!(fixture.log.count("consumer group"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_a_read_that_is_still_on_its_way() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let hold = fixture.reads.hold_when("BLOCK");
    let lane = fixture.run("c1", &handler, LaneSettings { block: ms(20_000), ..settings() }).await;
    hold.reached().await.unwrap();
    lane.stop.cancel();
    eventually("the unblocking came before the read", async || fixture.calls_of("client|unblock").await > 0)
        .await;
    hold.release();
    assert!(lane.stop().await < ms(1000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_moment_is_obeyed_soon() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    for turn in 0..30 {
        let lane = fixture.run("c1", &handler, LaneSettings { block: ms(20_000), ..settings() }).await;
        for _ in 0..turn * 20 {
            tokio::task::yield_now().await;
        }
        let took = lane.stop().await;
        assert!(took < ms(1000), "turn {turn} took {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_the_batch_in_progress_be_settled_and_begins_no_other() {
    let fixture = Fixture::start().await;
    let ids = fixture.add_delivered(20, "c1").await;
    fixture.add(10).await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(10).await;
    lane.stop.cancel();
    assert!(lane.is_running());
    assert_eq!(fixture.pending().await, 20);
    handler.open_door();
    lane.ended().await.unwrap();
    assert_eq!(handler.ids(), ids[..10]);
    assert_eq!(fixture.pending().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_obeyed_while_redis_does_not_answer() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.run("c1", &handler, LaneSettings { block: ms(20_000), ..settings() }).await;
    fixture.until_blocked(1).await;
    fixture.redis.stop().unwrap();
    let took = lane.stop().await;
    assert!(took < ms(4000), "took {took:?}");
    fixture.redis.cont().unwrap();

    let ids = fixture.add(3).await;
    let next = fixture.run("c1", &handler, settings()).await;
    handler.until_seen(3).await;
    assert_eq!(handler.ids(), ids);
    next.stop().await;
}
