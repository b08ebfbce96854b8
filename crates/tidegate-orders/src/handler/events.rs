//! The events of a batch: which of them can be recorded now, and what follows once they are.

use std::collections::HashSet;

use tidegate_stream::{Death, Entry, EntryId, Outage, Outcome};

use super::{
    Concerns, OrderHandler, Placed, Results, earlier::waits_for_earlier, set_aside_where, waits_for,
};
use crate::{
    event::{EventKind, EventOutcome, PastEvent},
    gate::{Release, ReleaseReply, UserAfter},
    ledger::{EndedOrders, EventVerdict, Incoming, IncomingEvent, Verdict},
    order::{Order, OrderId, Quantity},
};

/// By so much the clocks of both stores may differ.
const CLOCKS_MS: i64 = 60_000;

impl OrderHandler {
    /// Sets aside whatever has to come after an entry that is not done: events whose orders have older entries elsewhere, and
    /// in the batch itself, orders and events behind those. Answers with the others.
    pub(super) async fn set_later_aside(
        &self,
        batch: &[Entry],
        mut orders: Vec<Placed<Incoming>>,
        mut events: Vec<Placed<IncomingEvent>>,
        outcomes: &mut [Outcome],
    ) -> Result<(Vec<Placed<Incoming>>, Vec<Placed<IncomingEvent>>), Outage> {
        if events.is_empty() {
            return Ok((orders, events));
        }
        let subjects: Vec<(OrderId, EntryId)> =
            events.iter().map(|placed| (placed.incoming.event.order, placed.incoming.entry)).collect();
        let waiting = self.earlier.waiting(batch, &subjects).await?;
        let mut by_place: Vec<(usize, OrderId, Option<EntryId>)> =
            orders.iter().map(|placed| (placed.at, placed.incoming.order.id, None)).collect();
        by_place.extend(
            events.iter().map(|placed| (placed.at, placed.incoming.event.order, Some(placed.incoming.entry))),
        );
        by_place.sort_unstable();
        let later = later(&by_place, &waiting);
        set_aside_where(&mut orders, outcomes, |placed| waits_behind(&later, placed));
        set_aside_where(&mut events, outcomes, |placed| waits_behind(&later, placed));
        Ok((orders, events))
    }

    /// Of a batch's orders that hold nothing any more, those that are to be given back: events of ours have ended them, or
    /// another program has written them before they were admitted, and a complete journal still holds them. Of a row that was
    /// written later, nobody knows whether it was live once, and whether that program gave its units back by its own hand.
    pub(super) async fn ended(
        &self,
        incoming: &[Incoming],
        verdicts: &[Verdict],
    ) -> Result<EndedOrders, Outage> {
        let cancelled = incoming.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Cancelled);
        let cancelled: Vec<&Order> = cancelled.map(|(incoming, _)| &incoming.order).collect();
        let mut ended = self.ledger.ended(&cancelled).await?;
        let by_another = |order: &&&Order| ended.by_another_program.contains_key(&order.id);
        let asked: Vec<_> =
            cancelled.iter().filter(by_another).map(|it| (it.id, it.user, it.voucher)).collect();
        let held = self.gate.held_since(&asked).await.map_err(|error| Outage::new("Redis", error))?;
        for ((order, ..), held_ms) in asked.iter().zip(held) {
            let was_before =
                |(_, written_ms): &(_, i64)| held_ms.is_some_and(|held_ms| written_ms + CLOCKS_MS <= held_ms);
            if !ended.by_another_program.get(order).is_some_and(was_before) {
                ended.by_another_program.remove(order);
            }
        }
        Ok(ended)
    }

    /// Records events, and gives back what Redis holds for orders that have ended with them. Those whose orders wait in this
    /// very batch wait as well.
    pub(super) async fn record_and_give_back(
        &self,
        mut events: Vec<Placed<IncomingEvent>>,
        waiting: &HashSet<OrderId>,
        (outcomes, results): (&mut [Outcome], &mut Results<'_>),
    ) -> Result<(), Outage> {
        set_aside_where(&mut events, outcomes, |placed| {
            let order = placed.incoming.event.order;
            waiting.contains(&order).then(|| waits_for_earlier(order))
        });
        if events.is_empty() {
            return Ok(());
        }
        let (places, incoming): (Vec<usize>, Vec<IncomingEvent>) =
            events.into_iter().map(|placed| (placed.at, placed.incoming)).unzip();
        let of_others = self.placed_by_others(&incoming).await?;
        let verdicts = self.ledger.record_events(&incoming, &of_others).await?;
        let given_back = self.give_ended_back(&incoming, &verdicts).await?;
        for (((at, incoming), verdict), given_back) in
            places.into_iter().zip(&incoming).zip(verdicts).zip(given_back)
        {
            outcomes[at] = given_back.unwrap_or_else(|| {
                if let EventVerdict::Recorded { event, repeats, .. } = &verdict {
                    results.event(at, incoming, (event, repeats.as_deref()));
                }
                self.outcome_of_event(incoming, verdict)
            });
        }
        Ok(())
    }

    /// The entries of cancellations whose order the journal knows as somebody else's than they say: a cancellation that comes
    /// before its order must not take the id of another. Each is asked for itself, whatever else the batch says of its order.
    async fn placed_by_others(&self, events: &[IncomingEvent]) -> Result<HashSet<EntryId>, Outage> {
        let cancellations: Vec<_> =
            events.iter().filter(|incoming| incoming.event.kind == EventKind::Cancelled).collect();
        let said: Vec<_> = cancellations
            .iter()
            .map(|IncomingEvent { event, .. }| (event.order, event.user, event.voucher))
            .collect();
        let are_of_others = self.gate.are_of_others(&said).await;
        let are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?;
        let of_others = cancellations.iter().zip(are_of_others).filter(|(_, is_of_another)| *is_of_another);
        Ok(of_others.map(|(incoming, _)| incoming.entry).collect())
    }

    /// Answers with an outcome for each event whose order could not be given back.
    async fn give_ended_back(
        &self,
        incoming: &[IncomingEvent],
        verdicts: &[EventVerdict],
    ) -> Result<Vec<Option<Outcome>>, Outage> {
        let mut releases = Vec::new();
        for (at, (incoming, verdict)) in incoming.iter().zip(verdicts).enumerate() {
            if let EventVerdict::Recorded { event, user_after, .. } = verdict
                && event.released > 0
            {
                releases.push((at, (release(incoming, event, *user_after), incoming.entry)));
            }
        }
        let (places, releases): (Vec<usize>, Vec<_>) = releases.into_iter().unzip();
        let given_back = self.release_all(&releases).await?;
        let mut outcomes = vec![None; incoming.len()];
        for ((at, (release, entry)), given_back) in places.into_iter().zip(releases).zip(given_back) {
            match given_back {
                Ok(ReleaseReply::GivenBackWithoutStock) if self.limited_log.is_shown("no_stock") => {
                    tracing::warn!(
                        order = %release.order, voucher = %release.voucher, %entry,
                        "the units of an order that has ended went back in MySQL only: no stock is loaded in Redis"
                    )
                }
                Ok(_) => {}
                Err(outcome) => outcomes[at] = Some(outcome),
            }
        }
        Ok(outcomes)
    }

    fn outcome_of_event(&self, incoming: &IncomingEvent, verdict: EventVerdict) -> Outcome {
        match verdict {
            EventVerdict::Recorded { event, .. } => {
                self.order_counters.event(incoming.event.kind, event.outcome);
                self.log_event(incoming, &event);
                Outcome::Done
            }
            EventVerdict::Rejected(error) => Outcome::Dead(Death { reason: "rejected_by_database", error }),
            EventVerdict::Contended(contention) => waits_for(contention),
        }
    }

    /// Money without an order, and what was not done, is for people; of each reason a few in a minute have a line each.
    fn log_event(&self, IncomingEvent { event, entry }: &IncomingEvent, past: &PastEvent) {
        let reference = event.reference.as_ref().map(|reference| reference.as_str());
        match past.outcome {
            EventOutcome::Applied | EventOutcome::Unchanged => {}
            // Nobody is told of a payment that came before.
            EventOutcome::Rejected(_) if event.kind == EventKind::Expired => {}
            EventOutcome::RefundDue if self.limited_log.is_shown(past.outcome.word()) => tracing::warn!(
                order = %event.order, user = %event.user, voucher = %event.voucher, %entry, reference,
                "a payment has to be given back: it pays for no order"
            ),
            EventOutcome::Rejected(rejection) if self.limited_log.is_shown(rejection.word()) => {
                tracing::warn!(
                    order = %event.order, user = %event.user, voucher = %event.voucher, %entry, reference,
                    event = %event.kind, reason = rejection.word(), "event rejected: the order cannot take this step"
                )
            }
            EventOutcome::RefundDue | EventOutcome::Rejected(_) => {}
        }
    }
}

fn waits_behind(later: &HashSet<usize>, placed: &Placed<impl Concerns>) -> Option<Outcome> {
    later.contains(&placed.at).then(|| waits_for_earlier(placed.incoming.order()))
}

/// The places that have to wait: what stands in the batch behind an entry of its order that waits, and
/// orders behind an event of theirs, for within a batch all orders are written first. `by_place` has the entry of events.
fn later(by_place: &[(usize, OrderId, Option<EntryId>)], waiting: &HashSet<EntryId>) -> HashSet<usize> {
    let (mut with_event, mut blocked) = (HashSet::new(), HashSet::new());
    let mut later = HashSet::new();
    for (at, order, event) in by_place {
        let waits = match event {
            Some(entry) => waiting.contains(entry),
            None => with_event.contains(order),
        };
        if waits || blocked.contains(order) {
            blocked.insert(*order);
            later.insert(*at);
        } else if event.is_some() {
            with_event.insert(*order);
        }
    }
    later
}

fn release(incoming: &IncomingEvent, past: &PastEvent, user_after: UserAfter) -> Release {
    let event = &incoming.event;
    let units = Quantity::try_from(past.released).ok();
    let by = format!("worker:{}", event.kind).into();
    Release { order: event.order, user: event.user, voucher: event.voucher, units, user_after, by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_an_entry_that_waits_waits_as_well_and_nothing_else_does() {
        let order = |id: i64| OrderId::try_from(id).unwrap();
        let entry = |ms: u64| Some(EntryId { ms, seq: 0 });
        let batch = [
            (0, order(1), None),
            (1, order(1), entry(1)),
            (2, order(2), entry(2)), // waits
            (3, order(2), entry(3)),
            (4, order(3), entry(4)), // before its order
            (5, order(3), None),
            (6, order(3), entry(6)),
            (7, order(1), entry(7)),
        ];
        let later = later(&batch, &HashSet::from([entry(2).unwrap()]));
        assert_eq!(later, HashSet::from([2, 3, 5, 6]));
    }
}
