//! Reading ahead: the next batch is read while one is settled.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_lab::Hold;
use tidegate_stream::{Activity, Exclusive, LaneSettings, LaneStatus, Outage};

use crate::fixture::{Fixture, RecordingHandler, Running, eventually, ms, set_aside, settings};

/// A lane that waits for the acknowledgement of its first batch. All entries were in the stream before the lane
/// started.
struct Settling {
    fixture: Fixture,
    handler: Arc<RecordingHandler>,
    lane_status: Arc<LaneStatus>,
    lane: Running,
}

impl Settling {
    async fn start(handler: Arc<RecordingHandler>, settings: LaneSettings) -> (Self, Hold) {
        let fixture = Fixture::start().await;
        fixture.add(30).await;
        let acknowledgement = fixture.commands.hold_when("XACK");
        let lane = fixture.lane("c1", &handler, settings).await;
        let lane_status = lane.lane_status();
        let lane = fixture.run_lane(lane);
        acknowledgement.reached().await.unwrap();
        (Self { fixture, handler, lane_status, lane }, acknowledgement)
    }

    /// Waits until the lane has read the second batch, too.
    async fn with_a_second_batch() -> (Self, Hold) {
        let (scene, acknowledgement) = Self::start(RecordingHandler::done(), settings()).await;
        eventually("the next batch is read", async || scene.fixture.pending().await == 20).await;
        assert_eq!(scene.handler.sizes(), [10], "it is not handled before the first one is settled");
        eventually("the handler knows of it", async || scene.handler.received().len() == 20).await;
        (scene, acknowledgement)
    }

    /// Checks that the lane has ended, and that it handled each of these entries once and read no others.
    async fn ends_after(self, entries: usize) {
        self.lane.ended().await.unwrap();
        assert_eq!(
            (self.handler.ids().len(), self.fixture.counters.counts().done),
            (entries, entries as u64)
        );
        assert_eq!(self.fixture.pending().await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_batch_is_read_while_one_is_settled_and_comes_before_a_stop() {
    let (scene, acknowledgement) = Settling::with_a_second_batch().await;
    scene.lane.stop.cancel();
    acknowledgement.release();
    scene.ends_after(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_ahead_comes_before_a_pause() {
    let (scene, acknowledgement) = Settling::with_a_second_batch().await;
    scene.fixture.pause_switch.pause("a test", "");
    acknowledgement.release();
    let lane_status = Arc::clone(&scene.lane_status);
    eventually("it is paused", async || lane_status.state().activity == Activity::Paused).await;
    scene.lane.stop.cancel();
    scene.ends_after(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_ahead_does_not_wait_for_a_store_that_another_lane_misses() {
    let (scene, acknowledgement) = Settling::with_a_second_batch().await;
    scene.fixture.store_works.send_replace(false);
    scene.fixture.breaker.trip(Outage::new("store", "a test"), scene.fixture.breaker.closings());
    acknowledgement.release();
    let lane_status = Arc::clone(&scene.lane_status);
    let waits = || lane_status.state().activity == Activity::WaitingForStores;
    eventually("it waits with empty hands", async || waits()).await;
    assert_eq!((scene.handler.sizes(), scene.fixture.pending().await), (vec![10, 10], 0));
    scene.lane.stop.cancel();
    scene.ends_after(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_age_of_what_is_in_progress_counts_from_the_read_ahead() {
    let (scene, acknowledgement) = Settling::with_a_second_batch().await;
    let held = ms(300);
    eventually("it is held", async || scene.lane_status.state().lasting > held).await;
    scene.handler.shut_door();
    acknowledgement.release();
    scene.handler.until_seen(20).await;
    let state = scene.lane_status.state();
    assert_eq!((state.activity, state.in_progress), (Activity::Handling, 10));
    assert!(state.turn_lasting > held, "{state:?}");
    scene.lane.stop.cancel();
    scene.handler.open_door();
    scene.ends_after(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_beside_an_acknowledgement_that_fails_is_found_again_and_blamed_on_nobody() {
    let fixture = Fixture::start().await;
    fixture.add(30).await;
    let (handler, mut ids) = (RecordingHandler::done(), BTreeMap::new());
    let _no_more: String = fixture.call("ACL SETUSER default -xack").await;
    fixture.store_works.send_replace(false);
    let lane = fixture.lane("c1", &handler, settings()).await;
    let lane_status = lane.lane_status();
    let lane = fixture.run_lane(lane);
    let waits = || lane_status.state().activity == Activity::WaitingForStores;
    eventually("it waits with empty hands", async || waits()).await;
    let deliveries: Vec<(String, String, u64, u64)> = fixture.call("XPENDING s g1 - + 100").await;
    assert_eq!(deliveries.len(), 20);
    assert!(deliveries.iter().all(|(.., deliveries)| *deliveries == 0), "{deliveries:?}");

    let _again: String = fixture.call("ACL SETUSER default +xack").await;
    fixture.store_works.send_replace(true);
    handler.until_seen(40).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
    handler.ids().into_iter().for_each(|id| *ids.entry(id).or_insert(0) += 1);
    assert_eq!(ids.values().copied().collect::<Vec<_>>(), [[2; 10], [1; 10], [1; 10]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_heavy_batch_and_one_with_trouble_nothing_is_read() {
    let heavy = LaneSettings { batch_bytes: 4_000, ..settings() };
    let troubled = RecordingHandler::new(|entry| {
        if crate::fixture::number(entry) == 1 { set_aside() } else { tidegate_stream::Outcome::Done }
    });
    for (handler, settings, done) in [(RecordingHandler::done(), heavy, 10), (troubled, settings(), 9)] {
        let (scene, acknowledgement) = Settling::start(handler, settings).await;
        scene.lane.stop.cancel();
        acknowledgement.release();
        scene.lane.ended().await.unwrap();
        assert_eq!((scene.handler.sizes(), scene.fixture.counters.counts().done), (vec![10], done));
        assert_eq!(scene.fixture.pending().await as u64, 10 - done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_handled_alone_waits_for_no_batch_that_could_be_read_ahead() {
    let fixture = Fixture::start().await;
    let suspect = fixture.add_suspect("3").await;
    let handler = RecordingHandler::done();
    handler.shut_door();
    let alone = Arc::<Exclusive>::default();
    let busy = fixture.lane("c2", &handler, settings()).await.with_exclusive(Arc::clone(&alone));
    fixture.add(10).await;
    let busy = fixture.run_lane(busy);
    handler.until_seen(10).await;
    let waiting = fixture.lane("c1", &handler, settings()).await.with_exclusive(Arc::clone(&alone));
    let lane_status = waiting.lane_status();
    let waiting = fixture.run_lane(waiting);
    eventually("it waits for the other", async || lane_status.state().activity == Activity::Yielding).await;
    fixture.add(40).await;
    handler.open_door();
    handler.until_seen(51).await;
    assert_eq!(handler.batches()[1].ids, [suspect]);
    waiting.stop().await;
    busy.stop().await;
}
