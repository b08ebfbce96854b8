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

/// All records of one order that were found in Redis and MySQL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderRecords {
    /// The time of the Redis clock, in Unix milliseconds.
    pub now_ms: u64,
    /// The creation time in the order's id, in Unix milliseconds; None: the id contains no time.
    pub made_ms: Option<u64>,
    /// The row of the order in MySQL; None: MySQL has no row of the order.
    pub row: Option<OrderDetails>,
    /// The refusal of the order in MySQL; None: MySQL has not refused the order.
    pub refusal: Option<RefusalRow>,
    /// The events of the order that workers have recorded in MySQL.
    pub events: Vec<EventRow>,
    /// The notes about the order in journals, the Redis hashes of admitted and released orders.
    pub journal: Vec<JournalRecord>,
    /// The stream entries that hold the order, newest first.
    pub entries: Vec<EntryRecord>,
    /// The missing entries, the errors, and the parts of the stores that were searched for the order.
    #[serde(flatten)]
    pub search: SearchNotes,
    /// The dead letters that hold the order, newest first.
    pub letters: Vec<DeadLetterRecord>,
    /// The dead letters that hold events of the order, in the sequence in which they were buried.
    pub buried_events: Vec<BuriedEvent>,
    /// The vouchers for which Redis lists the order's user as a buyer, among the vouchers that the order may be for.
    pub buyer_of: Vec<VoucherId>,
    /// The lock that prevents two processes from handling orders of the order's user at the same time; None: no process
    /// holds the lock, or no worker handles the order.
    pub lock: Option<LockRecord>,
}

/// The missing entries, the errors, and the parts of the stores that were searched for an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SearchNotes {
    /// The ids of missing entries: a record of the order names the entry, but the entry is neither in the stream nor
    /// pending.
    pub trimmed: Vec<String>,
    /// The parts of the stores that were searched for the order.
    #[serde(rename = "searched")]
    pub coverage: Coverage,
    /// The errors of the reads that failed.
    pub errors: Vec<String>,
}

/// The parts of the stores that were searched for an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Whether MySQL was searched for the order.
    pub mysql: bool,
    /// The part of the stream that was searched for the order.
    pub stream: StreamCoverage,
    /// The part of the stream of dead letters that was searched for the order.
    pub dead: StreamCoverage,
    /// The number of journals (Redis hashes of admitted orders) that were searched for the order.
    pub journals: u64,
    /// Whether all journals that may name the order were searched: the journal of the order's voucher, or the journals
    /// of all vouchers.
    pub all_journals: bool,
}

impl Coverage {
    /// Returns whether the search covered all data in Redis that may hold the order.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stream.complete && self.dead.complete && self.all_journals
    }
}

impl OrderRecords {
    /// Returns whether the records show the end of the order, or show that workers are still processing the order.
    #[must_use]
    pub fn is_explained(&self) -> bool {
        self.row.is_some() || self.refusal.is_some() || self.entries.iter().any(|entry| entry.state.is_open())
    }

    /// Returns whether no record of the order was found.
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

    /// Returns the user of the order: the user in the request, or the user in the records that were found.
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

    /// Returns the payments of the order that still have to be refunded.
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
