//! What becomes of each order of a batch: pure decisions over what the database holds.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet, hash_map::Entry};
use serde::Serialize;

use super::Incoming;
use crate::order::{Order, OrderId, Slot, UserId, Uses, VoucherId};

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was written now.
    Created,
    /// It was there: delivered and committed before.
    AlreadyThere,
    /// It was there, and its row holds nothing any more: it was cancelled or refunded, before or after it was written.
    Cancelled,
    /// It will never be written, and what Redis holds for it is to be released.
    Refused(Refusal),
    /// No such voucher in MySQL, or one whose stock is NULL.
    UnknownVoucher,
    /// The voucher has limits since this millisecond, and the entry came after it by a way that counts none.
    PastLimits(i64),
    /// Another order, of another user or voucher, has this id.
    IdTaken,
    /// The database refuses the row, with these words.
    Rejected(String),
    /// Others are in the way: nothing was written, nothing is wrong, and it is to be tried again later.
    Contended(Contention),
}

/// What an order waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contention {
    /// Somebody holds the row of its voucher.
    Voucher(VoucherId),
    /// Somebody holds a row that this order needs, and that is not its voucher's.
    Row(OrderId),
    /// Nothing of its own, as far as is known. The server rolled the batch back for the sake of others six times in a row,
    /// as certification does with writers at several nodes. Or so many rows of the batch are held that its time was up
    /// before this order's turn came.
    Batch,
    /// A row that the node of our sessions does not show, and may only not show yet: it is behind the other nodes of its cluster.
    NodeBehind,
    /// What MySQL has lost of an order of this voucher, and Redis has not: the order itself, or its end. A repair brings it back.
    Lost(VoucherId),
}

/// Whether a row that a node does not show is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The node shows what was committed on any other before it was asked.
    Current,
    /// It does not, or nobody knows: nothing can be decided now from what it does not show.
    Behind,
}

impl From<Contention> for Verdict {
    fn from(contention: Contention) -> Self {
        Self::Contended(contention)
    }
}

/// Why an order is refused. Kept in `tidegate_refusal`, so that the same order gets the same answer for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The user has a live order for this voucher in this slot.
    UserHasOrder,
    /// The stock in MySQL does not cover it.
    OutOfStock,
}

impl Refusal {
    /// The word for it in rows, logs and the journal.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::UserHasOrder => "user_has_order",
            Self::OutOfStock => "out_of_stock",
        }
    }

    /// Reads the word back. An unknown word, of a newer version, reads as the one that raises no stock.
    pub(super) fn from_word(word: &str) -> Self {
        if word == Self::UserHasOrder.word() { Self::UserHasOrder } else { Self::OutOfStock }
    }
}

/// The unique key of live orders: a user has at most one for a voucher in a slot.
pub(super) type SlotKey = (VoucherId, UserId, Slot);

pub(super) fn slot_key(order: &Order) -> SlotKey {
    (order.voucher, order.user, order.slot)
}

/// Columns of the row of a voucher; most have NULL in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SaleTerms {
    /// `pay_within`: seconds in which an order has to be paid; 0: it never expires. None: as the configuration says.
    pub pay_within_s: Option<i64>,
    /// `limits_since`: entries after this millisecond must say what they used of limits. None: there are none.
    pub limits_since_ms: Option<i64>,
}

impl SaleTerms {
    /// Since when entries must say what they used of limits, if an entry of this millisecond has to.
    pub(super) fn past_limits(&self, entry_ms: u64) -> Option<i64> {
        self.limits_since_ms.filter(|since_ms| entry_ms > since_ms.unsigned_abs())
    }
}

/// What the database holds that matters to a batch: assumed, or read with or without the locks of its vouchers.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Units left.
    pub stocks: HashMap<VoucherId, i64>,
    /// Ids that are taken, with user and voucher as the row has them: other writers may have put any number there.
    pub ids: HashMap<OrderId, (i64, i64)>,
    /// Of these, the ones whose row is cancelled or refunded.
    pub cancelled: HashSet<OrderId>,
    /// Earlier refusals, with user and voucher.
    pub refusals: HashMap<OrderId, (i64, i64, Refusal)>,
    /// How many orders of each voucher were refused.
    pub refused_of: HashMap<VoucherId, i64>,
    /// Slots that are taken, each with the id of its order, as the row has it.
    pub slot_keys: HashMap<SlotKey, i64>,
    /// Of these orders, those whose end MySQL has lost.
    pub ended: HashSet<OrderId>,
    /// On what terms the orders of the vouchers are written, where their rows say something of it.
    pub terms: HashMap<VoucherId, SaleTerms>,
}

impl Known {
    /// What is most often so: each voucher has stock for all, and none of the orders or their users was seen before.
    pub fn assumed(part: &[&Incoming]) -> Self {
        let stocks = part.iter().map(|incoming| (incoming.order.voucher, i64::MAX)).collect();
        let (ids, slot_keys) = (HashMap::with_capacity(part.len()), HashMap::with_capacity(part.len()));
        Self { stocks, ids, slot_keys, ..Self::default() }
    }

    /// Adds what another look has found.
    pub fn add(&mut self, other: Self) {
        let Self { stocks, ids, cancelled, refusals, refused_of, slot_keys, ended, terms } = other;
        self.stocks.extend(stocks);
        self.ids.extend(ids);
        self.cancelled.extend(cancelled);
        self.refusals.extend(refusals);
        self.refused_of.extend(refused_of);
        self.slot_keys.extend(slot_keys);
        self.ended.extend(ended);
        self.terms.extend(terms);
    }

    /// Other orders that hold the slots of these, which are new.
    pub fn holders<'a>(&self, part: impl IntoIterator<Item = &'a Incoming>) -> Vec<(VoucherId, OrderId)> {
        let holder = |Incoming { order, .. }: &Incoming| {
            let is_new = !self.ids.contains_key(&order.id) && !self.refusals.contains_key(&order.id);
            let holder = self.slot_keys.get(&slot_key(order)).filter(|_| is_new)?;
            Some((order.voucher, OrderId::try_from(*holder).ok()?))
        };
        part.into_iter().filter_map(holder).collect()
    }
}

/// A verdict, and whether the database has to be changed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// What becomes of the order.
    pub verdict: Verdict,
    /// Nothing of it is written yet.
    pub is_new: bool,
}

impl Decided {
    /// It holds only for an order of which the database has nothing, and nothing is written that would check that.
    pub(super) fn needs_its_own_row(&self) -> bool {
        matches!(self.verdict, Verdict::PastLimits(_) | Verdict::Contended(Contention::Lost(_)))
    }

    /// Nothing is written for it, because something is there already.
    pub(super) fn rests_on_a_row(&self) -> bool {
        !self.is_new
            && matches!(self.verdict, Verdict::AlreadyThere | Verdict::Cancelled | Verdict::Refused(_))
    }
}

/// Decides the orders one after the other, so that earlier ones win. Adds what was decided to `known`.
pub(super) fn decide<'a>(part: impl IntoIterator<Item = &'a Incoming>, known: &mut Known) -> Vec<Decided> {
    part.into_iter().map(|incoming| decide_one(incoming, known)).collect()
}

/// The verdicts of a batch. Where its node is behind the others, nothing is decided of a voucher that it does not show.
pub(super) fn verdicts(decided: Vec<Decided>, freshness: Option<Freshness>) -> Vec<Verdict> {
    let verdict = |decided: Decided| match (decided.verdict, freshness) {
        (Verdict::UnknownVoucher, Some(Freshness::Behind)) => Contention::NodeBehind.into(),
        (verdict, _) => verdict,
    };
    decided.into_iter().map(verdict).collect()
}

fn decide_one(incoming: &Incoming, known: &mut Known) -> Decided {
    let order = &incoming.order;
    let owner = (order.user.get(), order.voucher.get());
    let old = |verdict| Decided { verdict, is_new: false };
    let new = |verdict| Decided { verdict, is_new: true };
    // The order's own row comes first: it was sold, so nothing of it may be released. Then its own refusal. An id may have
    // both, under different vouchers: refusals of other vouchers are not always looked up.
    match (known.ids.get(&order.id), known.refusals.get(&order.id)) {
        (Some(taken), _) if *taken == owner && known.cancelled.contains(&order.id) => {
            return old(Verdict::Cancelled);
        }
        (Some(taken), _) if *taken == owner => return old(Verdict::AlreadyThere),
        (_, Some((user, voucher, refusal))) if (*user, *voucher) == owner => {
            return old(Verdict::Refused(*refusal));
        }
        (None, None) => {}
        _ => return old(Verdict::IdTaken),
    }
    let Some(stock) = known.stocks.get_mut(&order.voucher) else { return old(Verdict::UnknownVoucher) };
    if let Some(since_ms) =
        known.terms.get(&order.voucher).and_then(|terms| terms.past_limits(incoming.entry.ms))
        && order.uses.is_none()
    {
        return old(Verdict::PastLimits(since_ms));
    }
    let refusal = match known.slot_keys.entry(slot_key(order)) {
        Entry::Occupied(holder)
            if OrderId::try_from(*holder.get()).is_ok_and(|holder| known.ended.contains(&holder)) =>
        {
            return old(Contention::Lost(order.voucher).into());
        }
        Entry::Occupied(_) => Refusal::UserHasOrder,
        Entry::Vacant(_) if *stock < order.quantity.get() => Refusal::OutOfStock,
        Entry::Vacant(slot) => {
            *stock -= order.quantity.get();
            slot.insert(order.id.get());
            known.ids.insert(order.id, owner);
            return new(Verdict::Created);
        }
    };
    known.refusals.insert(order.id, (owner.0, owner.1, refusal));
    new(Verdict::Refused(refusal))
}

/// What has to be written for the verdicts of a batch.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// By ascending id.
    pub created: Vec<&'a Incoming>,
    /// Of the created ones, those that used limits, with what they used; by ascending id.
    pub limited: Vec<(&'a Incoming, &'a Uses)>,
    /// Of the created ones, those that have to be paid in time, with the seconds that they have; by ascending id.
    pub timed: Vec<(&'a Incoming, i64)>,
    pub refused: Vec<(&'a Incoming, Refusal)>,
    /// By ascending voucher: the order in which stocks are locked.
    pub stocks: Vec<(VoucherId, StockChange)>,
}

/// What a batch changes in the row of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StockChange {
    /// Units taken.
    pub units: i64,
    /// Orders refused.
    pub refused: i64,
    /// The stock must be below this: otherwise an order was refused as out of stock although there is stock.
    pub below: i64,
    /// The row must say this, or orders were written on other terms than the voucher's.
    pub terms: SaleTerms,
}

/// `default_s` is the time for orders whose voucher says nothing of it; 0: they have all the time in the world.
pub(super) fn changes<'a>(
    part: &[&'a Incoming],
    decided: &[Decided],
    terms: &HashMap<VoucherId, SaleTerms>,
    default_s: i64,
) -> Changes<'a> {
    let mut changes = Changes::default();
    let mut stocks: BTreeMap<VoucherId, StockChange> = BTreeMap::new();
    for (incoming, decided) in part.iter().zip(decided).filter(|(_, decided)| decided.is_new) {
        let order = &incoming.order;
        let terms = terms.get(&order.voucher).copied().unwrap_or_default();
        let unchanged = StockChange { units: 0, refused: 0, below: i64::MAX, terms };
        let stock = stocks.entry(order.voucher).or_insert(unchanged);
        match decided.verdict {
            Verdict::Created => {
                stock.units += order.quantity.get();
                changes.created.push(incoming);
                changes.limited.extend(order.uses.as_ref().map(|uses| (*incoming, uses)));
                changes.timed.extend(
                    terms
                        .pay_within_s
                        .or(Some(default_s))
                        .filter(|within_s| *within_s > 0)
                        .map(|within_s| (*incoming, within_s)),
                );
            }
            Verdict::Refused(refusal) => {
                stock.refused += 1;
                if refusal == Refusal::OutOfStock {
                    stock.below = stock.below.min(order.quantity.get());
                }
                changes.refused.push((incoming, refusal));
            }
            _ => {}
        }
    }
    changes.created.sort_unstable_by_key(|incoming| incoming.order.id);
    changes.limited.sort_unstable_by_key(|(incoming, _)| incoming.order.id);
    changes.timed.sort_unstable_by_key(|(incoming, _)| incoming.order.id);
    changes.stocks = stocks.into_iter().collect();
    changes
}

impl Changes<'_> {
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.refused.is_empty()
    }

    /// How many orders of the vouchers that change were refused when they were looked up.
    pub fn refused_before(&self, known: &Known) -> i64 {
        self.stocks.iter().filter_map(|(voucher, _)| known.refused_of.get(voucher)).sum()
    }

    /// A stock covers a part of what is asked of it: which part, only a lock can tell.
    pub fn splits_a_stock(&self) -> bool {
        self.stocks.iter().any(|(_, stock)| stock.units > 0 && stock.below < i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(id: i64, user: i64, quantity: i64) -> Incoming {
        let order = Order {
            id: id.try_into().unwrap(),
            user: user.try_into().unwrap(),
            voucher: 7.try_into().unwrap(),
            quantity: quantity.try_into().unwrap(),
            slot: Slot::FIRST,
            uses: None,
        };
        Incoming { order, entry: tidegate_stream::EntryId::MIN }
    }

    fn stock(units: i64) -> Known {
        Known { stocks: HashMap::from([(7.try_into().unwrap(), units)]), ..Known::default() }
    }

    fn verdicts(part: &[Incoming], mut known: Known) -> Vec<Verdict> {
        decide(part, &mut known).into_iter().map(|decided| decided.verdict).collect()
    }

    #[test]
    fn when_stock_covers_only_a_part_the_earlier_orders_win() {
        let part = [order(1, 1, 2), order(2, 2, 2), order(3, 3, 1)];
        let out = Verdict::Refused(Refusal::OutOfStock);
        assert_eq!(verdicts(&part, stock(3)), [Verdict::Created, out, Verdict::Created]);
    }

    #[test]
    fn the_same_order_twice_in_a_batch_is_written_once() {
        let part = [order(1, 1, 1), order(1, 1, 1), order(2, 1, 1), order(2, 1, 1), order(1, 9, 1)];
        let has = Verdict::Refused(Refusal::UserHasOrder);
        let expected = [Verdict::Created, Verdict::AlreadyThere, has.clone(), has, Verdict::IdTaken];
        assert_eq!(verdicts(&part, stock(9)), expected);
    }

    #[test]
    fn an_earlier_refusal_stands_although_there_is_stock_again() {
        let mut known = stock(9);
        known.refusals.insert(1.try_into().unwrap(), (1, 7, Refusal::OutOfStock));
        let decided = decide(&[order(1, 1, 1)], &mut known);
        assert_eq!(decided, [Decided { verdict: Verdict::Refused(Refusal::OutOfStock), is_new: false }]);
    }

    #[test]
    fn a_refused_order_stays_refused_although_another_order_took_its_id_since() {
        let mut known = stock(9);
        known.refusals.insert(1.try_into().unwrap(), (1, 7, Refusal::OutOfStock));
        known.ids.insert(1.try_into().unwrap(), (1, 8));
        let expected = [Verdict::Refused(Refusal::OutOfStock), Verdict::IdTaken];
        assert_eq!(verdicts(&[order(1, 1, 1), order(1, 2, 1)], known), expected);
    }

    #[test]
    fn an_order_whose_row_stands_is_there_although_it_has_a_refusal_as_well() {
        let mut known = stock(9);
        known.refusals.insert(1.try_into().unwrap(), (1, 7, Refusal::OutOfStock));
        known.ids.insert(1.try_into().unwrap(), (1, 7));
        let expected = [Verdict::AlreadyThere, Verdict::IdTaken];
        assert_eq!(verdicts(&[order(1, 1, 1), order(1, 2, 1)], known), expected);
    }

    #[test]
    fn an_entry_that_came_after_the_limits_and_says_nothing_of_them_is_not_written() {
        let voucher = VoucherId::try_from(7).unwrap();
        let terms = SaleTerms { limits_since_ms: Some(100), ..SaleTerms::default() };
        let known = Known { terms: HashMap::from([(voucher, terms)]), ..stock(9) };
        let mut part = [order(1, 1, 1), order(2, 2, 1), order(3, 3, 1)];
        for (incoming, ms) in part.iter_mut().zip([100, 101, 101]) {
            incoming.entry.ms = ms;
        }
        part[2].order.uses = Uses::parse(b"");
        let expected = [Verdict::Created, Verdict::PastLimits(100), Verdict::Created];
        assert_eq!(verdicts(&part, known), expected);
    }

    #[test]
    fn an_order_is_refused_for_a_live_one_and_waits_for_one_whose_end_is_lost() {
        let mut known = stock(9);
        let slot_of = |user: i64| slot_key(&order(1, user, 1).order);
        known.slot_keys.extend([(slot_of(1), 11), (slot_of(2), 12), (slot_of(4), -1)]);
        known.ended.insert(12.try_into().unwrap());
        let part = [order(1, 1, 1), order(2, 2, 1), order(3, 3, 1), order(4, 4, 1)];
        let id = |id: i64| OrderId::try_from(id).unwrap();
        let voucher = VoucherId::try_from(7).unwrap();
        assert_eq!(known.holders(&part), [(voucher, id(11)), (voucher, id(12))]);
        let has = Verdict::Refused(Refusal::UserHasOrder);
        let waits = Verdict::Contended(Contention::Lost(voucher));
        assert_eq!(verdicts(&part, known), [has.clone(), waits, Verdict::Created, has]);
    }

    #[test]
    fn an_order_for_a_voucher_that_is_not_there_is_no_refusal() {
        assert_eq!(verdicts(&[order(1, 1, 1)], Known::default()), [Verdict::UnknownVoucher]);
    }
}
