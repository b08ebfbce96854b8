//! The report about an order: what was found, and what follows from it. The functions are pure.

use tidegate_orders::{
    OrderFacts, OrderStatus,
    order_status::{ConsumerFact, EntryFact, JournalFact, LetterFact, RowFact},
    records::DeadLetterRecord,
};

use super::{
    EntryLocation, EntryRecord, JournalRecord, NextStep, OrderQuery, OrderRecords, next_step::next_steps,
};

/// The report about an order: its status, all found records, and the possible actions.
#[derive(Clone, Debug)]
pub struct OrderReport {
    /// The request that this report answers.
    pub query: OrderQuery,
    /// All found records of the order.
    pub records: OrderRecords,
    /// The facts from the records that decide the status of the order.
    pub facts: OrderFacts,
    /// The status of the order.
    pub status: OrderStatus,
    /// The actions that the operator can take, the first action first.
    pub next_steps: Vec<NextStep>,
    /// Whether any worker of the fleet is alive.
    pub workers_live: bool,
}

impl OrderReport {
    /// Creates the report about an order from its records.
    #[must_use]
    pub fn of(query: OrderQuery, records: OrderRecords, workers_live: bool) -> Self {
        let facts = records.facts();
        let status = facts.status();
        let mut report = Self { query, records, facts, status, next_steps: Vec::new(), workers_live };
        report.next_steps = next_steps(&report);
        report
    }

    /// Returns the status of the order if MySQL was not read, on the assumption that MySQL has no data about the order.
    #[must_use]
    pub fn status_without_mysql(&self) -> OrderStatus {
        OrderFacts { is_mysql_read: true, ..self.facts }.status()
    }
}

/// The user and the voucher of an order, as far as the records show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Owner {
    user: Option<i64>,
    voucher: Option<i64>,
}

impl OrderRecords {
    /// Returns an entry of the order that is not acknowledged.
    #[must_use]
    pub fn open_entry(&self) -> Option<&EntryRecord> {
        self.entries.iter().find(|entry| entry.state.is_open())
    }

    /// Returns the stream entry that a worker will handle: an entry that is not acknowledged, and whose content exists.
    #[must_use]
    pub fn entry_to_handle(&self) -> Option<&EntryRecord> {
        let is_to_be_handled = |entry: &&EntryRecord| match entry.state {
            EntryLocation::Undelivered => true,
            EntryLocation::Pending { .. } => entry.content.is_some(),
            EntryLocation::Settled => false,
        };
        self.entries.iter().find(is_to_be_handled)
    }

    /// Returns the newest entry of the order, among the entries whose content still exists.
    #[must_use]
    pub fn readable_entry(&self) -> Option<&EntryRecord> {
        self.entries.iter().find(|entry| entry.content.is_some())
    }

    /// Returns the facts from the records that decide the status of the order.
    #[must_use]
    pub fn facts(&self) -> OrderFacts {
        let owner = self.owner();
        OrderFacts {
            row: self.row.as_ref().map_or(RowFact::None, |it| RowFact::Own(it.row.state())),
            is_refused: self.refusal.is_some(),
            journal: self.journal_fact(owner),
            entry: self.entry_fact(),
            letter: self.letter_fact(),
            is_mysql_read: self.search.coverage.mysql,
            is_redis_searched: self.search.coverage.is_complete() && self.search.errors.is_empty(),
        }
    }

    /// Returns the owner according to the most reliable store, because entries of several users may have the same id.
    fn owner(&self) -> Owner {
        let row = self.row.as_ref().map(|it| (it.row.user, it.row.voucher));
        if let Some((user, voucher)) = row.or(self.refusal.as_ref().map(|it| (it.user, it.voucher))) {
            return Owner { user: Some(user), voucher: Some(voucher) };
        }
        let entry = self.entry_to_handle().and_then(|entry| entry.content.as_ref());
        let letter = self.letters.first().map(|letter| &letter.content);
        let content = entry.or(letter).or(self.readable_entry().and_then(|entry| entry.content.as_ref()));
        content.map_or_else(Owner::default, |content| Owner {
            user: content.user.map(|user| user.get()),
            voucher: content.voucher.map(|voucher| voucher.get()),
        })
    }

    /// Derives what the journals say about the order. A note that cannot be parsed still shows that the order was
    /// admitted.
    fn journal_fact(&self, Owner { user, voucher }: Owner) -> JournalFact {
        let is_its = |note: &&JournalRecord| voucher.is_none_or(|voucher| note.voucher.get() == voucher);
        let mut notes = self.journal.iter().filter(is_its).peekable();
        if notes.peek().is_none() {
            return JournalFact::Nothing;
        }
        if notes.clone().any(JournalRecord::is_release) {
            return JournalFact::Released;
        }
        let is_of_another = |note: &JournalRecord| match (&note.by, user) {
            (Some(by), Some(user)) => *by != user.to_string(),
            _ => false,
        };
        if notes.all(is_of_another) { JournalFact::Other } else { JournalFact::Admitted }
    }

    fn entry_fact(&self) -> EntryFact {
        match self.entry_to_handle().map(|entry| &entry.state) {
            Some(EntryLocation::Pending { alive: true, .. }) => EntryFact::Pending(ConsumerFact::Live),
            Some(EntryLocation::Pending { .. }) => EntryFact::Pending(ConsumerFact::Gone),
            Some(_) => EntryFact::Undelivered,
            None if self.entries.is_empty() => EntryFact::None,
            None => EntryFact::Settled,
        }
    }

    /// Derives what the dead letters say about the order. If MySQL has decided about the order, only the order's own
    /// letters count, because other letters may have the same id.
    fn letter_fact(&self) -> LetterFact {
        let owner = self.row.as_ref().map(|it| (it.row.user, it.row.voucher));
        let owner = owner.or(self.refusal.as_ref().map(|it| (it.user, it.voucher)));
        let is_its = |letter: &&DeadLetterRecord| {
            owner.is_none_or(|(user, voucher)| letter.is_order_of(user, voucher))
        };
        self.letters.iter().find(is_its).map_or(LetterFact::None, DeadLetterRecord::fact)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_orders::{
        OrderStatus,
        order_status::Advice,
        records::{EntryContent, OrderDetails, OrderRow},
    };
    use tidegate_stream::EntryId;

    use super::*;

    const ID: EntryId = EntryId { ms: 1, seq: 0 };

    fn content(user: i64) -> EntryContent {
        EntryContent { user: user.try_into().ok(), voucher: 7.try_into().ok(), quantity: 1, error: None }
    }

    fn letter(user: i64) -> DeadLetterRecord {
        DeadLetterRecord {
            id: ID,
            entry: None,
            reason: Some("unknown_voucher".to_owned()),
            error: None,
            at_ms: None,
            requeued: 0,
            content: content(user),
        }
    }

    fn note(voucher: i64, action: &str, by: &str) -> JournalRecord {
        JournalRecord {
            voucher: voucher.try_into().unwrap(),
            action: action.to_owned(),
            change: None,
            by: Some(by.to_owned()),
            at_ms: None,
            repaired: None,
        }
    }

    fn row(user: i64) -> OrderDetails {
        let (order, voucher, quantity, status) = (1.try_into().unwrap(), 7, 1, 4);
        let row =
            OrderRow { order, user, voucher, quantity, slot: None, status, entry: None, created_ms: None };
        OrderDetails { row, paid_ms: None, used_ms: None, refunded_ms: None, updated_ms: None }
    }

    #[test]
    fn an_order_whose_pending_entry_has_no_payload_is_where_its_letter_is() {
        let state = EntryLocation::Pending {
            consumer: "c".to_owned(),
            alive: true,
            idle_ms: None,
            deliveries: 1,
            crashes: 0,
        };
        let entries = vec![EntryRecord { id: ID, content: None, state }];
        let gone = OrderRecords { entries, ..OrderRecords::default() };
        assert_eq!(gone.facts().entry, EntryFact::Settled);
        let buried = OrderRecords { letters: vec![letter(9)], ..gone }.facts();
        let read = OrderFacts { is_mysql_read: true, ..buried };
        assert_eq!(read.status(), OrderStatus::Dead);
    }

    #[test]
    fn letters_and_notes_of_others_with_the_same_id_say_nothing_of_an_order_with_a_row() {
        let records = OrderRecords {
            row: Some(row(9)),
            letters: vec![letter(10)],
            journal: vec![note(8, "release", "x")],
            ..OrderRecords::default()
        };
        let facts = records.facts();
        assert_eq!((facts.letter, facts.journal), (LetterFact::None, JournalFact::Nothing));
        assert_eq!((facts.status(), facts.advice()), (OrderStatus::Cancelled, Advice::None));
        let of_another = OrderRecords { journal: vec![note(7, "admit", "10")], ..records.clone() };
        assert_eq!(of_another.facts().journal, JournalFact::Other);
        let own = OrderRecords { journal: vec![note(7, "admit", "9")], ..records };
        assert_eq!((own.facts().journal, own.facts().advice()), (JournalFact::Admitted, Advice::Release));
    }
}
