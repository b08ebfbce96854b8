//! What would become of orders: the decisions of [`super::verdict`] over what the database holds now, with nothing locked
//! and nothing written.

use std::collections::{HashMap, HashSet};

use super::{
    Incoming, Ledger,
    fault::Fault,
    sql::{self, Stocks},
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
            let mut session = super::Session::open(&self.pool).await?;
            let known = sql::look_up(&mut session, orders, Stocks::AsTheyAre).await?;
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
        let decided = verdict::decide(orders, self.0);
        before.note(orders, &decided);
        decided
    }
}

/// What orders that were foreseen would have changed.
#[derive(Debug, Default)]
pub struct Foresight {
    taken: HashMap<VoucherId, i64>,
    seats: HashSet<Seat>,
    ids: HashMap<OrderId, (i64, i64)>,
    refusals: HashMap<OrderId, (i64, i64, verdict::Refusal)>,
}

impl Foresight {
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
                }
                Verdict::Refused(refusal) => {
                    self.refusals.insert(order.id, (owner.0, owner.1, refusal));
                }
                _ => {}
            }
        }
    }
}
