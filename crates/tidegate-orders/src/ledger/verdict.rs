//! Decides each order of a batch: pure decisions over what the database holds.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet, hash_map::Entry};
use serde::Serialize;

use super::Incoming;
use crate::order::{Order, OrderId, Slot, UserId, Uses, VoucherId};

/// The decision on an order when it is written to MySQL.
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
    /// MySQL has no row for the voucher, or the stock in the row is NULL.
    UnknownVoucher,
    /// The voucher has had limits since this millisecond, and the later entry does not state its uses of limits.
    PastLimits(i64),
    /// Another order, of another user or voucher, has this id.
    IdTaken,
    /// The database refuses the row, with this message.
    Rejected(String),
    /// Another session or node delays the write. Nothing was written, and the entry is not at fault: try again later.
    Contended(Contention),
}

/// The reason why an order waits: another session or worker holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contention {
    /// Another session holds the row of the order's voucher.
    Voucher(VoucherId),
    /// Another session holds a row that this order needs, other than its voucher's.
    Row(OrderId),
    /// No specific cause is known. Either the server rolled the batch back six times in favour of other transactions,
    /// as certification does with writers at several nodes. Or other sessions held many rows of the batch, and the time
    /// of the batch ended before the turn of this order.
    Batch,
    /// The node of our sessions does not show a row, perhaps only because it is behind the other nodes of its cluster.
    NodeBehind,
    /// MySQL has lost an order of this voucher, or the end of an order, that Redis still has. A repair restores the
    /// lost data.
    Lost(VoucherId),
}

/// Whether the absence of a row on a node is reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freshness {
    /// The node shows everything that was committed on any other node before the check.
    Current,
    /// The node may lack rows that other nodes have committed: nothing can be decided now from a missing row.
    Behind,
}

impl From<Contention> for Verdict {
    fn from(contention: Contention) -> Self {
        Self::Contended(contention)
    }
}

/// The reason why an order is refused. The table `tidegate_refusal` stores the reason, so that the same order always
/// gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The user has a live order for this voucher in this slot.
    UserHasOrder,
    /// The stock in MySQL does not cover the order.
    OutOfStock,
}

impl Refusal {
    /// The word for this reason of a refusal, as rows, logs and journals in Redis contain it.
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
    /// The time limit for the payment of an order, in seconds, from the column `pay_within`. 0 if the order never
    /// expires. `None` if the configuration decides.
    pub pay_within_s: Option<i64>,
    /// The time since which the voucher has limits, in Unix milliseconds, from the column `limits_since`. A later entry
    /// must state which limits it counts against. `None` if the voucher has no limits.
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
    /// The number of units that each voucher has left in MySQL.
    pub stocks: HashMap<VoucherId, i64>,
    /// The order ids that MySQL already has, with the user and the voucher in the row. The user and the voucher can be
    /// any numbers, because other programs also write rows.
    pub ids: HashMap<OrderId, (i64, i64)>,
    /// The order ids whose row in MySQL is cancelled or refunded.
    pub cancelled: HashSet<OrderId>,
    /// The orders that were refused earlier, with user, voucher and reason.
    pub refusals: HashMap<OrderId, (i64, i64, Refusal)>,
    /// For each voucher, the number of its refused orders in MySQL.
    pub refused_of: HashMap<VoucherId, i64>,
    /// The slots (numbers of a user's orders) that live orders take in MySQL, each with the id of the order.
    pub slot_keys: HashMap<SlotKey, i64>,
    /// The ended orders that still have a slot (the number that keeps their user from a second order), because MySQL
    /// has lost the end of the order.
    pub ended: HashSet<OrderId>,
    /// The terms in the rows of vouchers: the time limit of payments, and the time since which the voucher has limits.
    pub terms: HashMap<VoucherId, SaleTerms>,
}

impl Known {
    /// Creates assumptions about a batch that are mostly true: each voucher has enough stock, and MySQL knows neither
    /// the orders nor an order of their users.
    pub fn assumed(part: &[&Incoming]) -> Self {
        let stocks = part.iter().map(|incoming| (incoming.order.voucher, i64::MAX)).collect();
        let (ids, slot_keys) = (HashMap::with_capacity(part.len()), HashMap::with_capacity(part.len()));
        Self { stocks, ids, slot_keys, ..Self::default() }
    }

    /// Adds the results of a second look-up in MySQL to what is known about the batch.
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

    /// The orders in MySQL that already have the slots of the new orders in `part`. A slot is the number that keeps a
    /// user from a second order.
    pub fn holders<'a>(&self, part: impl IntoIterator<Item = &'a Incoming>) -> Vec<(VoucherId, OrderId)> {
        let holder = |Incoming { order, .. }: &Incoming| {
            let is_new = !self.ids.contains_key(&order.id) && !self.refusals.contains_key(&order.id);
            let holder = self.slot_keys.get(&slot_key(order)).filter(|_| is_new)?;
            Some((order.voucher, OrderId::try_from(*holder).ok()?))
        };
        part.into_iter().filter_map(holder).collect()
    }
}

/// The decision on an order, and whether the database must be changed for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The decision on the order: written, refused or another outcome.
    pub verdict: Verdict,
    /// Whether the decision is new, so that it must still be written to MySQL.
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
    /// The orders to write, sorted by id in ascending order.
    pub created: Vec<&'a Incoming>,
    /// The orders to write that count against limits, each with the limits, sorted by order id in ascending order.
    pub limited: Vec<(&'a Incoming, &'a Uses)>,
    /// The orders to write that must be paid in time, sorted by id, each with its time limit in seconds.
    pub timed: Vec<(&'a Incoming, i64)>,
    pub refused: Vec<(&'a Incoming, Refusal)>,
    /// The changes of stocks, sorted by voucher in ascending order. The transaction locks the rows of the vouchers in
    /// the same order.
    pub stocks: Vec<(VoucherId, StockChange)>,
}

/// The change that a batch makes in the row of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StockChange {
    /// The number of units that the batch takes from the voucher's stock.
    pub units: i64,
    /// The number of orders of the voucher that the batch refuses.
    pub refused: i64,
    /// The value below which the stock must be. If the stock is equal or higher, the batch refused an order as out of
    /// stock although the stock was sufficient.
    pub below: i64,
    /// The terms (time limit of payments, limits on orders) that the voucher's row must still have. If the row has
    /// other terms, the batch decided on outdated terms.
    pub terms: SaleTerms,
}

/// Collects the changes for the decisions of a batch. `default_s` is the time for orders whose voucher has no time of
/// its own. 0 if these orders never expire.
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

    /// The number of orders of the changed vouchers that were already refused when MySQL was read.
    pub fn refused_before(&self, known: &Known) -> i64 {
        self.stocks.iter().filter_map(|(voucher, _)| known.refused_of.get(voucher)).sum()
    }

    /// Whether a stock covers only some of the units that the batch requests. Which orders get these units is decided
    /// after the row of the voucher is locked and read.
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
