//! Tests of handlers that break their contract.

use std::sync::Arc;

use tidegate_stream::{Entry, Handled, Handler, Outage, Outcome};
use tokio::sync::watch;

use crate::fixture::{Fixture, RecordingHandler, number, settings};

/// A handler that reports all entries done, with this many outcomes too many, or too few if negative.
struct Miscounting(isize);

impl Handler for Miscounting {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        Ok(vec![Outcome::Done; batch.len().saturating_add_signed(self.0)].into())
    }
}

/// A handler that leaves work to do, which ends when the test allows it.
struct Leaving(watch::Sender<(usize, bool)>);

impl Handler for Leaving {
    async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
        self.0.send_modify(|(handled, _)| *handled += batch.len());
        let mut told = self.0.subscribe();
        let rest = Box::pin(async move { _ = told.wait_for(|(_, may_end)| *may_end).await });
        Ok(Handled { outcomes: vec![Outcome::Done; batch.len()], rest: Some(rest) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_handler_leaves_is_done_while_its_batch_is_settled_and_before_the_next_read() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    let handler = Arc::new(Leaving(watch::Sender::new((0, false))));
    let lane = fixture.run("c1", &handler, settings()).await;
    handler.0.subscribe().wait_for(|(handled, _)| *handled == 5).await.unwrap();
    fixture.nothing_is_pending().await;
    fixture.add(5).await;
    fixture.lanes_had_their_turn().await;
    assert_eq!((handler.0.borrow().0, fixture.pending().await), (5, 0));
    handler.0.send_modify(|(_, may_end)| *may_end = true);
    handler.0.subscribe().wait_for(|(handled, _)| *handled == 10).await.unwrap();
    fixture.nothing_is_pending().await;
    lane.stop().await;
}

/// Checks that no entry was acknowledged, buried or counted, and that the next lane of this name handles all of them.
async fn nothing_is_lost(fixture: &Fixture, entries: usize) {
    assert_eq!((fixture.pending().await, fixture.call::<usize>("XLEN s.dead").await), (entries, 0));
    assert_eq!((fixture.counters.counts().done, fixture.counters.counts().buried), (0, 0));
    let next = RecordingHandler::done();
    let lane = fixture.run("c1", &next, settings()).await;
    fixture.nothing_is_pending().await;
    assert_eq!(next.ids().len(), entries);
    lane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_a_handler_ends_its_lane_and_acknowledges_nothing() {
    let fixture = Fixture::start().await;
    fixture.add(5).await;
    let handler = RecordingHandler::new(|entry| match number(entry) {
        3 => panic!("this is on purpose"),
        _ => Outcome::Done,
    });
    let ended = fixture.run("c1", &handler, settings()).await.ended().await;
    assert!(ended.unwrap_err().is_panic());
    nothing_is_lost(&fixture, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_handler_always_panics_is_buried_at_crash_five_and_its_neighbours_are_done() {
    let fixture = Fixture::start().await;
    let ids = fixture.add(5).await;
    let handler = RecordingHandler::new(|entry| match number(entry) {
        3 => panic!("this is on purpose"),
        _ => Outcome::Done,
    });
    for _ in 0..5 {
        let ended = fixture.run("c1", &handler, settings()).await.ended().await;
        assert!(ended.unwrap_err().is_panic());
    }
    let lane = fixture.run("c1", &handler, settings()).await;
    fixture.nothing_is_pending().await;
    lane.stop().await;
    assert_eq!(fixture.counters.buried_by_reason()["killed_worker"], 1);
    assert_eq!(fixture.counters.counts().done, 4);
    assert_eq!(handler.ids().iter().filter(|id| **id == ids[2]).count(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_wrong_number_of_outcomes_nothing_is_acknowledged() {
    for wrong in [-1, 1] {
        let fixture = Fixture::start().await;
        fixture.add(5).await;
        let ended = fixture.run("c1", &Arc::new(Miscounting(wrong)), settings()).await.ended().await;
        let panic = ended.unwrap_err().into_panic();
        let message = panic.downcast_ref::<String>().expect("a text");
        assert!(message.contains("one outcome for each entry"), "{message}");
        nothing_is_lost(&fixture, 5).await;
    }
}
