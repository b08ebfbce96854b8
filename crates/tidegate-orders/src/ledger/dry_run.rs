//! Predicts the verdicts of orders: the ledger's own decisions over what the database holds now. It locks nothing and
//! writes nothing.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{
    Incoming, Ledger, MissingRow,
    fault::Fault,
    session::Session,
    sql::{self, Depth, Stocks},
    verdict::{self, Decided, Known, SlotKey, Verdict, slot_key},
};
use crate::order::{Order, OrderId, Uses, VoucherId};
use tidegate_stream::Outage;

impl Ledger {
    /// Reads the rows about `orders` from the database, without waiting for locks.
    ///
    /// # Errors
    /// Fails if the database does not answer. Also fails if absent rows decide and the node lags.
    pub async fn snapshot(&self, orders: &[Incoming], absence: MissingRow) -> Result<Snapshot, Outage> {
        if orders.is_empty() {
            return Ok(Snapshot(Known::default()));
        }
        let read = Box::pin(async {
            let mut session = Session::open(&self.pool).await?;
            let all: Vec<&Incoming> = orders.iter().collect();
            let known = async {
                if absence == MissingRow::Decides {
                    self.must_catch_up(&mut session).await?;
                }
                Ok(sql::look_up(&mut session, &all, Stocks::AsTheyAre, Depth::Ids).await?)
            };
            let known: Result<Known, Fault> = known.await;
            session.end(known).await
        });
        let known = self.in_time(read).await.map_err(Outage::from);
        known.map(Snapshot).inspect_err(|_| self.forget_idle_connections())
    }
}

/// The rows of the database about some orders at one moment. The methods predict what a change would do with these
/// orders.
#[derive(Debug)]
pub struct Snapshot(pub(super) Known);

impl Snapshot {
    /// Whether the database does not know the id of the given order: no row of an order and no row of a refused order
    /// has this id.
    #[must_use]
    pub fn is_unknown(&self, order: &Order) -> bool {
        !self.0.ids.contains_key(&order.id) && !self.0.refusals.contains_key(&order.id)
    }

    /// The counts against limits that a new entry of an old order must state. `None` if the new entry states no counts.
    ///
    /// `first_ms` is the millisecond of the order's first entry. If that entry came before the voucher had limits, the
    /// order used none, and the new entry states that. Otherwise the new entry would look like one that went past the
    /// limits.
    #[must_use]
    pub fn uses_in_new_entry(&self, order: &Order, first_ms: Option<u64>) -> Option<Uses> {
        let terms = self.0.terms.get(&order.voucher).filter(|terms| terms.limits_since_ms.is_some());
        let came_before = || terms.zip(first_ms).is_some_and(|(terms, ms)| terms.past_limits(ms).is_none());
        order.uses.clone().or_else(|| came_before().then(Uses::default))
    }

    /// Predicts what [`Ledger::record`] would do with `orders`, after all orders in `before` are written. `orders` must
    /// be in stream order. Adds `orders` to `before`. MySQL may still refuse a row at the time of writing, because of a
    /// foreign key or a check.
    #[must_use]
    pub fn predict_record(mut self, orders: &[Incoming], before: &mut DryRun) -> Vec<Decided> {
        before.show(orders, &mut self.0);
        let decided = verdict::decide(orders, &mut self.0);
        before.note(orders, &decided);
        decided
    }
}

/// The number of orders whose ids and slot keys are remembered: some 30 MB. An order that comes twice most often comes
/// soon.
const MOST_ORDERS: usize = 200_000;

/// The changes that the orders of a dry run would have made so far. The dry run counts the units of all its orders. The
/// dry run keeps the ids and users only of the newest orders, because a stream may hold more orders than fit into
/// memory.
#[derive(Debug)]
pub struct DryRun {
    most: usize,
    has_forgotten: bool,
    /// The orders that are remembered, the oldest first.
    noted: VecDeque<(OrderId, Option<SlotKey>)>,
    taken: HashMap<VoucherId, i64>,
    slot_keys: HashMap<SlotKey, i64>,
    ids: HashMap<OrderId, (i64, i64)>,
    refusals: HashMap<OrderId, (i64, i64, verdict::Refusal)>,
}

impl Default for DryRun {
    fn default() -> Self {
        Self::of_the_last(MOST_ORDERS)
    }
}

impl DryRun {
    fn of_the_last(most: usize) -> Self {
        let (noted, taken, slot_keys) = (VecDeque::new(), HashMap::new(), HashMap::new());
        let (ids, refusals) = (HashMap::new(), HashMap::new());
        Self { most, has_forgotten: false, noted, taken, slot_keys, ids, refusals }
    }

    /// Whether the dry run had too many orders to keep all their ids. An order that comes twice may then count as two
    /// orders.
    #[must_use]
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Adds the changes of earlier orders of the dry run to `known`.
    fn show(&self, orders: &[Incoming], known: &mut Known) {
        for (voucher, stock) in &mut known.stocks {
            *stock -= self.taken.get(voucher).copied().unwrap_or_default();
        }
        for Incoming { order, .. } in orders {
            known.slot_keys.extend(self.slot_keys.get_key_value(&slot_key(order)));
            known.ids.extend(self.ids.get_key_value(&order.id));
            known.refusals.extend(self.refusals.get_key_value(&order.id));
        }
    }

    fn note(&mut self, orders: &[Incoming], decided: &[Decided]) {
        for (Incoming { order, .. }, decided) in
            orders.iter().zip(decided).filter(|(_, decided)| decided.is_new)
        {
            let owner = (order.user.get(), order.voucher.get());
            match decided.verdict {
                Verdict::Created => {
                    *self.taken.entry(order.voucher).or_default() += order.quantity.get();
                    self.slot_keys.insert(slot_key(order), order.id.get());
                    self.ids.insert(order.id, owner);
                    self.noted.push_back((order.id, Some(slot_key(order))));
                }
                Verdict::Refused(refusal) => {
                    self.refusals.insert(order.id, (owner.0, owner.1, refusal));
                    self.noted.push_back((order.id, None));
                }
                _ => {}
            }
        }
        self.forget_the_oldest();
    }

    fn forget_the_oldest(&mut self) {
        let too_many = self.noted.len().saturating_sub(self.most);
        for (id, slot_key) in self.noted.drain(..too_many) {
            self.has_forgotten = true;
            match slot_key {
                Some(slot_key) => {
                    self.ids.remove(&id);
                    self.slot_keys.remove(&slot_key);
                }
                None => _ = self.refusals.remove(&id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::order::Slot;

    fn predicted(id: i64, before: &mut DryRun) -> Verdict {
        let voucher = 7.try_into().unwrap();
        let (id, user) = (id.try_into().unwrap(), id.try_into().unwrap());
        let order =
            Order { id, user, voucher, quantity: 1.try_into().unwrap(), slot: Slot::FIRST, uses: None };
        let known = Known { stocks: HashMap::from([(voucher, 3)]), ..Known::default() };
        let incoming = Incoming { order, entry: EntryId::MIN };
        Snapshot(known).predict_record(&[incoming], before).remove(0).verdict
    }

    #[test]
    fn of_many_orders_the_last_are_remembered_and_what_all_of_them_took() {
        let mut before = DryRun::of_the_last(2);
        assert_eq!(predicted(1, &mut before), Verdict::Created);
        assert_eq!(predicted(2, &mut before), Verdict::Created);
        assert_eq!(predicted(1, &mut before), Verdict::AlreadyThere);
        assert!(!before.has_forgotten());
        assert_eq!(predicted(3, &mut before), Verdict::Created);
        assert!(before.has_forgotten());
        assert_eq!(predicted(3, &mut before), Verdict::AlreadyThere);
        // The stock of three is used up, although the first order is not remembered.
        for id in 4..1_000 {
            let refused = Verdict::Refused(verdict::Refusal::OutOfStock);
            assert_eq!(predicted(id, &mut before), refused);
        }
        let remembered =
            (before.noted.len(), before.ids.len(), before.slot_keys.len(), before.refusals.len());
        assert_eq!(remembered, (2, 0, 0, 2));
    }
}
