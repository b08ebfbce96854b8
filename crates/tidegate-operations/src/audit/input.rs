//! Everything that an audit reads, and the report that follows from it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidegate_orders::{
    Order, OrderId, RowState, Sum, VoucherId,
    order_status::{ConsumerFact, EntryFact, JournalFact},
    records::{OrderRow, StockRow},
    wire::WireError,
};
use tidegate_stream::{EntryId, StreamError, readable};

use super::{
    admission::{Admission, Column, Movement, column_of, is_half_cancelled},
    admissions::{Admissions, OrderKey},
    report::{AuditReport, Misnamed, VoucherAudit},
    surplus::SurplusCheck,
    unreadable::UnreadableEntries,
};

/// An entry of the dead stream.
#[derive(Clone, Debug)]
pub(super) struct AuditLetter {
    /// The entry that was buried.
    pub(super) entry: EntryId,
    /// What it was before, each time that it was put back.
    pub(super) followed: Vec<EntryId>,
    /// Its order, if it can be read.
    pub(super) order: Option<Order>,
}

/// Everything that was read, order by order.
#[derive(Debug, Default)]
pub(super) struct AuditInput {
    admissions: Admissions,
    unreadable: UnreadableEntries,
    events: u64,
    /// Orders with events that were not done when the audit began, and how many: what these do may be done in one store only.
    open_events: HashMap<OrderKey, u64>,
    /// Where the stream ended when it was read, and when that was by Redis' clock.
    read_to: (EntryId, u64),
    misnamed: Misnamed,
    surplus: SurplusCheck,
    vouchers: BTreeMap<VoucherId, VoucherAudit>,
    /// Vouchers that Redis was asked for.
    asked: BTreeSet<VoucherId>,
    /// Vouchers that have units left and are inside their sale window, by MySQL.
    on_sale: BTreeSet<VoucherId>,
    /// Vouchers that are sold by programs which keep no journal, by MySQL.
    without_journal: BTreeSet<VoucherId>,
}

/// What is read of Redis.
impl AuditInput {
    pub(super) fn reserve(&mut self, admissions: usize) {
        self.admissions.reserve(admissions);
    }

    /// The vouchers of which a surplus is measured.
    pub(super) fn measured(&self) -> Vec<VoucherId> {
        self.surplus.vouchers()
    }

    /// What Redis offered when the stream had ended there.
    pub(super) fn set_redis_stocks(
        &mut self,
        end: EntryId,
        stocks: impl Iterator<Item = (VoucherId, Option<i64>)>,
    ) {
        self.surplus.set_redis(end, stocks);
    }

    /// An entry of the stream.
    pub(super) fn add_entry(&mut self, entry: EntryId, order: &Order) {
        self.voucher(order.voucher);
        self.admissions.push(Admission::by_entry(entry, order));
    }

    /// An entry of the stream that says what happened to this order. It `is_open` if it was not done when the audit began.
    pub(super) fn add_event(&mut self, order: OrderKey, is_open: bool) {
        self.events += 1;
        if is_open {
            self.add_late_event(order);
        }
    }

    /// Where the stream ended when it was read, and when that was, in Unix milliseconds by Redis' clock.
    pub(super) fn set_read_to(&mut self, last: EntryId, at_ms: u64) {
        self.read_to = (last, at_ms);
    }

    /// The entry came after the stream had been read. A Redis that lost its stream may have begun one with lower ids: what it lost
    /// is older than its clock.
    fn is_new(&self, entry: EntryId) -> bool {
        let (last, at_ms) = self.read_to;
        entry > last && entry.ms >= at_ms
    }

    /// An entry of the stream that is neither, and what it was before, if it was put back.
    pub(super) fn add_unreadable(&mut self, entry: EntryId, followed: &[EntryId], could_be_order: bool) {
        self.unreadable.add(entry, followed, could_be_order);
    }

    /// Why one of them is no order, if its fields seem to have other names.
    pub(super) fn add_misnamed(&mut self, error: &WireError) {
        self.misnamed.entries += 1;
        self.misnamed.error.get_or_insert_with(|| error.to_string());
    }

    /// What the group has still to do: all after `delivered`, and its pending list.
    pub(super) fn set_in_flight(&mut self, delivered: EntryId, pending: &HashSet<EntryId>) {
        let in_flight = |entry: EntryId| match entry > delivered {
            true => Some(EntryFact::Undelivered),
            false => pending.contains(&entry).then_some(EntryFact::Pending(ConsumerFact::Unread)),
        };
        self.admissions.set_in_flight(in_flight);
        self.unreadable.set_in_flight(|entry| in_flight(entry).is_some());
    }

    /// Letters of the dead stream. Their entries may have been trimmed away.
    pub(super) fn add_letters(&mut self, letters: &[AuditLetter]) {
        for letter in letters {
            let Some(order) = &letter.order else {
                self.unreadable.add_dead(letter.entry, &letter.followed);
                continue;
            };
            if !self.admissions.bury(letter.entry, (order.voucher, order.id)) {
                self.voucher(order.voucher);
                let mut admission = Admission::by_entry(letter.entry, order);
                admission.bury();
                self.admissions.push(admission);
            }
        }
        self.sort();
    }

    /// Movements of a voucher's journal.
    pub(super) fn add_journal(&mut self, voucher: VoucherId, movements: Vec<(OrderId, Movement)>) {
        self.surplus.add_journal(voucher, &movements);
        for (order, movement) in movements {
            let mut is_known = false;
            for admission in self.admissions.of((voucher, order)) {
                is_known = true;
                admission.take_movement(movement);
            }
            if !is_known {
                self.voucher(voucher);
                self.admissions.push(Admission::by_journal(voucher, order, movement));
            }
        }
    }

    /// What Redis holds of a voucher, which it was asked for.
    pub(super) fn set_redis_stock(&mut self, voucher: VoucherId, stock: Option<i64>) {
        self.asked.insert(voucher);
        self.voucher(voucher).redis_stock = stock;
    }

    /// Whether the stock is the sum of its complete journal; None: nobody can tell.
    pub(super) fn set_journal_sum(&mut self, voucher: VoucherId, sum: Option<Sum>) {
        let sum = sum.filter(|_| !self.without_journal.contains(&voucher));
        self.voucher(voucher).journal_apart = match sum {
            Some(Sum::Holds) => Some(0),
            Some(Sum::Apart(units)) => Some(units),
            Some(Sum::Unsure) | None => None,
        };
    }

    /// A stock that Redis holds, of which none can be taken.
    pub(super) fn add_wrong_stock(&mut self, voucher: VoucherId, what: String) {
        self.voucher(voucher).wrong_keys.add_new(what);
    }

    /// What Redis answered about a key of a voucher; `None` where that key holds something else than it should.
    pub(super) fn keep<T>(
        &mut self,
        voucher: VoucherId,
        read: Result<T, StreamError>,
    ) -> Result<Option<T>, StreamError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(StreamError::Redis(error)) if error.details().contains("WRONGTYPE") => {
                self.voucher(voucher).wrong_keys.add_new(readable(error.details()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts what was added last in its place; until then it is not found.
    pub(super) fn sort(&mut self) {
        self.admissions.sort();
    }
}

/// What is read of MySQL.
impl AuditInput {
    /// MySQL's stocks, before anything else is read.
    pub(super) fn set_stocks_before(&mut self, rows: Vec<StockRow>) {
        self.surplus.set_before(rows);
    }

    /// The vouchers that were named so far by anyone.
    pub(super) fn vouchers(&self) -> Vec<VoucherId> {
        self.vouchers.keys().copied().collect()
    }

    pub(super) fn voucher(&mut self, voucher: VoucherId) -> &mut VoucherAudit {
        self.vouchers.entry(voucher).or_insert_with(|| VoucherAudit::new(voucher))
    }

    /// The vouchers that are, or were, on sale. The programs that sell some of them keep no journal, so the sum of a journal says
    /// nothing, even if a rebuild has called it complete.
    pub(super) fn add_stocked(&mut self, rows: &[StockRow]) {
        self.add_vouchers(rows.iter().map(|row| row.voucher).collect());
        let without = rows.iter().filter(|row| row.keeps_journal == Some(false));
        self.without_journal = without.map(|row| row.voucher).collect();
    }

    pub(super) fn add_vouchers(&mut self, vouchers: Vec<VoucherId>) {
        for voucher in vouchers {
            self.voucher(voucher);
        }
    }

    /// A voucher's row.
    pub(super) fn add_stock(&mut self, row: &StockRow) {
        if row.has_begun && !row.is_over && row.stock.is_some_and(|stock| stock > 0) {
            self.on_sale.insert(row.voucher);
        }
        let voucher = self.voucher(row.voucher);
        (voucher.stock, voucher.initial_stock) = (row.stock, row.initial_stock);
    }

    /// A row, read for the first time.
    pub(super) fn add_row(&mut self, row: &OrderRow) {
        let Ok(voucher) = VoucherId::try_from(row.voucher) else { return };
        let is_known = self.admissions.take_row(row);
        // Redis knows an order that came while this went on; only its entry was not read.
        let is_unknown = !is_known && !row.entry.is_some_and(|entry| self.is_new(entry));
        if is_unknown && row.state() == RowState::Live {
            self.surplus.add_unknown_row(voucher, row.quantity);
        }
        let voucher = self.voucher(voucher);
        voucher.states.add(row.row_status());
        match row.state() {
            RowState::Live => {
                voucher.live_orders += 1;
                voucher.live_units += row.quantity;
            }
            RowState::Cancelled => voucher.cancelled_orders += 1,
            RowState::Contradictory => {
                voucher.contradictory.add(row.order);
                voucher.contradictory_units += row.quantity;
            }
        }
        voucher.unknown_orders += u64::from(is_unknown);
        voucher.forgotten_orders += u64::from(is_unknown && row.entry.is_some());
    }
}

/// The second look, at orders that were nowhere.
impl AuditInput {
    /// Orders with an admission of which nothing is known, or that is cancelled and may have been given back since.
    pub(super) fn unresolved(&mut self) -> Vec<OrderKey> {
        self.admissions.unresolved()
    }

    pub(super) fn has_lost_unreadable(&self) -> bool {
        self.unreadable.has_lost()
    }

    /// An order that came into the stream after it had been read.
    pub(super) fn add_late_entry(&mut self, voucher: VoucherId, order: OrderId) {
        for admission in self.admissions.of((voucher, order)) {
            admission.is_in(EntryFact::Undelivered);
        }
    }

    /// An event that was not done when the audit began, or came while it went on.
    pub(super) fn add_late_event(&mut self, order: OrderKey) {
        *self.open_events.entry(order).or_default() += 1;
    }

    /// Entries of which one that is no order was put back after the stream had been read.
    pub(super) fn add_late_unreadable(&mut self, followed: &[EntryId]) {
        self.unreadable.add_late(followed);
    }

    /// Letters that came after the dead stream had been read.
    pub(super) fn add_late_letters(&mut self, letters: &[AuditLetter]) {
        for letter in letters {
            match &letter.order {
                Some(order) => _ = self.admissions.bury(letter.entry, (order.voucher, order.id)),
                None => self.unreadable.add_dead(letter.entry, &letter.followed),
            }
        }
    }

    /// A refusal of a voucher that is delisted.
    pub(super) fn add_refusal(&mut self, key: OrderKey, user: i64) {
        self.admissions.of(key).for_each(|admission| admission.take_refusal(user));
    }

    /// A row that was read again.
    pub(super) fn add_row_again(&mut self, row: &OrderRow) {
        if VoucherId::try_from(row.voucher).is_err() {
            return;
        }
        self.admissions.take_row(row);
    }
}

/// The report.
impl AuditInput {
    /// Counts it all.
    pub(super) fn into_report(mut self) -> AuditReport {
        let admissions = std::mem::take(&mut self.admissions).into_sorted();
        for group in admissions.chunk_by(|a, b| (a.order, a.voucher) == (b.order, b.voucher)) {
            self.count(group);
        }
        self.find_forgotten();
        for ((voucher, _), events) in std::mem::take(&mut self.open_events) {
            if let Some(audit) = self.vouchers.get_mut(&voucher) {
                audit.in_flight_events += events;
            }
        }
        self.surplus.report(&mut self.vouchers);
        for audit in self.vouchers.values_mut() {
            audit.redis_stock_due = audit.stock.map(|stock| stock - audit.in_flight_units - audit.dead_units);
        }
        let states = self.vouchers.values().map(|voucher| voucher.states).sum();
        let (vouchers, unreadable) = (self.vouchers.into_values().collect(), self.unreadable.report());
        let (events, misnamed, counters) = (self.events, self.misnamed, Vec::new());
        let counters_not_compared = BTreeSet::new();
        AuditReport { vouchers, states, events, unreadable, misnamed, counters, counters_not_compared }
    }

    /// A voucher that came on sale while this was going on was asked for in MySQL only. Of one that was taken over, or sold
    /// by another program, no order came out of a stream. A Redis that forgot it may know orders again that were given back
    /// since, as those that are not paid in time.
    fn find_forgotten(&mut self) {
        for voucher in self.on_sale.intersection(&self.asked) {
            if let Some(audit) = self.vouchers.get_mut(voucher) {
                let has_no_admission = audit.admitted == audit.released;
                audit.is_forgotten =
                    audit.redis_stock.is_none() && has_no_admission && audit.forgotten_orders > 0;
                // Who cannot read its keys does not know what Redis holds.
                audit.is_forgotten &= audit.wrong_keys.total == 0;
            }
        }
    }

    /// Counts all admissions of one order.
    fn count(&mut self, group: &[Admission]) {
        let [first, ..] = group else { return };
        let units = i64::from(first.quantity);
        self.voucher(first.voucher).admitted += 1;
        let column = column_of(group);
        let has_open_event = self.open_events.contains_key(&(first.voucher, first.order));
        self.surplus.count(column, group, has_open_event);
        let voucher = self.voucher(first.voucher);
        match column {
            Column::Written if is_half_cancelled(group) => {
                voucher.dead += 1;
                voucher.dead_units += units;
                // What is another's by the journal cannot be given back by its letter.
                if group.iter().any(|it| it.is_cancelled() && it.journal != JournalFact::Other) {
                    voucher.half_cancelled.add(first.order);
                }
            }
            Column::Written => {
                voucher.written += 1;
                let is_open = has_open_event || group.iter().any(Admission::is_open);
                if group.iter().any(Admission::is_kept) && !is_open {
                    voucher.kept.add(first.order);
                }
            }
            Column::Released => voucher.released += 1,
            Column::Dead => {
                voucher.dead += 1;
                voucher.dead_units += units;
            }
            Column::InFlight => {
                voucher.in_flight += 1;
                voucher.in_flight_units += units;
            }
            Column::Mismatched => voucher.mismatched.add(first.order),
            Column::Lost => {
                voucher.lost.add(first.order);
                voucher.add_lost(group.iter().map(|admission| (admission.entry, admission.has_entry)));
            }
        }
        if group.iter().any(Admission::is_doubled) {
            voucher.doubled_back.add(first.order);
        }
    }
}
