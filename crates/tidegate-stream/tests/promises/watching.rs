//! Tests of the state that a lane shows while it works.

use std::sync::{Arc, Mutex};

use tidegate_stream::{
    Activity, EntryId, LaneSettings, Observer, Origin, Outcome, ProcessedBatch, Stage, Undelivered,
    has_group, inspect,
};

use crate::fixture::{Fixture, RecordingHandler, dead, eventually, ms, number, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_shows_what_it_does_and_with_how_many_entries() {
    let fixture = Fixture::start().await;
    let handler = RecordingHandler::done();
    let lane = fixture.lane("c1", &handler, LaneSettings { block: ms(10_000), ..settings() }).await;
    let lane_status = lane.lane_status();
    let is =
        async |activity| eventually("its activity", async || lane_status.state().activity == activity).await;
    assert_eq!(lane_status.state().activity, Activity::Starting);

    let lane = fixture.run_lane(lane);
    fixture.until_blocked(1).await;
    is(Activity::Reading).await;
    handler.shut_door();
    fixture.add(7).await;
    handler.until_seen(7).await;
    let state = lane_status.state();
    assert_eq!((state.consumer.as_str(), state.activity, state.in_progress), ("c1", Activity::Handling, 7));

    // The lane has handled its batch and is blocked again. The state must not stay as it was.
    handler.open_door();
    is(Activity::Reading).await;
    assert_eq!(lane_status.state().in_progress, 0);
    assert!(lane_status.state().turns > state.turns);

    handler.set_store(false);
    fixture.store_works.send_replace(false);
    fixture.add(1).await;
    is(Activity::WaitingForStores).await;
    let probes = *fixture.probes.borrow();
    eventually("it probes", async || *fixture.probes.borrow() > probes + 2).await;
    assert!(fixture.breaker.silent_for().expect("it is open") < ms(5_000));
    assert_eq!(fixture.breaker.outages().into_iter().collect::<Vec<_>>(), [("store", 1)]);
    fixture.store_works.send_replace(true);
    handler.set_store(true);
    is(Activity::Reading).await;
    assert_eq!(fixture.breaker.silent_for(), None);
    lane.stop().await;
    assert_eq!(lane_status.state().activity, Activity::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_counted_is_what_happened() {
    let fixture = Fixture::start().await;
    let handler =
        RecordingHandler::new(
            |entry| if number(entry).is_multiple_of(3) { dead("third") } else { Outcome::Done },
        );
    fixture.add(30).await;
    let lane = fixture.run("c1", &handler, settings()).await;
    fixture.nothing_is_pending().await;
    eventually("all are counted", async || fixture.counters.counts().done == 20).await;
    lane.stop().await;
    assert_eq!(fixture.counters.buried_by_reason().into_iter().collect::<Vec<_>>(), [("no_good", 10)]);
    let (sizes, reads) = (fixture.counters.sizes().spread(), fixture.counters.reads().spread());
    assert_eq!((sizes.count, sizes.sum, reads.count), (3, 30, 3));
    assert_eq!(fixture.counters.settlings().spread().count, 3);
    let status = inspect(&fixture.pool, &fixture.names).await.unwrap();
    assert_eq!((status.length, status.entries_added), (30, Some(30)));
    assert_eq!(status.group.unwrap().settled, Some(30), "buried ones, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_the_group_is_there_is_seen() {
    let fixture = Fixture::start().await;
    assert!(has_group(&fixture.pool, &fixture.names).await.unwrap());
    let _: i64 = fixture.call("XGROUP DESTROY s g1").await;
    assert!(!has_group(&fixture.pool, &fixture.names).await.unwrap());
    let _: i64 = fixture.call("DEL s").await;
    assert!(!has_group(&fixture.pool, &fixture.names).await.unwrap());
    let _: String = fixture.call("SET s text").await;
    has_group(&fixture.pool, &fixture.names).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_entries_that_the_server_cannot_count_are_counted_up_to_ten_thousand() {
    let fixture = Fixture::start().await;
    let undelivered =
        async || inspect(&fixture.pool, &fixture.names).await.unwrap().group.unwrap().undelivered;
    fixture.add_delivered(1, "c").await;
    let ids = fixture.add(10_000).await;
    assert_eq!(undelivered().await, Undelivered::Exactly(10_000), "the server tells");

    // After a gap ahead of the group, the server no longer knows the number.
    let _deleted: i64 = fixture.call(&format!("XDEL s {}", ids[5_000])).await;
    assert_eq!(undelivered().await, Undelivered::Exactly(9_999));
    fixture.add(2).await;
    assert_eq!(undelivered().await, Undelivered::AtLeast(10_000));
}

/// An observer that remembers its batches.
#[derive(Debug, Default)]
struct Onlooker(Mutex<Vec<Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    origin: Origin,
    ids: Vec<EntryId>,
    handling: Stage,
    outcomes: Option<Vec<Outcome>>,
    settled: bool,
    unburied: usize,
}

impl Observer for Onlooker {
    fn batch_processed(&self, batch: &ProcessedBatch<'_>) {
        assert_eq!(batch.consumer, "c1");
        let settling = batch.settling;
        let ended = settling.map_or(batch.came, |settling| settling.stage.began);
        self.0.lock().unwrap().push(Seen {
            origin: batch.origin,
            ids: batch.entries.iter().map(|entry| entry.id).collect(),
            handling: Stage { began: batch.came, ended },
            outcomes: batch.outcomes.ok().map(<[Outcome]>::to_vec),
            settled: settling.is_some_and(|settling| settling.outage.is_none()),
            unburied: settling.map_or(0, |settling| settling.unburied.len()),
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_on_is_told_of_every_batch_and_of_what_became_of_each_entry() {
    let fixture = Fixture::start().await;
    // A letter cannot be buried while its stream is of another type.
    let _set: String = fixture.call("SET s.dead text").await;
    let old = fixture.add_delivered(2, "c1").await;
    let handler =
        RecordingHandler::new(|entry| if number(entry) == 3 { dead("third") } else { Outcome::Done });
    let onlooker = Arc::new(Onlooker::default());
    let lane = fixture.lane("c1", &handler, settings()).await.observed_by(onlooker.clone());
    handler.set_store(false);
    let lane = fixture.run_lane(lane);
    let seen = || onlooker.0.lock().unwrap().clone();
    eventually("an outage is seen", async || !seen().is_empty()).await;
    handler.set_store(true);
    let new = fixture.add(1).await;
    eventually("a letter is refused", async || seen().iter().any(|seen| seen.unburied == 1)).await;
    let _gone: i64 = fixture.call("DEL s.dead").await;
    fixture.nothing_is_pending().await;
    lane.stop().await;

    let seen = seen();
    assert_eq!((&seen[0].ids, seen[0].origin), (&old, Origin::Pending));
    assert!(seen[0].outcomes.is_none() && !seen[0].settled, "{seen:#?}");
    let again = seen.iter().find(|seen| seen.ids == old && seen.settled).expect("they come again");
    assert_eq!((again.origin, &again.outcomes), (Origin::Pending, &Some(vec![Outcome::Done; 2])));
    assert!(again.handling.time() < ms(30_000));
    let third: Vec<_> = seen.iter().filter(|seen| seen.ids == new).collect();
    assert_eq!((third[0].origin, third[0].unburied), (Origin::New, 1));
    let last = third.last().expect("it was buried");
    assert_eq!((last.origin, last.unburied, last.settled), (Origin::Pending, 0, true));
    assert_eq!(last.outcomes, Some(vec![dead("third")]));
}
