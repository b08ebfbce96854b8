//! The events of a batch: which of them can be recorded now, and what follows once they are recorded.

use std::{
    collections::{BTreeMap, HashSet},
    mem,
};

use tidegate_stream::{DeadLetterReason, EntryId, Outage, Outcome};

use super::{OrderHandler, Owed, batch::Batch, older_entries::waits_for_older_entries, waits_for};
use crate::{
    event::{EventKind, EventOutcome, PastEvent},
    ledger::{EndedOrders, EventVerdict, Incoming, IncomingEvent, Verdict},
    order::{Order, OrderId, OrderIdentity, Quantity},
    scripts::{Release, ReleaseReply, UserAfter},
};

/// The largest difference between the clocks of the two stores, in milliseconds.
const CLOCKS_MS: i64 = 60_000;

impl OrderHandler {
    /// Sets aside the items that must come after an entry that is not settled. These are events whose orders have older
    /// entries elsewhere; and, in the batch itself, orders and events behind those.
    pub(super) async fn set_later_aside(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        if batch.events.is_empty() {
            return Ok(());
        }
        let of_events: Vec<(OrderId, EntryId)> =
            batch.events.items.iter().map(|incoming| (incoming.event.order, incoming.entry)).collect();
        let waiting = self.older_entries.waiting(batch.entries, &of_events).await?;
        let orders = batch.orders.iter().map(|(at, incoming)| (at, incoming.order.id, None));
        let events =
            batch.events.iter().map(|(at, incoming)| (at, incoming.event.order, Some(incoming.entry)));
        let mut by_place: Vec<(usize, OrderId, Option<EntryId>)> = orders.chain(events).collect();
        by_place.sort_unstable();
        let later = later(&by_place, &waiting);
        let waits =
            |at, (order, ..): OrderIdentity| later.contains(&at).then(|| waits_for_older_entries(order));
        // An event that comes before its order in the batch does not wait for it.
        batch.orders.set_aside_where(&mut batch.outcomes, waits);
        batch.events.set_aside_where(&mut batch.outcomes, waits);
        Ok(())
    }

    /// Finds the orders of a batch that hold nothing any more and must be released. Either an event ended such an
    /// order, or another program wrote it before it was admitted and a complete journal still holds it. If the row was
    /// written later, Tidegate cannot know whether the order was live once, and whether that program released its
    /// units.
    pub(super) async fn ended(
        &self,
        incoming: &[Incoming],
        verdicts: &[Verdict],
    ) -> Result<EndedOrders, Outage> {
        let cancelled = incoming.iter().zip(verdicts).filter(|(_, verdict)| **verdict == Verdict::Cancelled);
        let cancelled: Vec<&Order> = cancelled.map(|(incoming, _)| &incoming.order).collect();
        let mut ended = self.ledger.ended(&cancelled).await?;
        let by_another = |order: &&&Order| ended.by_another_program.contains_key(&order.id);
        let asked: Vec<_> = cancelled.iter().filter(by_another).map(|order| order.subject()).collect();
        let held =
            self.redis.journals().held_since(&asked).await.map_err(|error| Outage::new("Redis", error))?;
        for ((order, ..), held_ms) in asked.iter().zip(held) {
            let was_before =
                |(_, written_ms): &(_, i64)| held_ms.is_some_and(|held_ms| written_ms + CLOCKS_MS <= held_ms);
            if !ended.by_another_program.get(order).is_some_and(was_before) {
                ended.by_another_program.remove(order);
            }
        }
        Ok(ended)
    }

    /// Records the events of a batch. An event whose order waits in this batch waits as well.
    pub(super) async fn record_events(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        batch.set_events_of_waiting_aside(waits_for_older_entries);
        if batch.events.is_empty() {
            return Ok(());
        }
        let of_others = self.placed_by_others(&batch.events.items).await?;
        batch.event_verdicts = self.ledger.record_events(&batch.events.items, &of_others).await?;
        Ok(())
    }

    /// The entries of cancellations that name another user than the journal does for their order. A cancellation that
    /// comes before its order must not take the id of another user's order. Each cancellation is checked on its own,
    /// whatever other entries of the batch say about its order.
    async fn placed_by_others(&self, events: &[IncomingEvent]) -> Result<HashSet<EntryId>, Outage> {
        let cancellations: Vec<_> =
            events.iter().filter(|incoming| incoming.event.kind == EventKind::Cancelled).collect();
        let said: Vec<_> = cancellations.iter().map(|incoming| incoming.event.subject()).collect();
        let are_of_others = self.redis.journals().are_of_others(&said).await;
        let are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?;
        let of_others = cancellations.iter().zip(are_of_others).filter(|(_, is_of_another)| *is_of_another);
        Ok(of_others.map(|(incoming, _)| incoming.entry).collect())
    }

    /// Releases what Redis holds for orders that have ended with the events of a batch.
    pub(super) async fn give_ended_back(&self, batch: &mut Batch<'_>) -> Result<(), Outage> {
        let verdicts = mem::take(&mut batch.event_verdicts);
        let owed: Vec<Owed> = batch
            .events
            .items
            .iter()
            .zip(&verdicts)
            .enumerate()
            .filter_map(|(nth, (incoming, verdict))| match verdict {
                EventVerdict::Recorded { event, user_after, .. } if event.released > 0 => {
                    Some(Owed { nth, entry: incoming.entry, release: release(incoming, event, *user_after) })
                }
                _ => None,
            })
            .collect();
        let mut withheld = BTreeMap::new();
        for (Owed { nth, entry, release }, released) in owed.iter().zip(self.release_all(&owed).await?) {
            match released {
                Ok(ReleaseReply::ReleasedWithoutStock) if self.limited_log.is_shown("no_stock") => {
                    tracing::warn!(
                        order = %release.order, voucher = %release.voucher, %entry,
                        "the units of an ended order returned to the stock in MySQL only: Redis holds no stock of the voucher"
                    )
                }
                Ok(_) => {}
                Err(outcome) => drop(withheld.insert(*nth, outcome)),
            }
        }
        for (nth, verdict) in verdicts.into_iter().enumerate() {
            let outcome = withheld.remove(&nth).unwrap_or_else(|| {
                let incoming = &batch.events.items[nth];
                if let EventVerdict::Recorded { event, published, .. } = &verdict {
                    batch.results.event(batch.events.places[nth], incoming, event, published.as_deref());
                }
                self.outcome_of_event(incoming, verdict)
            });
            batch.outcomes[batch.events.places[nth]] = outcome;
        }
        Ok(())
    }

    fn outcome_of_event(&self, incoming: &IncomingEvent, verdict: EventVerdict) -> Outcome {
        match verdict {
            EventVerdict::Recorded { event, .. } => {
                self.order_counters.event(incoming.event.kind, event.outcome);
                self.log_event(incoming, &event);
                Outcome::Done
            }
            EventVerdict::Rejected(error) => {
                Outcome::Dead(DeadLetterReason { reason: "rejected_by_database", error })
            }
            EventVerdict::Contended(contention) => waits_for(contention),
        }
    }

    /// Logs payments without an order and rejected events, because people must handle them. For each reason, a few in a
    /// minute get a line each.
    fn log_event(&self, IncomingEvent { event, entry }: &IncomingEvent, past: &PastEvent) {
        let reference = event.reference.as_ref().map(|reference| reference.as_str());
        match past.outcome {
            EventOutcome::Applied | EventOutcome::Unchanged => {}
            // The payment came before the expiry: there is nothing to log.
            EventOutcome::Rejected(_) if event.kind == EventKind::Expired => {}
            EventOutcome::RefundDue if self.limited_log.is_shown(past.outcome.word()) => tracing::warn!(
                order = %event.order, user = %event.user, voucher = %event.voucher, %entry, reference,
                "a payment has to be refunded: no order needs this payment"
            ),
            EventOutcome::Rejected(rejection) if self.limited_log.is_shown(rejection.word()) => {
                tracing::warn!(
                    order = %event.order, user = %event.user, voucher = %event.voucher, %entry, reference,
                    event = %event.kind, reason = rejection.word(), "event rejected: the order does not allow this event, see `reason`"
                )
            }
            EventOutcome::RefundDue | EventOutcome::Rejected(_) => {}
        }
    }
}

/// The places that must wait: entries behind a waiting entry of the same order, and orders behind one of their events.
/// These orders wait because the handler writes all orders of a batch first. `by_place` has the entry of events.
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
