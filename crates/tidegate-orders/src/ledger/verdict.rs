//! Decides each order of a batch: pure decisions over what the database holds.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet, hash_map::Entry};
use serde::Serialize;

use super::Incoming;
use crate::order::{Order, OrderId, Slot, UserId, Uses, VoucherId};

/// The ledger's verdict on an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The order was written by this call.
    Created,
    /// The order was written before.
    AlreadyThere,
    /// The order's row exists and no longer holds anything: the order was cancelled or refunded, before or after it was
    /// written.
    Cancelled,
    /// The order will never be written, and what Redis holds for it must be released.
    Refused(Refusal),
    /// MySQL has no such voucher, or its stock is NULL.
    UnknownVoucher,
    /// The voucher has had limits since this millisecond, and the entry came later without stating its uses of them.
    PastLimits(i64),
    /// Another order, of another user or voucher, has this id.
    IdTaken,
    /// The database refuses the row, with this message.
    Rejected(String),
    /// Other sessions are in the way. Nothing was written and nothing is wrong; try again later.
    Contended(Contention),
}

/// The cause that an order waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contention {
    /// Another session holds the row of the order's voucher.
    Voucher(VoucherId),
    /// Another session holds a row that this order needs, other than its voucher's.
    Row(OrderId),
    /// No cause of its own is known. Either the server rolled the batch back six times in favour of others, as
    /// certification does with writers at several nodes. Or other sessions held many rows of the batch, and its time
    /// was up before this order's turn.
    Batch,
    /// The node of our sessions does not show a row, perhaps only because it is behind the other nodes of its cluster.
    NodeBehind,
    /// MySQL has lost an order of this voucher, or the end of one, that Redis still has. A repair brings it back.
    Lost(VoucherId),
}

/// Whether the absence of a row on a node is reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The node shows everything that was committed on any other node before the check.
    Current,
    /// The node may lack such rows: nothing can be decided now from their absence.
    Behind,
}

impl From<Contention> for Verdict {
    fn from(contention: Contention) -> Self {
        Self::Contended(contention)
    }
}

/// The reason why an order is refused. It is stored in `tidegate_refusal`, so that the same order always gets the same
/// answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The user has a live order for this voucher in this slot.
    UserHasOrder,
    /// The stock in MySQL does not cover the order.
    OutOfStock,
}

impl Refusal {
    /// The word for this reason in rows, logs and the journal.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::UserHasOrder => "user_has_order",
            Self::OutOfStock => "out_of_stock",
        }
    }

    /// Reads a word that [`Refusal::word`] has written. An unknown word, from a newer version, reads as the reason that
    /// raises no stock.
    pub(super) fn from_word(word: &str) -> Self {
        if word == Self::UserHasOrder.word() { Self::UserHasOrder } else { Self::OutOfStock }
    }
}

/// The unique key of live orders: a user has at most one for a voucher in a slot.
pub(super) type SlotKey = (VoucherId, UserId, Slot);

pub(super) fn slot_key(order: &Order) -> SlotKey {
    (order.voucher, order.user, order.slot)
}

/// The columns of a voucher's row that set the terms of its sale. In most rows, all of them are NULL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SaleTerms {
    /// The column `pay_within`: the seconds in which an order must be paid. 0: it never expires. None: the
    /// configuration decides.
    pub pay_within_s: Option<i64>,
    /// The column `limits_since`: entries after this millisecond must state what they used of limits. None: there are
    /// no limits.
    pub limits_since_ms: Option<i64>,
}

impl SaleTerms {
    /// The millisecond since which entries must state their uses of limits, if an entry of `entry_ms` must.
    pub(super) fn past_limits(&self, entry_ms: u64) -> Option<i64> {
        self.limits_since_ms.filter(|since_ms| entry_ms > since_ms.unsigned_abs())
    }
}

/// The contents of the database that matter to a batch: assumed, or read with or without the locks of its vouchers.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The units that each voucher has left.
    pub stocks: HashMap<VoucherId, i64>,
    /// The ids that are taken, with user and voucher as the row has them: other writers may have put any number there.
    pub ids: HashMap<OrderId, (i64, i64)>,
    /// The taken ids whose row is cancelled or refunded.
    pub cancelled: HashSet<OrderId>,
    /// The earlier refusals, with user and voucher.
    pub refusals: HashMap<OrderId, (i64, i64, Refusal)>,
    /// The number of refused orders of each voucher.
    pub refused_of: HashMap<VoucherId, i64>,
    /// The slots that are taken, each with the id of its order, as the row has it.
    pub slot_keys: HashMap<SlotKey, i64>,
    /// The orders in these slots whose end MySQL has lost.
    pub ended: HashSet<OrderId>,
    /// The terms of the vouchers whose rows state any.
    pub terms: HashMap<VoucherId, SaleTerms>,
}

impl Known {
    /// The assumptions that most often hold: each voucher has enough stock, and neither the orders nor their users were
    /// seen before.
    pub fn assumed(part: &[&Incoming]) -> Self {
        let stocks = part.iter().map(|incoming| (incoming.order.voucher, i64::MAX)).collect();
        let (ids, slot_keys) = (HashMap::with_capacity(part.len()), HashMap::with_capacity(part.len()));
        Self { stocks, ids, slot_keys, ..Self::default() }
    }

    /// Adds the results of another look-up.
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

    /// The other orders that hold the slots of the new orders in `part`.
    pub fn holders<'a>(&self, part: impl IntoIterator<Item = &'a Incoming>) -> Vec<(VoucherId, OrderId)> {
        let holder = |Incoming { order, .. }: &Incoming| {
            let is_new = !self.ids.contains_key(&order.id) && !self.refusals.contains_key(&order.id);
            let holder = self.slot_keys.get(&slot_key(order)).filter(|_| is_new)?;
            Some((order.voucher, OrderId::try_from(*holder).ok()?))
        };
        part.into_iter().filter_map(holder).collect()
    }
}

/// A verdict, and whether the database must be changed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict on the order.
    pub verdict: Verdict,
    /// Whether the verdict is new and must still be written.
    pub is_new: bool,
}

impl Decided {
    /// Whether the verdict holds only if the database has nothing about the order, and no write checks that.
    pub(super) fn needs_its_own_row(&self) -> bool {
        matches!(self.verdict, Verdict::PastLimits(_) | Verdict::Contended(Contention::Lost(_)))
    }

    /// Whether nothing is written for the verdict because a row or a refusal exists already.
    pub(super) fn rests_on_a_row(&self) -> bool {
        !self.is_new
            && matches!(self.verdict, Verdict::AlreadyThere | Verdict::Cancelled | Verdict::Refused(_))
    }
}

/// Decides the orders one after the other, so that earlier ones win. Adds the decisions to `known`.
pub(super) fn decide<'a>(part: impl IntoIterator<Item = &'a Incoming>, known: &mut Known) -> Vec<Decided> {
    part.into_iter().map(|incoming| decide_one(incoming, known)).collect()
}

/// The verdicts of a batch. If its node is behind the others, orders of a voucher that the node does not show wait.
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
    // The order's own row comes first: it was sold, so none of its units may be released. Then comes its own refusal.
    // An id may have both, under different vouchers: refusals of other vouchers are not always looked up.
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

/// The changes that must be written for the verdicts of a batch.
#[derive(Debug, Default)]
pub(super) struct Changes<'a> {
    /// The orders to write, by ascending id.
    pub created: Vec<&'a Incoming>,
    /// The created orders that used limits, with their uses, by ascending id.
    pub limited: Vec<(&'a Incoming, &'a Uses)>,
    /// The created orders that must be paid in time, with the seconds that they have, by ascending id.
    pub timed: Vec<(&'a Incoming, i64)>,
    pub refused: Vec<(&'a Incoming, Refusal)>,
    /// The changes of stocks by ascending voucher, the order in which they are locked.
    pub stocks: Vec<(VoucherId, StockChange)>,
}

/// The change that a batch makes in the row of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StockChange {
    /// The units that the batch takes.
    pub units: i64,
    /// The number of orders that it refuses.
    pub refused: i64,
    /// The stock must be below this. Otherwise an order was refused as out of stock although stock remains.
    pub below: i64,
    /// The row must hold these terms. Otherwise orders were written on other terms than the voucher's.
    pub terms: SaleTerms,
}

/// Collects the changes for the decisions of a batch. `default_s` is the time for orders whose voucher has no time of
/// its own; 0: they never expire.
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

    /// The number of orders of the changed vouchers that were refused at the time of the look-up.
    pub fn refused_before(&self, known: &Known) -> i64 {
        self.stocks.iter().filter_map(|(voucher, _)| known.refused_of.get(voucher)).sum()
    }

    /// Whether a stock covers only a part of the units that the batch asks for. Only a read under its lock can decide
    /// which part.
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
