//! Everything that was found of one order, and how far the search went.

use std::{collections::BTreeSet, fmt::Display};

use serde::Serialize;
use tidegate_orders::{
    UserId, VoucherId,
    event::History,
    records::{BuriedEvent, DeadLetterRecord, EventRow, OrderDetails, RefusalRow},
};
use tidegate_stream::{EntryId, readable};

use super::{EntryRecord, JournalRecord, LockRecord, OrderQuery, StreamCoverage};

/// Everything that was found of one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderRecords {
    /// The clock of Redis, in Unix milliseconds.
    pub now_ms: u64,
    /// The time within the order's id, in Unix milliseconds, if it has one.
    pub made_ms: Option<u64>,
    /// The order's row in MySQL.
    pub row: Option<OrderDetails>,
    /// The order's refusal in MySQL.
    pub refusal: Option<RefusalRow>,
    /// The events of the order since it was placed, as they were recorded.
    pub events: Vec<EventRow>,
    /// The notes of journals about the order.
    pub journal: Vec<JournalRecord>,
    /// The entries that hold the order, newest first.
    pub entries: Vec<EntryRecord>,
    /// The coverage, the gaps and the errors of the search.
    #[serde(flatten)]
    pub search: SearchNotes,
    /// The dead letters that hold the order, newest first.
    pub letters: Vec<DeadLetterRecord>,
    /// The dead letters that hold events of the order, as they were buried.
    pub buried_events: Vec<BuriedEvent>,
    /// The vouchers that have the order's user among their buyers, of those that the order may be for.
    pub buyer_of: Vec<VoucherId>,
    /// The lock of the order's user, if the order is in flight.
    pub lock: Option<LockRecord>,
}

/// The coverage, the gaps and the errors of a search for one order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchNotes {
    /// The entries that a record names, but that are neither in the stream nor pending.
    pub trimmed: Vec<String>,
    /// The parts of the stores that were searched.
    #[serde(rename = "searched")]
    pub coverage: Coverage,
    /// The errors of what could not be read.
    pub errors: Vec<String>,
}

/// The parts of the stores that were searched for an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Whether MySQL was read for the order.
    pub mysql: bool,
    /// The searched part of the stream.
    pub stream: StreamCoverage,
    /// The searched part of the stream of dead letters.
    pub dead: StreamCoverage,
    /// The number of journals that were read.
    pub journals: u64,
    /// Whether these were the journals of all vouchers, or of the order's voucher.
    pub all_journals: bool,
}

impl Coverage {
    /// Returns whether everything in Redis was searched.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stream.complete && self.dead.complete && self.all_journals
    }
}

impl OrderRecords {
    /// Returns whether the records show how the order ended, or that it is still in progress.
    #[must_use]
    pub fn is_explained(&self) -> bool {
        self.row.is_some() || self.refusal.is_some() || self.entries.iter().any(|entry| entry.state.is_open())
    }

    /// Returns whether nothing was found of the order.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.row.is_none()
            && self.refusal.is_none()
            && self.events.is_empty()
            && self.journal.is_empty()
            && self.entries.is_empty()
            && self.letters.is_empty()
            && self.buried_events.is_empty()
    }

    /// Returns the earliest time in the records of the order; entries and journals have the time of Redis.
    pub(super) fn earliest_ms(&self) -> Option<u64> {
        let admitted = self.journal.iter().filter(|journal| journal.is_admission());
        let admitted = admitted.filter_map(|journal| u64::try_from(journal.at_ms?).ok());
        let letters = self.letters.iter().filter_map(|letter| letter.entry);
        let named =
            self.row.iter().filter_map(|it| it.row.entry).chain(letters).map(|entry: EntryId| entry.ms);
        admitted.chain(named).chain(self.entries.iter().map(|entry| entry.id.ms)).min()
    }

    /// Returns the vouchers that the order may be for, according to all records.
    pub(super) fn vouchers(&self, query: &OrderQuery) -> BTreeSet<VoucherId> {
        let mysql = self.row.iter().map(|it| it.row.voucher);
        let mysql = mysql.chain(self.refusal.iter().map(|refusal| refusal.voucher));
        let mut vouchers: BTreeSet<VoucherId> =
            mysql.filter_map(|voucher| VoucherId::try_from(voucher).ok()).collect();
        vouchers.extend(query.voucher);
        vouchers.extend(self.letters.iter().filter_map(|letter| letter.content.voucher));
        vouchers.extend(self.journal.iter().map(|journal| journal.voucher));
        let contents = self.entries.iter().filter_map(|entry| entry.content.as_ref());
        vouchers.extend(contents.filter_map(|content| content.voucher));
        vouchers
    }

    /// Returns the user of the order, according to all records.
    #[must_use]
    pub fn user(&self, query: &OrderQuery) -> Option<UserId> {
        let mysql = self.row.as_ref().map(|it| it.row.user).or(self.refusal.as_ref().map(|it| it.user));
        let admitted = self.journal.iter().filter(|journal| journal.is_admission());
        let entries = self.entries.iter().filter_map(|entry| entry.content.as_ref());
        let letters = self.letters.iter().map(|letter| &letter.content);
        query
            .user
            .or_else(|| entries.chain(letters).find_map(|content| content.user))
            .or_else(|| mysql.and_then(|user| UserId::try_from(user).ok()))
            .or_else(|| admitted.filter_map(|journal| journal.by.as_deref()?.parse().ok()).next())
    }

    /// Returns the payments that still have to be refunded.
    pub fn payments_due(&self) -> impl Iterator<Item = &EventRow> {
        let history =
            History { events: self.events.iter().map(EventRow::past_event).collect(), ..History::default() };
        let due: Vec<i64> = history.payments_due().map(|past| past.number.into()).collect();
        self.events.iter().filter(move |event| due.contains(&event.step))
    }

    pub(super) fn fail(&mut self, what: &str, error: impl Display) {
        let error = format!("{what}: {}", readable(&error.to_string()));
        if !self.search.errors.contains(&error) {
            self.search.errors.push(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(
        step: i64,
        (event, outcome): (&str, &str),
        reference: Option<&str>,
        payment: Option<&str>,
    ) -> EventRow {
        EventRow {
            order: 1.try_into().unwrap(),
            step,
            event: event.to_owned(),
            outcome: outcome.to_owned(),
            user: 9,
            voucher: 7,
            reference: reference.map(str::to_owned),
            payment: payment.map(str::to_owned),
            reason: None,
            moved: Default::default(),
            entry: format!("{step}-0"),
            at_ms: None,
        }
    }

    fn due(events: Vec<EventRow>) -> Vec<i64> {
        let records = OrderRecords { events, ..OrderRecords::default() };
        records.payments_due().map(|event| event.step).collect()
    }

    #[test]
    fn a_payment_is_due_until_it_was_refunded() {
        let second = event(2, ("paid", "refund_due"), Some("b"), None);
        let refunded = |step, outcome, payment| event(step, ("refunded", outcome), None, payment);
        assert_eq!(due(vec![event(1, ("paid", "applied"), Some("a"), None), second.clone()]), [2]);
        for (step, outcome, payment, expected) in [
            (3, "applied", Some("b"), &[][..]),
            (3, "unchanged", Some("b"), &[2]),
            (3, "applied", Some("a"), &[2]),
            // The payment has no ref here.
            (3, "applied", None, &[2]),
            (3, "payment_needed", None, &[2]),
            (3, "payment_needed", Some("b"), &[2]),
        ] {
            let events = vec![second.clone(), refunded(step, outcome, payment)];
            assert_eq!(due(events), expected, "{step} {outcome} {payment:?}");
        }
        let without_ref = event(2, ("paid", "refund_due"), None, None);
        for (step, payment, expected) in [(3, None, &[][..]), (1, None, &[2]), (3, Some("a"), &[2])] {
            let events = vec![without_ref.clone(), refunded(step, "applied", payment)];
            assert_eq!(due(events), expected, "{step} {payment:?} of one without a ref");
        }
    }
}
