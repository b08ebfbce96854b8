//! What would become of orders: the decisions of [`super::verdict`] over what the database holds now, with nothing locked
//! and nothing written.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    Incoming, Ledger,
    fault::Fault,
    session::Session,
    sql::{self, Depth, Stocks},
    verdict::{self, Decided, Known, Seat, Verdict, seat},
};
use crate::order::{Order, OrderId, VoucherId};
use tidegate_stream::Outage;

impl Ledger {
    /// Reads what the database holds that matters to `orders`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn look(&self, orders: &[Incoming]) -> Result<Snapshot, Outage> {
        match self.known(orders).await {
            Ok(known) => Ok(Snapshot(known)),
            Err(Fault::Outage(outage)) => {
                self.forget_idle_connections();
                Err(outage)
            }
            // Nobody's locks are in the way of a plain read, and no row is at fault.
            Err(
                Fault::Contention(error) | Fault::Locked(error) | Fault::Doubtful(error) | Fault::Row(error),
            ) => Err(Outage::new("MySQL", error)),
        }
    }

    pub(super) async fn known(&self, orders: &[Incoming]) -> Result<Known, Fault> {
        if orders.is_empty() {
            return Ok(Known::default());
        }
        let read = async {
            let mut session = Session::open(&self.pool).await?;
            let all: Vec<&Incoming> = orders.iter().collect();
            let known = sql::look_up(&mut session, &all, Stocks::AsTheyAre, Depth::Ids).await?;
            session.give_back();
            Ok(known)
        };
        let read = tokio::time::timeout(self.timeout, read).await;
        read.unwrap_or_else(|_| Err(Fault::Outage(self.too_late())))
    }
}

/// What the database held of some orders at one moment.
#[derive(Debug)]
pub struct Snapshot(Known);

impl Snapshot {
    /// Nothing is known of an order of this id: neither a row nor a refusal.
    #[must_use]
    pub fn is_unknown(&self, order: &Order) -> bool {
        !self.0.ids.contains_key(&order.id) && !self.0.refusals.contains_key(&order.id)
    }

    /// The order is cancelled, or withdrawn: it is there, and counts no units.
    #[must_use]
    pub fn is_cancelled(&self, order: &Order) -> bool {
        let owner = (order.user.get(), order.voucher.get());
        self.0.ids.get(&order.id) == Some(&owner) && self.0.cancelled.contains(&order.id)
    }

    /// What would become of `orders`, which stand in stream order, if they were recorded after those that `before`
    /// knows of. They are noted there, too.
    #[must_use]
    pub fn foresee(mut self, orders: &[Incoming], before: &mut Foresight) -> Vec<Decided> {
        before.show(orders, &mut self.0);
        let decided = verdict::decide(orders, &mut self.0);
        before.note(orders, &decided);
        decided
    }
}

/// Orders whose ids and seats are remembered: some 30 MB. An order that comes twice most often comes soon.
const MOST_ORDERS: usize = 200_000;

/// What orders that were foreseen would have changed. It remembers what all of them would take from the stocks, but the
/// ids and seats of the last ones only: a stream may hold more orders than memory does.
#[derive(Debug)]
pub struct Foresight {
    most: usize,
    has_forgotten: bool,
    /// Those that are remembered, the oldest first.
    noted: VecDeque<(OrderId, Option<Seat>)>,
    taken: HashMap<VoucherId, i64>,
    seats: HashSet<Seat>,
    ids: HashMap<OrderId, (i64, i64)>,
    refusals: HashMap<OrderId, (i64, i64, verdict::Refusal)>,
}

impl Default for Foresight {
    fn default() -> Self {
        Self::of_the_last(MOST_ORDERS)
    }
}

impl Foresight {
    fn of_the_last(most: usize) -> Self {
        let (noted, taken, seats) = (VecDeque::new(), HashMap::new(), HashSet::new());
        let (ids, refusals) = (HashMap::new(), HashMap::new());
        Self { most, has_forgotten: false, noted, taken, seats, ids, refusals }
    }

    /// There were too many orders to remember: one that came before and came again may have been taken for a new one.
    #[must_use]
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Makes it known, as far as it matters to these orders.
    fn show(&self, orders: &[Incoming], known: &mut Known) {
        for (voucher, stock) in &mut known.stocks {
            *stock -= self.taken.get(voucher).copied().unwrap_or_default();
        }
        for Incoming { order, .. } in orders {
            known.seats.extend(self.seats.get(&seat(order)));
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
                    self.seats.insert(seat(order));
                    self.ids.insert(order.id, owner);
                    self.noted.push_back((order.id, Some(seat(order))));
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
        for (id, seat) in self.noted.drain(..too_many) {
            self.has_forgotten = true;
            match seat {
                Some(seat) => {
                    self.ids.remove(&id);
                    self.seats.remove(&seat);
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

    fn foreseen(id: i64, before: &mut Foresight) -> Verdict {
        let voucher = 7.try_into().unwrap();
        let (id, user) = (id.try_into().unwrap(), id.try_into().unwrap());
        let order = Order { id, user, voucher, quantity: 1.try_into().unwrap(), slot: Slot::FIRST };
        let known = Known { stocks: HashMap::from([(voucher, 3)]), ..Known::default() };
        let incoming = Incoming { order, entry: EntryId::MIN };
        Snapshot(known).foresee(&[incoming], before).remove(0).verdict
    }

    #[test]
    fn of_many_orders_the_last_are_remembered_and_what_all_of_them_took() {
        let mut before = Foresight::of_the_last(2);
        assert_eq!(foreseen(1, &mut before), Verdict::Created);
        assert_eq!(foreseen(2, &mut before), Verdict::Created);
        assert_eq!(foreseen(1, &mut before), Verdict::AlreadyThere);
        assert!(!before.has_forgotten());
        assert_eq!(foreseen(3, &mut before), Verdict::Created);
        assert!(before.has_forgotten());
        assert_eq!(foreseen(3, &mut before), Verdict::AlreadyThere);
        // The stock of three is gone, although the first order is not remembered.
        for id in 4..1_000 {
            let refused = Verdict::Refused(verdict::Refusal::OutOfStock);
            assert_eq!(foreseen(id, &mut before), refused);
        }
        let remembered = (before.noted.len(), before.ids.len(), before.seats.len(), before.refusals.len());
        assert_eq!(remembered, (2, 0, 0, 2));
    }
}
