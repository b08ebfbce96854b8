//! The counts of orders by their state in a comparison. Pure.
//!
//! For a voucher with a complete journal, numbers are enough: each order has its note, and the comparison finds the
//! differences. Orders in no complete journal are followed one by one, in about 50 bytes each. They belong to vouchers
//! that other programs load or sell, or their entries were never admitted.

mod admission;
mod admissions;
#[cfg(test)]
mod tests;
mod unreadable;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Display,
};

use serde::Serialize;
use tidegate_orders::{
    JournalNote, OrderId, RowState, UserId, VoucherId,
    order_status::{ConsumerFact, EntryFact, JournalFact, RowFact},
    records::OrderRow,
    row_state::RowStatus,
    wire::WireError,
};
use tidegate_stream::EntryId;

pub use self::unreadable::Unreadable;
use self::{
    admission::{Admission, Column, Movement, column_of, is_half_cancelled},
    admissions::{Admissions, OrderKey},
    unreadable::UnreadableEntries,
};
use crate::in_flight::InFlight;

/// The largest number of faulty ids in a list.
pub(crate) const LISTED: usize = 20;
/// The program that releases the second order of a user; see [`tidegate_orders::handler`].
const SECOND_ORDER: &str = "worker:user_has_order";

/// The number of ids with the same failure, and the first 20 of these ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offenders {
    /// The number of all ids with this failure.
    pub total: u64,
    /// The first 20 ids with this failure.
    pub first: Vec<String>,
}

impl Offenders {
    pub(crate) fn add(&mut self, id: impl Display) {
        self.total += 1;
        if self.first.len() < LISTED {
            self.first.push(id.to_string());
        }
    }

    /// Adds faulty ids of the same kind.
    pub(crate) fn extend(&mut self, others: Self) {
        self.total += others.total;
        self.first.extend(others.first);
        self.first.truncate(LISTED);
    }

    /// Adds an id if it is not among the first ones yet.
    pub(crate) fn add_new(&mut self, id: String) {
        if !self.first.contains(&id) {
            self.add(id);
        }
    }
}

impl Display for Offenders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.first.join(", "))?;
        match self.total.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The orders in MySQL, counted by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StateCounts {
    /// The number of orders that are not paid yet.
    pub unpaid: u64,
    /// The number of orders that are paid and not used.
    pub paid: u64,
    /// The number of orders whose voucher was used.
    pub used: u64,
    /// The number of orders whose payment is being refunded, including payments that came after a cancellation.
    pub refunding: u64,
    /// The number of orders that were cancelled, have expired, or will never be written.
    pub cancelled: u64,
    /// The number of orders whose payment was refunded.
    pub refunded: u64,
    /// The number of orders whose columns `slot` and `status` contradict each other, or whose status is not a number
    /// from 1 to 6.
    pub contradictory: u64,
}

impl StateCounts {
    /// Counts one more order of a status.
    fn add(&mut self, state: RowStatus) {
        *match state {
            RowStatus::Unpaid => &mut self.unpaid,
            RowStatus::Paid => &mut self.paid,
            RowStatus::Used => &mut self.used,
            RowStatus::Refunding => &mut self.refunding,
            RowStatus::Cancelled => &mut self.cancelled,
            RowStatus::Refunded => &mut self.refunded,
            RowStatus::Contradictory => &mut self.contradictory,
        } += 1;
    }

    /// The counts in the order of the state diagram: unpaid, paid, used, refunding, cancelled, refunded,
    /// contradictory.
    #[must_use]
    pub fn all(&self) -> [u64; 7] {
        let Self { unpaid, paid, used, refunding, cancelled, refunded, contradictory } = *self;
        [unpaid, paid, used, refunding, cancelled, refunded, contradictory]
    }
}

impl std::iter::Sum for StateCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        let add = |sum: [u64; 7], it: Self| std::array::from_fn(|at| sum[at] + it.all()[at]);
        let [unpaid, paid, used, refunding, cancelled, refunded, contradictory] = counts.fold([0; 7], add);
        Self { unpaid, paid, used, refunding, cancelled, refunded, contradictory }
    }
}

/// The stream entries that hold the values of orders under other field names than the configured names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misnamed {
    /// The number of entries whose fields have other names than the configured names.
    pub entries: u64,
    /// The reason why the first misnamed entry cannot be read as an order, with the setting that would make it
    /// readable.
    pub error: Option<String>,
}

/// A number of orders and the sum of their units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OrderTotals {
    pub(crate) orders: u64,
    pub(crate) units: i64,
}

impl OrderTotals {
    pub(crate) fn add(&mut self, units: i64) {
        (self.orders, self.units) = (self.orders + 1, self.units.saturating_add(units));
    }
}

/// The counts of a complete journal, and of the orders in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalCounts {
    /// Orders that were admitted before the comparison and are not in flight.
    pub(crate) settled: u64,
    pub(crate) released: u64,
    /// Released orders whose entries are still in flight.
    pub(crate) released_in_flight: OrderTotals,
    /// Orders among the dead letters that MySQL has not ended.
    pub(crate) dead: OrderTotals,
    /// Notes that SCAN returned a second time.
    pub(crate) shown_twice: u64,
}

/// The counts of a voucher's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) states: StateCounts,
    pub(crate) live: OrderTotals,
    pub(crate) cancelled: u64,
    pub(crate) contradictory: Offenders,
    pub(crate) contradictory_units: i64,
    /// Rows whose entry is still in flight.
    pub(crate) in_flight: OrderTotals,
    /// Live rows that a complete journal should have and that only an entry has, and the number of them that name it.
    pub(crate) entered: u64,
    pub(crate) entered_by_us: u64,
    /// Rows that Redis does not know.
    pub(crate) unknown: u64,
    /// The unknown rows that name their entry of the stream.
    pub(crate) forgotten: u64,
}

/// An order that MySQL has ended, neither in flight nor dead, and that the journal still held as admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreleasedOrder {
    pub(crate) order: i64,
    /// Whether MySQL refused the order instead of cancelling it.
    pub(crate) is_refused: bool,
}

/// The places of the orders that are in no complete journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed {
    pub(crate) written: u64,
    pub(crate) released: u64,
    pub(crate) in_flight: OrderTotals,
    pub(crate) dead: OrderTotals,
    /// Orders found nowhere, or whose id belongs to another order. If a second check finds no difference, the order
    /// has arrived.
    pub(crate) unresolved: OrderTotals,
    pub(crate) half_cancelled: Offenders,
    kept: Vec<UnreleasedOrder>,
    pub(crate) doubled_back: Offenders,
    /// The units that Redis offered when the comparison began.
    redis_stock: Option<i64>,
    /// Whether Tidegate's scripts admit orders of the voucher.
    has_journal: bool,
    /// The units of orders that the journal holds as admitted, that are in flight or dead, and that have no row.
    open_units: i64,
    /// The units that may or may not be taken from the stock in Redis. They belong to orders that the journal does not
    /// hold: their producers may have taken them or not. They also belong to orders with an event in flight, which may
    /// have been released in only one store.
    doubtful_units: i64,
}

impl Followed {
    /// The units that Redis offers and that MySQL will certainly not have, by the stock in MySQL before the
    /// comparison. None: Tidegate's scripts do not sell the voucher, so the meaning of the stock in Redis is unknown.
    pub(crate) fn risk(&self, mysql: i64) -> Option<i64> {
        let redis = self.redis_stock.filter(|_| self.has_journal)?;
        let offered = redis.saturating_add(self.open_units).saturating_sub(self.doubtful_units);
        Some(offered.saturating_sub(mysql).max(0))
    }
}

/// The counter of one comparison.
#[derive(Debug, Default)]
pub(crate) struct OrderCounter {
    noted: HashMap<VoucherId, JournalCounts>,
    rows: HashMap<VoucherId, Rows>,
    /// Orders that are in no complete journal.
    admissions: Admissions,
    followed: HashMap<VoucherId, Followed>,
    pub(crate) unreadable: UnreadableEntries,
    pub(crate) misnamed: Misnamed,
    /// The number of entries that are events of orders.
    pub(crate) events: u64,
    /// Vouchers that appear only in entries, letters or rows.
    pub(crate) unplaced: BTreeSet<VoucherId>,
    /// The end of the stream before anything else was read, and the entries in flight then.
    begun_at: EntryId,
    open_before: InFlight,
    /// Orders with events that came later.
    late_events: HashSet<OrderKey>,
}

/// The methods that count the data from Redis.
impl OrderCounter {
    /// Creates a counter before anything else is read, from the end of the stream and the entries in flight.
    pub(crate) fn after(begun_at: EntryId, open_before: InFlight) -> Self {
        Self { begun_at, open_before, ..Self::default() }
    }

    /// Counts an entry of the stream that is an event of an order.
    pub(crate) fn add_event(&mut self, entry: EntryId, order: OrderKey) {
        self.events += 1;
        if entry > self.begun_at {
            self.late_events.insert(order);
        }
    }

    pub(crate) fn noted(&mut self, voucher: VoucherId) -> &mut JournalCounts {
        self.noted.entry(voucher).or_default()
    }

    pub(crate) fn set_redis_stock(&mut self, voucher: VoucherId, stock: Option<i64>) {
        self.followed.entry(voucher).or_default().redis_stock = stock;
    }

    /// Counts a note of a complete journal, by whether the entry of its order is in flight.
    pub(crate) fn add_note(
        &mut self,
        voucher: VoucherId,
        note: &JournalNote,
        is_in_flight: bool,
        is_before: bool,
    ) {
        let noted = self.noted(voucher);
        if note.is_release() {
            noted.released += 1;
            if is_in_flight {
                noted.released_in_flight.add(note.change.unwrap_or(0));
            }
        } else if !is_in_flight && is_before {
            // Even a note that cannot be read shows that the order was admitted.
            noted.settled += 1;
        }
    }

    /// Adds an entry of the stream with an order that is in no complete journal. If its id `is_taken`, the journal has
    /// the id for another user's order.
    pub(crate) fn add_entry(
        &mut self,
        entry: EntryId,
        order: OrderKey,
        (user, units): (UserId, i64),
        is_taken: bool,
    ) {
        let mut admission = Admission::by_entry(entry, order, user, units);
        if is_taken {
            admission.journal = JournalFact::Other;
        }
        self.admissions.push(admission);
    }

    /// Adds a dead letter of an order that is in no complete journal. Its entry may have been trimmed.
    pub(crate) fn add_letter(&mut self, entry: EntryId, order: OrderKey, user: UserId, units: i64) {
        if !self.admissions.bury(entry, order) {
            let mut admission = Admission::by_entry(entry, order, user, units);
            admission.bury();
            self.admissions.push(admission);
        }
    }

    /// Notes that an entry whose id belongs to another order is a dead letter, if the stream holds that entry.
    pub(crate) fn bury(&mut self, entry: EntryId, order: OrderKey) {
        self.admissions.bury(entry, order);
    }

    /// Adds a note of an incomplete journal. All entries of the stream must have been added before.
    pub(crate) fn add_movement(&mut self, voucher: VoucherId, order: OrderId, note: &JournalNote) {
        let (followed, movement) = (self.followed.entry(voucher).or_default(), movement(note));
        followed.has_journal = true;
        if let Movement::Release { second_order_units } = movement {
            followed.doubtful_units += i64::from(second_order_units);
        }
        let mut is_known = false;
        for admission in self.admissions.of((voucher, order)) {
            is_known = true;
            admission.take_movement(movement);
        }
        if !is_known {
            self.admissions.push(Admission::by_journal(voucher, order, movement));
        }
    }

    /// Sorts the admissions that were added last; until then they are not found.
    pub(crate) fn sort(&mut self) {
        self.admissions.sort();
    }

    /// Notes which orders are in flight.
    pub(crate) fn set_in_flight(&mut self, is_in_flight: impl Fn(OrderKey) -> bool) {
        for admission in self.admissions.all() {
            if is_in_flight((admission.voucher, admission.order)) {
                admission.is_in(EntryFact::Pending(ConsumerFact::Unread));
            }
        }
    }

    /// Adds an entry that is neither order nor event, with its earlier entries if it was put back.
    pub(crate) fn add_unreadable(
        &mut self,
        entry: EntryId,
        followed: &[EntryId],
        could_be_order: bool,
        error: &WireError,
    ) {
        if error.has_other_names() {
            self.misnamed.entries += 1;
            self.misnamed.error.get_or_insert_with(|| error.to_string());
        }
        self.unreadable.add(entry, followed, could_be_order);
    }
}

/// The methods that count the data from MySQL, which is read after Redis.
impl OrderCounter {
    /// Counts a row, by the facts in `seen`.
    pub(crate) fn add_row(&mut self, voucher: VoucherId, row: &OrderRow, seen: RowSeen) {
        let is_followed = self.admissions.take_row(row);
        if !seen.is_own {
            return;
        }
        let rows = self.rows.entry(voucher).or_default();
        rows.states.add(row.row_status());
        match row.state() {
            RowState::Live => rows.live.add(row.quantity),
            RowState::Cancelled => rows.cancelled += 1,
            RowState::Contradictory => {
                rows.contradictory.add(row.order);
                rows.contradictory_units += row.quantity;
            }
        }
        // An order that was cancelled before its entry was handled waits for that entry.
        if seen.is_in_flight && row.state() != RowState::Cancelled {
            rows.in_flight.add(row.quantity);
        }
        if seen.is_known && is_followed && row.state() == RowState::Live {
            rows.entered += 1;
            rows.entered_by_us += u64::from(row.entry.is_some());
        }
        if !seen.is_known && !is_followed {
            rows.unknown += 1;
            rows.forgotten += u64::from(row.entry.is_some());
            if row.state() == RowState::Live {
                self.followed.entry(voucher).or_default().doubtful_units += row.quantity;
            }
        }
    }

    /// Counts a refusal: a refused order is released, whether or not units were taken for it.
    pub(crate) fn add_refusal(&mut self, voucher: VoucherId, order: OrderId, user: i64) {
        self.admissions.of((voucher, order)).for_each(|admission| admission.take_refusal(user));
    }

    /// Counts the orders that are in no complete journal. Returns those to check one by one: orders found nowhere, and
    /// orders whose id belongs to another order.
    pub(crate) fn follow(
        &mut self,
        stream_end: impl Fn(VoucherId) -> EntryId,
        has_event: impl Fn(&InFlight, OrderKey) -> bool,
        in_flight: &InFlight,
    ) -> Vec<OrderKey> {
        let mut unresolved = Vec::new();
        let (before, late) = (std::mem::take(&mut self.open_before), std::mem::take(&mut self.late_events));
        let has_open_event =
            |order| late.contains(&order) || has_event(&before, order) || has_event(in_flight, order);
        let admissions = std::mem::take(&mut self.admissions).into_sorted();
        for group in admissions.chunk_by(|a, b| (a.order, a.voucher) == (b.order, b.voucher)) {
            let [first, ..] = group else { continue };
            let (order, voucher, units) = (first.order, first.voucher, i64::from(first.quantity));
            let followed = self.followed.entry(voucher).or_default();
            let column = column_of(group);
            followed.add_units(column, group, stream_end(voucher), has_open_event((voucher, order)));
            match column {
                Column::Written if is_half_cancelled(group) => {
                    followed.dead.add(units);
                    // If the journal has the id for another order, the letter cannot release it.
                    if group.iter().any(|it| it.is_cancelled() && it.journal != JournalFact::Other) {
                        followed.half_cancelled.add(order);
                    }
                }
                Column::Written => {
                    followed.written += 1;
                    let is_open = has_open_event((voucher, order)) || group.iter().any(Admission::is_open);
                    if group.iter().any(Admission::is_kept) && !is_open {
                        followed.kept.push(UnreleasedOrder { order: order.get(), is_refused: false });
                    }
                }
                Column::Released => {
                    followed.released += 1;
                    let is_kept = group.iter().any(Admission::is_refused_and_kept);
                    if is_kept && !group.iter().any(Admission::is_open) {
                        followed.kept.push(UnreleasedOrder { order: order.get(), is_refused: true });
                    }
                }
                // The letter of an entry under a taken id does not belong to the order in the journal.
                Column::Dead if group.iter().all(|it| it.journal == JournalFact::Other) => {}
                Column::Dead => followed.dead.add(units),
                Column::InFlight => followed.in_flight.add(units),
                Column::Mismatched | Column::Lost => {
                    followed.unresolved.add(units);
                    unresolved.push((voucher, order));
                }
            }
            if group.iter().any(Admission::is_doubled) {
                followed.doubled_back.add(order);
            }
        }
        unresolved
    }

    /// The orders that MySQL has cancelled or refused and that the journal still held as admitted.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (VoucherId, &[UnreleasedOrder])> {
        let kept = self.followed.iter().map(|(voucher, followed)| (*voucher, &followed.kept[..]));
        kept.filter(|(_, orders)| !orders.is_empty())
    }

    /// Takes the counts of a voucher.
    pub(crate) fn take(&mut self, voucher: VoucherId) -> (JournalCounts, Rows, Followed) {
        let noted = self.noted.remove(&voucher).unwrap_or_default();
        let rows = self.rows.remove(&voucher).unwrap_or_default();
        (noted, rows, self.followed.remove(&voucher).unwrap_or_default())
    }
}

/// Facts about a row from outside MySQL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowSeen {
    /// Whether the voucher belongs to this partition.
    pub(crate) is_own: bool,
    /// Whether the entry of the row is in flight.
    pub(crate) is_in_flight: bool,
    /// Whether a complete journal has or should have the order, or it came after the comparison began.
    pub(crate) is_known: bool,
}

impl Followed {
    /// Adds the units of an order to the sums about the stock in Redis. An order with a later entry may have been
    /// admitted after that stock was read.
    fn add_units(&mut self, column: Column, group: &[Admission], end: EntryId, has_open_event: bool) {
        let [first, ..] = group else { return };
        let quantity = i64::from(first.quantity);
        let is_journaled =
            group.iter().any(|it| matches!(it.journal, JournalFact::Admitted | JournalFact::Released));
        let is_open = matches!(column, Column::Dead | Column::InFlight)
            && group.iter().all(|it| it.row == RowFact::None)
            && group.iter().any(|it| it.has_entry && it.entry <= end);
        match column {
            _ if is_open && is_journaled => self.open_units += quantity,
            Column::Written if !is_journaled => self.doubtful_units += quantity,
            _ => {}
        }
        // Its units may have come back to both stocks between the two reads.
        if has_open_event {
            self.doubtful_units += quantity;
        }
    }
}

/// Converts a note to a movement. Even a note that cannot be read shows that the order was admitted.
fn movement(note: &JournalNote) -> Movement {
    let units = u16::try_from(note.change.map_or(0, i64::unsigned_abs)).unwrap_or(0);
    if note.is_release() {
        let is_second_order = note.by.as_deref() == Some(SECOND_ORDER);
        return Movement::Release { second_order_units: if is_second_order { units } else { 0 } };
    }
    Movement::Admit {
        user: note.by.as_ref().and_then(|user| user.parse::<UserId>().ok()),
        quantity: units,
        at_ms: note.at_ms.and_then(|at_ms| u64::try_from(at_ms).ok()).unwrap_or(0),
    }
}
