//! The results of a batch: what its orders and events have become, published once that is durable.

use std::{borrow::Cow, collections::HashSet};

use tidegate_stream::{Entry, EntryId, Outcome};

use crate::{
    event::{EventKind, EventOutcome, PastEvent},
    ledger::{EndedOrder, Incoming, IncomingEvent, Verdict},
    publisher::{now_ms, of_buried},
    results::{NOT_MOVED, OrderResult, PLACED, Published, ResultState},
    wire::FieldNames,
};

/// The selection of the entries in a batch whose results the handler publishes.
#[derive(Clone, Copy, Debug)]
pub enum PublishedEntries<'a> {
    /// The results of all entries are published.
    All,
    /// The results of these entries only. The other entries were acknowledged before, with their results, or another
    /// worker has them.
    Only(&'a HashSet<EntryId>),
}

/// Collects the results of a batch.
pub(super) struct Results<'a> {
    batch: &'a [Entry],
    names: &'a FieldNames,
    published: Published,
    entries: PublishedEntries<'a>,
    at_ms: u64,
    list: Vec<OrderResult>,
}

impl<'a> Results<'a> {
    /// Collects the results of `batch` that `published` includes, of these `entries`.
    pub(super) fn new(
        batch: &'a [Entry],
        names: &'a FieldNames,
        published: Published,
        entries: PublishedEntries<'a>,
    ) -> Self {
        Self { batch, names, published, entries, at_ms: now_ms(), list: Vec::new() }
    }

    /// Adds the result of an order, whose entry is at this place of the batch.
    pub(super) fn order(
        &mut self,
        at: usize,
        incoming: &Incoming,
        verdict: &Verdict,
        ended: Option<&EndedOrder>,
    ) {
        let Some((state, reason)) = of_verdict(verdict, ended).filter(|(state, _)| self.has(at, *state))
        else {
            return;
        };
        let order = &incoming.order;
        self.list.push(OrderResult {
            order: order.id,
            user: Some(order.user),
            voucher: Some(order.voucher),
            quantity: Some(order.quantity),
            state,
            reference: None,
            reason: reason.map(Cow::Borrowed),
            step: PLACED,
            entry: incoming.entry,
            at_ms: self.at_ms,
            traceparent: self.names.traceparent(&self.batch[at]),
        });
    }

    /// Adds the result of an event, or of the earlier event `published` instead.
    pub(super) fn event(
        &mut self,
        at: usize,
        IncomingEvent { event, .. }: &IncomingEvent,
        past: &PastEvent,
        published: Option<&PastEvent>,
    ) {
        let told = match (event.kind, past.outcome) {
            // The event is from Tidegate's own sweeper, and it changed nothing.
            (EventKind::Expired, EventOutcome::Unchanged | EventOutcome::Rejected(_)) => return,
            _ => published.unwrap_or(past),
        };
        let (state, reason) = of_event(told.kind.unwrap_or(event.kind), told);
        if !self.has(at, state) {
            return;
        }
        self.list.push(OrderResult {
            order: event.order,
            user: Some(event.user),
            voucher: Some(event.voucher),
            quantity: told.released.try_into().ok(),
            state,
            reference: told.reference.clone(),
            reason,
            step: told.number.into(),
            entry: told.entry,
            at_ms: self.at_ms,
            traceparent: self.names.traceparent(&self.batch[at]),
        });
    }

    /// Adds the results of entries that will be buried. They are published before the burial, because no worker has the
    /// entry in progress afterwards. Returns all results.
    pub(super) fn with_dead(&mut self, outcomes: &[Outcome]) -> &[OrderResult] {
        for (at, outcome) in outcomes.iter().enumerate() {
            if let Outcome::Dead(why) = outcome
                && self.has_entry(at)
            {
                let result = of_buried(self.names, &self.batch[at], why.reason, self.at_ms);
                self.list.extend(result.filter(|result| self.published.includes(result.state)));
            }
        }
        &self.list
    }

    fn has(&self, at: usize, state: ResultState) -> bool {
        self.published.includes(state) && self.has_entry(at)
    }

    fn has_entry(&self, at: usize) -> bool {
        match self.entries {
            PublishedEntries::All => true,
            PublishedEntries::Only(entries) => entries.contains(&self.batch[at].id),
        }
    }
}

/// The state that an order's own entry leads to, with the reason. `None` if another result reports it, or the order is
/// not decided.
fn of_verdict(verdict: &Verdict, ended: Option<&EndedOrder>) -> Option<(ResultState, Option<&'static str>)> {
    match verdict {
        Verdict::Created | Verdict::AlreadyThere => Some((ResultState::Confirmed, None)),
        Verdict::Refused(refusal) => Some((ResultState::Refused, Some(refusal.word()))),
        Verdict::Cancelled => match ended {
            // Another program ended the order, so no event publishes that.
            None => Some((ResultState::Cancelled, None)),
            // The result of the event says that the order ended. Before that, the order was written.
            Some(ended) => ended.was_written.then_some((ResultState::Confirmed, None)),
        },
        // `with_dead` adds the results of dead entries, when all outcomes are known.
        Verdict::UnknownVoucher
        | Verdict::PastLimits(_)
        | Verdict::IdTaken
        | Verdict::Rejected(_)
        | Verdict::Contended(_) => None,
    }
}

/// The state that an event leads to, with the reason.
fn of_event(kind: EventKind, past: &PastEvent) -> (ResultState, Option<Cow<'static, str>>) {
    // Only Tidegate may use this word, because it decides the kind of a result.
    let sent = past.reason.as_ref().filter(|reason| reason.as_str() != NOT_MOVED);
    let sent = sent.map(|reason| Cow::Owned(reason.as_str().to_owned()));
    match past.outcome {
        EventOutcome::Applied if kind.is_refund() && past.step.is_none() => {
            (kind.into(), Some(NOT_MOVED.into()))
        }
        EventOutcome::Applied | EventOutcome::Unchanged => (kind.into(), sent),
        EventOutcome::RefundDue => (ResultState::RefundDue, sent),
        EventOutcome::Rejected(rejection) => (ResultState::Rejected, Some(rejection.word().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{EventRejection, Step},
        ledger::{Contention, Refusal},
        scripts::UserAfter,
    };

    #[test]
    fn an_order_is_told_of_by_its_own_entry_unless_an_event_or_its_burial_does() {
        let told = |verdict: Verdict, ended: Option<&EndedOrder>| {
            of_verdict(&verdict, ended).map(|(state, why)| (state.word(), why))
        };
        for verdict in [Verdict::Created, Verdict::AlreadyThere] {
            assert_eq!(told(verdict, None), Some(("confirmed", None)));
        }
        let refused = told(Verdict::Refused(Refusal::OutOfStock), None);
        assert_eq!(refused, Some(("refused", Some("out_of_stock"))));
        assert_eq!(told(Verdict::Cancelled, None), Some(("cancelled", None)));
        let ended = |was_written| EndedOrder { user_after: UserAfter::Freed, was_written };
        assert_eq!(told(Verdict::Cancelled, Some(&ended(true))), Some(("confirmed", None)));
        assert_eq!(told(Verdict::Cancelled, Some(&ended(false))), None);
        let contended = Verdict::Contended(Contention::Batch);
        for verdict in
            [Verdict::IdTaken, Verdict::UnknownVoucher, Verdict::Rejected(String::new()), contended]
        {
            assert_eq!(told(verdict, None), None);
        }
    }

    #[test]
    fn an_event_is_told_of_as_what_came_of_it() {
        let told_with = |word: &str, kind, outcome, step| {
            let past = PastEvent {
                number: 1,
                kind: Some(kind),
                reference: None,
                payment: None,
                reason: word.parse().ok(),
                outcome,
                step,
                released: 0,
                entry: EntryId::MIN,
            };
            let (state, why) = of_event(kind, &past);
            format!("{state} {}", why.as_deref().unwrap_or("-"))
        };
        let told = |kind, outcome, step| told_with("word", kind, outcome, step);
        let (step, rejected) =
            (Some(Step { from: Some(1), to: 2 }), EventOutcome::Rejected(EventRejection::Used));
        for (kind, outcome, step, expected) in [
            (EventKind::Paid, EventOutcome::Applied, step, "paid word"),
            (EventKind::Paid, EventOutcome::Applied, None, "paid word"),
            (EventKind::Paid, EventOutcome::RefundDue, step, "refund_due word"),
            (EventKind::Cancelled, EventOutcome::Unchanged, None, "cancelled word"),
            (EventKind::Cancelled, rejected, None, "rejected used"),
            (EventKind::Refunded, EventOutcome::Applied, step, "refunded word"),
            (EventKind::Refunded, EventOutcome::Applied, None, "refunded not_moved"),
            (EventKind::Expired, EventOutcome::Applied, step, "expired word"),
        ] {
            assert_eq!(told(kind, outcome, step), expected, "{kind} {outcome:?}");
        }
        let sent = told_with("not_moved", EventKind::Cancelled, EventOutcome::Applied, step);
        assert_eq!(sent, "cancelled -", "a sender cannot make a fact of a state");
    }
}
