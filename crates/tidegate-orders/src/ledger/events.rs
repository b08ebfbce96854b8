//! Records events. Each event moves its order at most one step and gets a row of its own, in one transaction.
//!
//! The orders are looked up without a lock, and the write checks that they are still as they were read. If two workers
//! race, the second finds the rows of the first and decides again. The decisions, and the changes that they need, are
//! in `event_verdict.rs`.

use std::collections::{BTreeSet, HashSet};

use tidegate_stream::{EntryId, Outage};

use super::{
    Ledger, MissingRow,
    event_verdict::{
        EndedOrder, EndedOrders, EventChanges, EventVerdict, IncomingEvent, KnownEvents, OrderEvents,
        Recorded, by_order, decide_orders, in_stream_order,
    },
    fault::Fault,
    session::Session,
    sql::{self, WriteOutcome},
    transactions::BATCH_TIME,
    verdict::{Contention, Freshness},
    work_list::{Item, WorkList},
};
use crate::{
    event::{Event, PastEvent, decide},
    order::{Order, OrderId, OrderIdentity},
};

impl Ledger {
    /// Records events in MySQL. `events` must be in stream order. Returns one decision for each event, in the same
    /// sequence. All events of one order are recorded together. `of_others` holds the entries of events whose user or
    /// voucher differs from the order's note in Redis.
    ///
    /// Events that were recorded before get the same verdict again, so the call can be repeated at any time.
    ///
    /// # Errors
    /// An outage says nothing about any event: each may be recorded or not.
    pub async fn record_events(
        &self,
        events: &[IncomingEvent],
        of_others: &HashSet<EntryId>,
    ) -> Result<Vec<EventVerdict>, Outage> {
        let (orders, places) = by_order(events, of_others);
        let work = WorkList::new(&orders, Recorded::Contended(Contention::Batch));
        let recorded = self.work_off(work, Some(BATCH_TIME), Recorded::Rejected, |ledger, session, part| {
            Box::pin(ledger.decide_and_write_events(session, part))
        });
        Ok(in_stream_order(recorded.await?, &places, events.len()))
    }

    /// Finds which of these orders an event of Tidegate or another program has ended. No worker writes such an order
    /// again, so what Redis holds for it must be released.
    ///
    /// # Errors
    /// Fails if MySQL does not answer.
    pub(crate) async fn ended(&self, orders: &[&Order]) -> Result<EndedOrders, Outage> {
        let mut ended = EndedOrders::default();
        if orders.is_empty() {
            return Ok(ended);
        }
        let subjects: Vec<OrderIdentity> = orders.iter().map(|order| order.subject()).collect();
        let known = self.known_events(&subjects, MissingRow::Decides).await?;
        for (order, user, voucher) in subjects {
            let Some(history) = known.histories.get(&order) else { continue };
            let was_written = !history.events.iter().any(PastEvent::came_before_order);
            let user_after = known.user_after(order, user, voucher);
            if history.events.iter().any(PastEvent::has_ended_order) {
                ended.by_events.insert(order, EndedOrder { user_after, was_written });
            } else if let Some(written_ms) = history.written_by_another_ms {
                ended.by_another_program.insert(order, (user_after, written_ms));
            }
        }
        Ok(ended)
    }

    /// Predicts the outcome of these events, one after the other, and whether each is already recorded. Changes
    /// nothing.
    ///
    /// # Errors
    /// Fails if MySQL does not answer.
    pub(crate) async fn predict_events(
        &self,
        events: &[IncomingEvent],
    ) -> Result<Vec<(PastEvent, bool)>, Outage> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let subjects: Vec<OrderIdentity> = events.iter().map(|incoming| incoming.event.subject()).collect();
        let mut known = self.known_events(&subjects, MissingRow::SaysNothing).await?;
        let predict = |IncomingEvent { event, entry }: &IncomingEvent| {
            let history = known.histories.entry(event.order).or_default();
            let recorded = history.events.len();
            let past = decide(event, *entry, history);
            (past, history.events.len() == recorded)
        };
        Ok(events.iter().map(predict).collect())
    }

    async fn known_events(
        &self,
        subjects: &[OrderIdentity],
        absence: MissingRow,
    ) -> Result<KnownEvents, Outage> {
        let orders: BTreeSet<OrderId> = subjects.iter().map(|(order, ..)| *order).collect();
        let read = Box::pin(async {
            let mut session = Session::open(&self.pool).await?;
            let known = async {
                let known = sql::look_up_events(&mut session, &orders, subjects).await?;
                let lacks_row = subjects.iter().any(|(order, ..)| known.is_unknown(*order));
                if absence == MissingRow::SaysNothing || !lacks_row || !self.has_other_nodes() {
                    return Ok(known);
                }
                self.must_catch_up(&mut session).await?;
                Ok(sql::look_up_events(&mut session, &orders, subjects).await?)
            };
            let known = known.await;
            session.end(known).await
        });
        let known = self.in_time(read).await.map_err(Outage::from);
        known.inspect_err(|_| self.forget_idle_connections())
    }

    async fn decide_and_write_events(
        &self,
        session: &mut Session,
        part: &[&OrderEvents<'_>],
    ) -> Result<Vec<Recorded>, Fault> {
        let orders: BTreeSet<OrderId> = part.iter().map(|order| order.order()).collect();
        let events = part.iter().flat_map(|order| &order.events).map(|incoming| &incoming.event);
        let may_end: Vec<OrderIdentity> =
            events.filter(|event| event.kind.may_end_order()).map(Event::subject).collect();
        let mut known = sql::look_up_events(session, &orders, &may_end).await?;
        let mut freshness = Freshness::Current;
        if self.has_other_nodes() && part.iter().any(|order| known.lacks_row_for(order)) {
            freshness = self.catch_up(session).await?;
            if freshness == Freshness::Current {
                known = sql::look_up_events(session, &orders, &may_end).await?;
            }
        }
        if let (Some(evidence), Freshness::Current) = (&self.evidence, freshness) {
            let perhaps_lost = known.perhaps_lost(part);
            if !perhaps_lost.is_empty() {
                known.lost = Box::pin(evidence.lost(&perhaps_lost)).await?;
            }
        }
        let mut changes = EventChanges::default();
        let recorded = decide_orders(part, &mut known, freshness, &mut changes);
        if changes.is_empty() {
            // Rows that were only read may be visible before they are durable.
            sql::run(session, sql::BARRIER.to_owned()).await?;
            return Ok(recorded);
        }
        match sql::write_events(&changes).run(session, self.commit()).await? {
            WriteOutcome::Committed => Ok(recorded),
            // The next look-up finds what the faster writer has changed.
            WriteOutcome::Mismatch(mismatch) => {
                Err(Fault::Contention(format!("an order changed after its look-up ({mismatch:?})")))
            }
        }
    }
}
