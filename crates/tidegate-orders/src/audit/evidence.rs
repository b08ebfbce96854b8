//! What both sides said of each order id, and what follows from it. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tidegate_stream::{EntryId, StreamError, readable};

use super::report::{AuditReport, Unreadable, VoucherAudit};
use crate::{Order, OrderId, RowState, UserId, VoucherId};

/// What is known of one admission: an entry of the stream, or a note of the journal whose entry is gone.
/// 48 bytes, because there may be millions.
#[derive(Clone, Debug)]
struct Admission {
    order: OrderId,
    voucher: VoucherId,
    /// Unknown where only a release is left in the journal.
    user: Option<UserId>,
    /// Where there is only the journal: when it was admitted, in the form of an id, and [`EntryId::MIN`] if not even
    /// that is known.
    entry: EntryId,
    /// Its entry is in the stream, or was when it was buried.
    has_entry: bool,
    /// 0 where it is unknown.
    quantity: u16,
    row: Row,
    /// By the journal, it is admitted, and for this very user or for another.
    holder: Option<Holder>,
    is_released: bool,
    is_dead: bool,
    is_in_flight: bool,
}

/// For whom the journal has an order id as admitted, seen from an entry with this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Own,
    Other,
}

/// The row of MySQL that has this order id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    None,
    Live,
    /// Cancelled or refunded: it counts no units. Most were written once; some only keep an order from being written.
    Cancelled,
    /// Neither: its slot and its status contradict each other.
    Contradictory,
    /// It belongs to another user or voucher, or is for another quantity.
    Other,
}

/// Where an order ended. Later ones are worse: an id that came in several entries gets its best fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Written,
    Released,
    Dead,
    InFlight,
    /// Of an entry without a readable order: it has too few fields to be one.
    NoOrder,
    Mismatched,
    Lost,
}

/// A row of tb_voucher_order.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderRow {
    pub(super) id: OrderId,
    pub(super) user: i64,
    pub(super) voucher: VoucherId,
    pub(super) quantity: i64,
    pub(super) state: RowState,
    /// It names the entry of the stream that it came from.
    pub(super) has_entry: bool,
}

/// What MySQL holds of a voucher.
#[derive(Clone, Copy, Debug)]
pub(super) struct StockRow {
    pub(super) voucher: VoucherId,
    pub(super) stock: Option<i64>,
    pub(super) initial_stock: Option<i64>,
    pub(super) has_begun: bool,
    pub(super) is_over: bool,
}

/// A movement of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Movement {
    Admit {
        user: Option<UserId>,
        quantity: u16,
        at_ms: u64,
    },
    /// With the units that the refusal of a second order gave back, whether or not its producer had taken any.
    Release {
        second_order_units: u16,
    },
}

/// An entry of the dead stream.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// The entry that was buried.
    pub(super) entry: EntryId,
    /// What it was before, each time that it was put back.
    pub(super) followed: Vec<EntryId>,
    /// Its order, if it can be read.
    pub(super) order: Option<Order>,
}

/// An order of a voucher, to be looked for.
pub(super) type Suspect = (VoucherId, OrderId);

/// Everything that was read, order by order.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Sorted by order, voucher and entry, but for the last `unsorted`.
    admissions: Vec<Admission>,
    unsorted: usize,
    /// Entries without a readable order, with what became of them.
    unreadable: BTreeMap<EntryId, Fate>,
    /// Of these, the ones that were put back out of the dead letters, with the latest entry that is known.
    followed: BTreeMap<EntryId, EntryId>,
    vouchers: BTreeMap<VoucherId, VoucherAudit>,
    /// Vouchers that Redis was asked for.
    asked: BTreeSet<VoucherId>,
    /// Vouchers that have units left and are inside their sale window, by MySQL.
    on_sale: BTreeSet<VoucherId>,
    /// MySQL's stocks, read before all else, of vouchers whose sale is not over.
    before: BTreeMap<VoucherId, StockRow>,
    /// Where the stream ended before the stocks in Redis were read.
    end: EntryId,
    /// What a surplus is counted from.
    offers: BTreeMap<VoucherId, Offer>,
}

/// Units of a voucher that Redis has taken from its stock and MySQL has not yet, and others of which nobody knows.
#[derive(Clone, Copy, Debug, Default)]
struct Offer {
    /// Units that Redis offered.
    stock: Option<i64>,
    /// Our scripts admit orders of it.
    has_journal: bool,
    /// Of orders that the journal holds as admitted, and that are in flight or dead and have no row.
    open_units: i64,
    /// Of orders that the journal does not hold: their producers may have taken them from the stock in Redis or not.
    doubtful_units: i64,
}

impl Evidence {
    pub(super) fn reserve(&mut self, admissions: usize) {
        self.admissions.reserve_exact(admissions);
    }

    /// The vouchers that were named so far by anyone.
    pub(super) fn vouchers(&self) -> Vec<VoucherId> {
        self.vouchers.keys().copied().collect()
    }

    pub(super) fn voucher(&mut self, voucher: VoucherId) -> &mut VoucherAudit {
        self.vouchers.entry(voucher).or_insert_with(|| VoucherAudit::new(voucher))
    }

    pub(super) fn note_vouchers(&mut self, vouchers: Vec<VoucherId>) {
        for voucher in vouchers {
            self.voucher(voucher);
        }
    }

    /// An entry of the stream.
    pub(super) fn note_entry(&mut self, entry: EntryId, order: &Order) {
        self.voucher(order.voucher);
        self.admit(Admission {
            order: order.id,
            voucher: order.voucher,
            user: Some(order.user),
            entry,
            has_entry: true,
            quantity: narrow(order.quantity.get()),
            ..Admission::unknown(order.voucher, order.id)
        });
    }

    /// An entry of the stream that is no order, and what it was before, if it was put back.
    pub(super) fn note_unreadable(&mut self, entry: EntryId, followed: &[EntryId], could_be_order: bool) {
        self.unreadable.insert(entry, if could_be_order { Fate::Lost } else { Fate::NoOrder });
        self.followed.extend(followed.iter().map(|old| (*old, entry)));
    }

    /// What the group has still to do: all after `delivered`, and its pending list.
    pub(super) fn note_in_flight(&mut self, delivered: EntryId, pending: &HashSet<EntryId>) {
        let is_in_flight = |entry: EntryId| entry > delivered || pending.contains(&entry);
        for admission in &mut self.admissions {
            admission.is_in_flight |= is_in_flight(admission.entry);
        }
        for (entry, fate) in &mut self.unreadable {
            if is_in_flight(*entry) {
                *fate = (*fate).min(Fate::InFlight);
            }
        }
    }

    /// Letters of the dead stream. Their entries may have been trimmed away.
    pub(super) fn note_dead(&mut self, letters: &[Letter]) {
        for letter in letters {
            let Some(order) = &letter.order else {
                self.note_dead_unreadable(letter);
                continue;
            };
            if !self.bury(letter.entry, order) {
                self.note_entry(letter.entry, order);
                if let Some(admission) = self.admissions.last_mut() {
                    admission.is_dead = true;
                }
            }
        }
        self.sort();
    }

    /// Letters that came after the dead stream had been read.
    pub(super) fn note_late_letters(&mut self, letters: &[Letter]) {
        for letter in letters {
            match &letter.order {
                Some(order) => _ = self.bury(letter.entry, order),
                None => self.note_dead_unreadable(letter),
            }
        }
    }

    fn note_dead_unreadable(&mut self, letter: &Letter) {
        self.unreadable.insert(letter.entry, Fate::Dead);
        self.followed.extend(letter.followed.iter().map(|old| (*old, letter.entry)));
    }

    /// Entries of which one that is no order was put back after the stream had been read.
    pub(super) fn note_late_unreadable(&mut self, followed: &[EntryId]) {
        for entry in followed {
            self.unreadable.entry(*entry).and_modify(|fate| *fate = (*fate).min(Fate::InFlight));
        }
    }

    /// False when the entry is not known.
    fn bury(&mut self, entry: EntryId, order: &Order) -> bool {
        let mut is_known = false;
        for admission in self.of(order.voucher, order.id).filter(|admission| admission.entry == entry) {
            admission.is_dead = true;
            is_known = true;
        }
        is_known
    }

    /// Movements of a voucher's journal.
    pub(super) fn note_journal(&mut self, voucher: VoucherId, movements: Vec<(OrderId, Movement)>) {
        let offer = self.offers.entry(voucher).or_default();
        offer.has_journal |= !movements.is_empty();
        for (_, movement) in &movements {
            if let Movement::Release { second_order_units } = movement {
                offer.doubtful_units += i64::from(*second_order_units);
            }
        }
        for (order, movement) in movements {
            let mut is_known = false;
            for admission in self.of(voucher, order) {
                is_known = true;
                admission.is_released |= matches!(movement, Movement::Release { .. });
                if let Movement::Admit { user, .. } = movement {
                    let is_own = user.is_none() || user == admission.user;
                    admission.holder = Some(if is_own { Holder::Own } else { Holder::Other });
                }
            }
            if is_known {
                continue;
            }
            let mut admission = Admission::unknown(voucher, order);
            match movement {
                Movement::Admit { user, quantity, at_ms } => {
                    admission.entry = EntryId { ms: at_ms, seq: 0 };
                    admission.user = user;
                    admission.quantity = quantity;
                    admission.holder = Some(Holder::Own);
                }
                Movement::Release { .. } => admission.is_released = true,
            }
            self.admit(admission);
        }
    }

    /// Puts what was noted last in its place; until then it is not found.
    pub(super) fn sort(&mut self) {
        if self.unsorted > 0 {
            self.admissions
                .sort_unstable_by_key(|admission| (admission.order, admission.voucher, admission.entry));
            self.unsorted = 0;
        }
    }

    /// A row, read for the first time.
    pub(super) fn note_row(&mut self, row: &OrderRow) {
        let is_known = self.match_row(row);
        if !is_known && row.state == RowState::Live {
            self.offers.entry(row.voucher).or_default().doubtful_units += row.quantity;
        }
        let voucher = self.voucher(row.voucher);
        match row.state {
            RowState::Live => {
                voucher.live_orders += 1;
                voucher.live_units += row.quantity;
            }
            RowState::Cancelled => voucher.cancelled_orders += 1,
            RowState::Contradictory => {
                voucher.contradictory.add(row.id);
                voucher.contradictory_units += row.quantity;
            }
        }
        voucher.unknown_orders += u64::from(!is_known);
        voucher.forgotten_orders += u64::from(!is_known && row.has_entry);
    }

    /// What Redis holds of a voucher, which it was asked for.
    pub(super) fn note_redis_stock(&mut self, voucher: VoucherId, stock: Option<i64>) {
        self.asked.insert(voucher);
        self.voucher(voucher).redis_stock = stock;
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

    /// MySQL's stocks, before anything else is read.
    pub(super) fn note_stocks_before(&mut self, rows: Vec<StockRow>) {
        let rows = rows.into_iter().filter(|row| !row.is_over);
        self.before = rows.map(|row| (row.voucher, row)).collect();
    }

    /// The vouchers of which a surplus is measured.
    pub(super) fn measured(&self) -> Vec<VoucherId> {
        self.before.keys().copied().collect()
    }

    /// What Redis offered when the stream had ended there.
    pub(super) fn note_offers(
        &mut self,
        end: EntryId,
        stocks: impl Iterator<Item = (VoucherId, Option<i64>)>,
    ) {
        self.end = end;
        for (voucher, stock) in stocks {
            self.offers.entry(voucher).or_default().stock = stock;
        }
    }

    /// A voucher's row.
    pub(super) fn note_stock(&mut self, row: &StockRow) {
        if row.has_begun && !row.is_over && row.stock.is_some_and(|stock| stock > 0) {
            self.on_sale.insert(row.voucher);
        }
        let voucher = self.voucher(row.voucher);
        (voucher.stock, voucher.initial_stock) = (row.stock, row.initial_stock);
    }

    /// Compares a row with the admissions of its id; false when Redis knows none for its voucher.
    pub(super) fn match_row(&mut self, row: &OrderRow) -> bool {
        let mut is_known = false;
        for admission in self.of_order(row.id) {
            admission.row = admission.compare(row);
            is_known |= admission.voucher == row.voucher;
        }
        is_known
    }

    /// An order that was admitted after the stream had been read.
    pub(super) fn note_late(&mut self, voucher: VoucherId, order: OrderId) {
        for admission in self.of(voucher, order) {
            admission.is_in_flight = true;
        }
    }

    /// Orders with an admission of which nothing is known, or that is cancelled and may have been given back since.
    pub(super) fn suspects(&mut self) -> Vec<Suspect> {
        self.sort();
        let is_suspect = |it: &&Admission| it.fate() >= Fate::Mismatched || it.is_kept();
        let suspects = self.admissions.iter().filter(is_suspect);
        let mut suspects: Vec<Suspect> =
            suspects.map(|admission| (admission.voucher, admission.order)).collect();
        suspects.dedup();
        suspects
    }

    pub(super) fn has_lost_unreadable(&self) -> bool {
        self.unreadable.keys().any(|entry| self.fate_of_unreadable(*entry) == Fate::Lost)
    }

    /// Its own fate, or that of the entry as which it was put back.
    fn fate_of_unreadable(&self, entry: EntryId) -> Fate {
        let fate = |entry: &EntryId| self.unreadable.get(entry).copied().unwrap_or(Fate::Lost);
        let later = self.followed.get(&entry).map_or(Fate::Lost, fate);
        fate(&entry).min(later)
    }

    /// Counts it all.
    pub(super) fn into_report(mut self) -> AuditReport {
        self.sort();
        let admissions = std::mem::take(&mut self.admissions);
        for group in admissions.chunk_by(|a, b| (a.order, a.voucher) == (b.order, b.voucher)) {
            self.count(group);
        }
        self.find_forgotten();
        self.find_surplus();
        for audit in self.vouchers.values_mut() {
            audit.redis_stock_due = audit.stock.map(|stock| stock - audit.in_flight_units - audit.dead_units);
        }
        let mut unreadable = Unreadable::default();
        for entry in self.unreadable.keys() {
            unreadable.total += 1;
            match self.fate_of_unreadable(*entry) {
                Fate::Dead => unreadable.dead += 1,
                Fate::InFlight => unreadable.in_flight += 1,
                Fate::NoOrder => unreadable.no_orders += 1,
                _ => unreadable.lost.add(*entry),
            }
        }
        AuditReport { vouchers: self.vouchers.into_values().collect(), unreadable }
    }

    /// A voucher that came on sale while this was going on was asked for in MySQL only. Of one that was taken over, or sold
    /// by another program, no order came out of a stream.
    fn find_forgotten(&mut self) {
        for voucher in self.on_sale.intersection(&self.asked) {
            if let Some(audit) = self.vouchers.get_mut(voucher) {
                audit.is_forgotten =
                    audit.redis_stock.is_none() && audit.admitted == 0 && audit.forgotten_orders > 0;
                // Who cannot read its keys does not know what Redis holds.
                audit.is_forgotten &= audit.wrong_keys.total == 0;
            }
        }
    }

    /// What Redis offers too much, at least. Not of a voucher that was restocked meanwhile, nor of one whose orders our
    /// scripts do not admit: nobody can tell then what Redis' stock is for.
    fn find_surplus(&mut self) {
        for (id, before) in &self.before {
            let (Some(audit), Some(offer)) = (self.vouchers.get_mut(id), self.offers.get(id)) else {
                continue;
            };
            let is_same = before.initial_stock == audit.initial_stock;
            if let (Some(redis), Some(mysql), true) =
                (offer.stock, before.stock, is_same && offer.has_journal)
            {
                let surplus = redis + offer.open_units - offer.doubtful_units - mysql;
                audit.surplus_at_least = Some(surplus.max(0));
            }
        }
    }

    /// Counts all admissions of one order.
    fn count(&mut self, group: &[Admission]) {
        let [first, ..] = group else { return };
        let units = i64::from(first.quantity);
        self.voucher(first.voucher).admitted += 1;
        let fates = group.iter().map(|admission| admission.fate_among(group));
        let fate = worst_if_wrong(fates);
        self.count_offer(fate, group);
        let voucher = self.voucher(first.voucher);
        match fate {
            Fate::Written if is_half_cancelled(group) => {
                voucher.dead += 1;
                voucher.dead_units += units;
                // What is another's by the journal cannot be given back by its letter.
                if group.iter().any(|it| it.row == Row::Cancelled && it.holder != Some(Holder::Other)) {
                    voucher.half_cancelled.add(first.order);
                }
            }
            Fate::Written => {
                voucher.written += 1;
                if group.iter().any(Admission::is_kept) && !group.iter().any(Admission::is_open) {
                    voucher.kept.add(first.order);
                }
            }
            Fate::Released => voucher.released += 1,
            Fate::Dead => {
                voucher.dead += 1;
                voucher.dead_units += units;
            }
            Fate::InFlight => {
                voucher.in_flight += 1;
                voucher.in_flight_units += units;
            }
            Fate::Mismatched => voucher.mismatched.add(first.order),
            Fate::Lost | Fate::NoOrder => {
                voucher.lost.add(first.order);
                voucher.note_lost(group.iter().map(|admission| (admission.entry, admission.has_entry)));
            }
        }
        if group.iter().any(|admission| admission.is_released && admission.row == Row::Live) {
            voucher.doubled_back.add(first.order);
        }
    }

    /// Counts what an order says about the stock in Redis. One whose entry is not known may have been admitted after that stock
    /// was read.
    fn count_offer(&mut self, fate: Fate, group: &[Admission]) {
        let [first, ..] = group else { return };
        let units = i64::from(first.quantity);
        let is_journaled = group.iter().any(|it| it.holder == Some(Holder::Own) || it.is_released);
        let is_open = matches!(fate, Fate::Dead | Fate::InFlight)
            && group.iter().all(|it| it.row == Row::None)
            && group.iter().any(|it| it.has_entry && it.entry <= self.end);
        let offer = self.offers.entry(first.voucher).or_default();
        match fate {
            _ if is_open && is_journaled => offer.open_units += units,
            Fate::Written if !is_journaled => offer.doubtful_units += units,
            _ => {}
        }
    }

    fn admit(&mut self, admission: Admission) {
        self.admissions.push(admission);
        self.unsorted += 1;
    }

    fn of_order(&mut self, order: OrderId) -> &mut [Admission] {
        let sorted = self.admissions.len() - self.unsorted;
        let sorted = &mut self.admissions[..sorted];
        let from = sorted.partition_point(|admission| admission.order < order);
        let length = sorted[from..].iter().take_while(|admission| admission.order == order).count();
        &mut sorted[from..from + length]
    }

    fn of(&mut self, voucher: VoucherId, order: OrderId) -> impl Iterator<Item = &mut Admission> {
        self.of_order(order).iter_mut().filter(move |admission| admission.voucher == voucher)
    }
}

impl Admission {
    fn unknown(voucher: VoucherId, order: OrderId) -> Self {
        Self {
            order,
            voucher,
            user: None,
            entry: EntryId::MIN,
            has_entry: false,
            quantity: 0,
            row: Row::None,
            holder: None,
            is_released: false,
            is_dead: false,
            is_in_flight: false,
        }
    }

    fn compare(&self, row: &OrderRow) -> Row {
        let is_same = self.voucher == row.voucher
            && self.user.is_none_or(|user| user.get() == row.user)
            && (self.quantity == 0 || i64::from(self.quantity) == row.quantity);
        match row.state {
            _ if !is_same => Row::Other,
            RowState::Live => Row::Live,
            RowState::Cancelled => Row::Cancelled,
            RowState::Contradictory => Row::Contradictory,
        }
    }

    /// It is cancelled, and Redis keeps its units.
    fn is_kept(&self) -> bool {
        self.row == Row::Cancelled && self.holder == Some(Holder::Own) && !self.is_released
    }

    fn is_open(&self) -> bool {
        self.is_in_flight || self.is_dead
    }

    fn fate(&self) -> Fate {
        match self.row {
            Row::Live => Fate::Written,
            _ if self.is_released => Fate::Released,
            Row::Cancelled | Row::Contradictory => Fate::Written,
            _ if self.is_dead => Fate::Dead,
            _ if self.is_in_flight => Fate::InFlight,
            Row::Other => Fate::Mismatched,
            Row::None => Fate::Lost,
        }
    }

    /// Its fate, or that of a later entry that brings the very same order again: it was put back out of the dead
    /// letters, or run again.
    fn fate_among(&self, group: &[Self]) -> Fate {
        let is_same = |other: &&Self| (other.user, other.quantity) == (self.user, self.quantity);
        let again = group.iter().filter(is_same).map(Self::fate).min();
        match self.fate() {
            fate @ (Fate::Mismatched | Fate::Lost) => again.unwrap_or(fate),
            fate => fate,
        }
    }
}

/// One entry of an order that was wronged is enough to say so; otherwise its best fate counts.
fn worst_if_wrong(fates: impl Iterator<Item = Fate> + Clone) -> Fate {
    let worst = fates.clone().max().unwrap_or(Fate::Lost);
    if worst >= Fate::Mismatched { worst } else { fates.min().unwrap_or(worst) }
}

/// Its row is cancelled, but its letter is there and holds its units.
fn is_half_cancelled(group: &[Admission]) -> bool {
    group.iter().any(|admission| admission.row == Row::Cancelled && admission.is_dead)
        && !group.iter().any(|admission| admission.is_released)
}

fn narrow(quantity: i64) -> u16 {
    u16::try_from(quantity).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quantity, Slot};

    const VOUCHER: i64 = 7;

    fn order(id: i64, user: i64) -> Order {
        Order {
            id: id.try_into().unwrap(),
            user: user.try_into().unwrap(),
            voucher: VOUCHER.try_into().unwrap(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
        }
    }

    fn row(order: &Order) -> OrderRow {
        let Order { id, user, voucher, .. } = *order;
        OrderRow { id, user: user.get(), voucher, quantity: 1, state: RowState::Live, has_entry: true }
    }

    fn entry(seq: u64) -> EntryId {
        EntryId { ms: 1, seq }
    }

    fn letter(seq: u64, order: Option<Order>) -> Letter {
        Letter { entry: entry(seq), followed: Vec::new(), order }
    }

    fn audited(evidence: Evidence) -> VoucherAudit {
        evidence.into_report().vouchers.remove(0)
    }

    /// Orders 1 ..= n of users 1 ..= n in entries 1-1 ..= 1-n, all of them delivered.
    fn admitted(n: i64) -> Evidence {
        let mut evidence = Evidence::default();
        for id in 1..=n {
            evidence.note_entry(entry(id.unsigned_abs()), &order(id, id));
        }
        evidence.sort();
        evidence
    }

    #[test]
    fn an_admission_takes_no_more_memory_than_we_say() {
        assert!(size_of::<Admission>() <= 48);
    }

    #[test]
    fn each_fate_is_told_from_the_others() {
        let mut evidence = admitted(6);
        evidence.note_in_flight(entry(5), &HashSet::from([entry(4)]));
        evidence.note_dead(&[letter(3, Some(order(3, 3)))]);
        evidence.note_journal(
            VOUCHER.try_into().unwrap(),
            vec![(2.try_into().unwrap(), Movement::Release { second_order_units: 0 })],
        );
        evidence.note_row(&row(&order(1, 1)));
        let audit = audited(evidence);
        assert_eq!(
            (audit.admitted, audit.written, audit.released, audit.dead, audit.in_flight),
            (6, 1, 1, 1, 2)
        );
        assert_eq!((audit.lost.total, &audit.lost.first[..]), (1, &["5".to_owned()][..]));
    }

    #[test]
    fn a_cancelled_order_that_has_a_letter_is_dead_until_it_is_given_back() {
        for is_released in [false, true] {
            let mut evidence = admitted(1);
            // It was put back once: its first entry is settled, its second one buried.
            evidence.note_entry(entry(2), &order(1, 1));
            evidence.sort();
            evidence.note_dead(&[letter(2, Some(order(1, 1)))]);
            if is_released {
                let released = vec![(1.try_into().unwrap(), Movement::Release { second_order_units: 0 })];
                evidence.note_journal(VOUCHER.try_into().unwrap(), released);
            }
            evidence.note_row(&OrderRow { state: RowState::Cancelled, ..row(&order(1, 1)) });
            let audit = audited(evidence);
            assert_eq!(audit.failures(), Vec::<String>::new());
            assert_eq!((audit.written, audit.released), (0, u64::from(is_released)));
            let expected = if is_released { (0, 0, 0) } else { (1, 1, 1) };
            assert_eq!((audit.dead, audit.dead_units, audit.half_cancelled.total), expected);
        }
    }

    #[test]
    fn a_cancelled_order_that_the_journal_has_as_admitted_is_named_unless_it_is_open_or_of_another() {
        let mut evidence = admitted(4);
        evidence.note_in_flight(entry(4), &HashSet::from([entry(2)]));
        evidence.note_dead(&[letter(3, Some(order(3, 3)))]);
        // The third is another's by the journal, and the fourth was given back.
        let admit = |user: i64| Movement::Admit { user: user.try_into().ok(), quantity: 1, at_ms: 0 };
        let notes =
            [(1, admit(1)), (2, admit(2)), (3, admit(9)), (4, Movement::Release { second_order_units: 0 })];
        let notes = notes.map(|(id, note)| (id.try_into().unwrap(), note)).into();
        evidence.note_journal(VOUCHER.try_into().unwrap(), notes);
        for id in 1..=4 {
            evidence.note_row(&OrderRow { state: RowState::Cancelled, ..row(&order(id, id)) });
        }
        assert_eq!(evidence.suspects().len(), 2, "they may have been given back by now");
        let audit = audited(evidence);
        assert_eq!(audit.failures(), Vec::<String>::new());
        assert_eq!((audit.written, audit.released), (2, 1));
        assert_eq!((audit.dead, audit.half_cancelled.total), (1, 0));
        assert_eq!((audit.kept.total, &audit.kept.first[..]), (1, &["1".to_owned()][..]));
    }

    #[test]
    fn a_second_entry_of_the_same_order_is_the_same_order() {
        let mut evidence = admitted(1);
        evidence.note_entry(entry(2), &order(1, 1));
        evidence.sort();
        evidence.note_row(&row(&order(1, 1)));
        let audit = audited(evidence);
        assert_eq!((audit.admitted, audit.written, audit.lost.total), (1, 1, 0));
    }

    #[test]
    fn an_order_that_was_put_back_is_where_its_latest_entry_is() {
        for is_dead_again in [true, false] {
            let mut evidence = admitted(1);
            evidence.note_entry(entry(2), &order(1, 1));
            evidence.sort();
            evidence.note_in_flight(entry(if is_dead_again { 2 } else { 1 }), &HashSet::new());
            if is_dead_again {
                evidence.note_dead(&[letter(2, Some(order(1, 1)))]);
            }
            let audit = audited(evidence);
            let expected = if is_dead_again { (1, 1, 0, 0) } else { (1, 0, 1, 0) };
            assert_eq!((audit.admitted, audit.dead, audit.in_flight, audit.lost.total), expected);
        }
        // Another user's order under the same id is not the same order.
        let mut evidence = admitted(1);
        evidence.note_entry(entry(2), &order(1, 99));
        evidence.sort();
        evidence.note_in_flight(entry(1), &HashSet::new());
        assert_eq!(audited(evidence).lost.total, 1);
    }

    #[test]
    fn an_order_with_a_taken_id_may_be_put_back_and_die_again() {
        let mut evidence = admitted(1);
        for seq in [2, 3] {
            evidence.note_entry(entry(seq), &order(1, 99));
        }
        evidence.sort();
        evidence.note_dead(&[letter(3, Some(order(1, 99)))]);
        evidence.note_row(&row(&order(1, 1)));
        let audit = audited(evidence);
        assert_eq!((audit.written, audit.mismatched.total), (1, 0));
    }

    #[test]
    fn what_is_no_order_and_was_put_back_is_where_its_latest_entry_is() {
        let mut evidence = Evidence::default();
        evidence.note_unreadable(entry(1), &[], true);
        evidence.note_unreadable(entry(2), &[], true);
        evidence.note_unreadable(entry(3), &[entry(1)], true);
        evidence.note_in_flight(entry(2), &HashSet::new());
        evidence.note_dead(&[Letter { followed: vec![entry(2)], ..letter(9, None) }]);
        assert!(!evidence.has_lost_unreadable());
        let unreadable = evidence.into_report().unreadable;
        assert_eq!((unreadable.dead, unreadable.in_flight, unreadable.lost.total), (2, 2, 0));
    }

    #[test]
    fn another_users_entry_with_a_taken_id_must_be_buried() {
        for is_buried in [true, false] {
            let mut evidence = admitted(1);
            evidence.note_entry(entry(2), &order(1, 99));
            evidence.sort();
            if is_buried {
                evidence.note_dead(&[letter(2, Some(order(1, 99)))]);
            }
            evidence.note_row(&row(&order(1, 1)));
            let audit = audited(evidence);
            assert_eq!((audit.written, audit.mismatched.total), if is_buried { (1, 0) } else { (0, 1) });
        }
    }

    #[test]
    fn a_trimmed_entry_is_followed_by_its_journal() {
        let mut evidence = Evidence::default();
        let admit = |user: i64| Movement::Admit { user: user.try_into().ok(), quantity: 1, at_ms: 0 };
        let id = |id: i64| OrderId::try_from(id).unwrap();
        evidence.note_journal(
            VOUCHER.try_into().unwrap(),
            vec![(id(1), admit(1)), (id(2), admit(2)), (id(3), Movement::Release { second_order_units: 0 })],
        );
        evidence.sort();
        evidence.note_in_flight(EntryId::MIN, &HashSet::new());
        evidence.note_row(&row(&order(1, 1)));
        evidence.note_row(&row(&order(8, 8)));
        evidence.voucher(VOUCHER.try_into().unwrap());
        let audit = audited(evidence);
        assert_eq!((audit.admitted, audit.written, audit.released, audit.lost.total), (3, 1, 1, 1));
        assert_eq!(audit.unknown_orders, 1);
    }

    #[test]
    fn an_unreadable_entry_must_be_buried_or_in_flight() {
        let mut evidence = Evidence::default();
        for seq in 1..=3 {
            evidence.note_unreadable(entry(seq), &[], true);
        }
        evidence.note_in_flight(entry(2), &HashSet::new());
        evidence.note_dead(&[letter(1, None)]);
        let unreadable = evidence.into_report().unreadable;
        assert_eq!(
            (unreadable.total, unreadable.dead, unreadable.in_flight, unreadable.lost.total),
            (3, 1, 1, 1)
        );
    }
}
