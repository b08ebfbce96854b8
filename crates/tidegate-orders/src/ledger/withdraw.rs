//! Withdrawing orders that are not written: from then on nobody can write them, so that what Redis holds for them can
//! be given back. It is a refusal, decided by a person instead of by the stock.

use std::time::Duration;

use tidegate_stream::{Backoff, Outage};

use super::{
    CONTENTION_ATTEMPTS, Incoming, Ledger, Session,
    fault::Fault,
    sql::{self, Stocks},
    verdict::{Changes, Known, Refusal},
};
use crate::gate::UserAfter;

/// What becomes of an order that is to be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It will not be written, whoever brings it; what Redis holds for it has to be given back now. Its user stays a
    /// buyer where another order of the user for this voucher stands.
    Withdrawn(UserAfter),
    /// It is written.
    OrderExists,
    /// Another order, of another user or voucher, has this id: nothing can be given back by it.
    IdTaken,
}

impl Ledger {
    /// What would become of these orders, by what stands in MySQL now. Changes nothing.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn would_withdraw(&self, orders: &[Incoming]) -> Result<Vec<Withdrawal>, Outage> {
        let known = self.known(orders).await.map_err(outage)?;
        Ok(decide(orders, known).into_iter().map(|(withdrawal, _)| withdrawal).collect())
    }

    /// Withdraws orders, in one transaction. The same again gives the same answer.
    ///
    /// A voucher without a row has no refusals counted. Until it gets one, none of its orders can be written.
    ///
    /// # Errors
    /// When MySQL does not answer or refuses; each may be withdrawn or not.
    pub async fn withdraw(&self, orders: &[Incoming]) -> Result<Vec<Withdrawal>, Outage> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let tried = tokio::time::timeout(self.timeout, self.try_to_withdraw(orders)).await;
            match tried.unwrap_or_else(|_| Err(Fault::Outage(self.too_late()))) {
                Ok(withdrawals) => return Ok(withdrawals),
                Err(fault @ (Fault::Outage(_) | Fault::Row(_))) => return Err(outage(fault)),
                Err(fault) if attempt == CONTENTION_ATTEMPTS => return Err(outage(fault)),
                Err(_) => tokio::time::sleep(backoff.next_wait()).await,
            }
        }
    }

    async fn try_to_withdraw(&self, orders: &[Incoming]) -> Result<Vec<Withdrawal>, Fault> {
        let mut session = Session::open(&self.pool).await?;
        sql::run(&mut session, sql::BEGIN.to_owned()).await?;
        // The locks of the vouchers keep workers from writing these orders between the look and the commit.
        let known = sql::look_up(&mut session, orders, Stocks::Locked).await?;
        let decided = decide(orders, known);
        let new = orders.iter().zip(&decided).filter(|(_, (_, is_new))| *is_new);
        let refused = new.map(|(incoming, _)| (incoming, Refusal::Cancelled)).collect();
        sql::run(&mut session, sql::careful_writes(&Changes { created: Vec::new(), refused })).await?;
        session.give_back();
        Ok(decided.into_iter().map(|(withdrawal, _)| withdrawal).collect())
    }
}

/// What becomes of each, and whether that has to be written.
fn decide(orders: &[Incoming], mut known: Known) -> Vec<(Withdrawal, bool)> {
    orders.iter().map(|incoming| decide_one(incoming, &mut known)).collect()
}

fn decide_one(Incoming { order, .. }: &Incoming, known: &mut Known) -> (Withdrawal, bool) {
    let owner = (order.user.get(), order.voucher.get());
    match known.ids.get(&order.id) {
        Some(taken) if *taken == owner => return (Withdrawal::OrderExists, false),
        // Their units stand under one id in one journal.
        Some((_, voucher)) if *voucher == owner.1 => return (Withdrawal::IdTaken, false),
        _ => {}
    }
    let is_buyer =
        known.seats.iter().any(|(voucher, user, _)| (*voucher, *user) == (order.voucher, order.user));
    let user_after = if is_buyer { UserAfter::StaysBuyer } else { UserAfter::Freed };
    match known.refusals.get(&order.id) {
        Some((user, voucher, _)) if (*user, *voucher) == owner => (Withdrawal::Withdrawn(user_after), false),
        Some(_) => (Withdrawal::IdTaken, false),
        None => {
            known.refusals.insert(order.id, (owner.0, owner.1, Refusal::Cancelled));
            (Withdrawal::Withdrawn(user_after), true)
        }
    }
}

fn outage(fault: Fault) -> Outage {
    match fault {
        Fault::Outage(outage) => outage,
        Fault::Contention(text) | Fault::Locked(text) | Fault::Doubtful(text) | Fault::Row(text) => {
            Outage::new("MySQL", text)
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::order::{Order, Quantity, Slot};

    fn order(id: i64, user: i64) -> Incoming {
        let order = Order {
            id: id.try_into().unwrap(),
            user: user.try_into().unwrap(),
            voucher: 7.try_into().unwrap(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
        };
        Incoming { order, entry: EntryId::MIN }
    }

    #[test]
    fn only_what_is_not_written_and_shares_its_id_with_nobody_is_withdrawn_once() {
        let id = |id: i64| id.try_into().unwrap();
        let mut known = Known::default();
        known.ids.extend([(id(1), (1, 7)), (id(2), (99, 7)), (id(3), (99, 8))]);
        known.refusals.extend([
            (id(4), (4, 7, Refusal::Cancelled)),
            (id(5), (99, 8, Refusal::OutOfStock)),
            (id(6), (6, 7, Refusal::UserHasOrder)),
        ]);
        known.seats.insert((id_of_voucher(), 8.try_into().unwrap(), Slot::FIRST));
        let orders: Vec<Incoming> = [1, 2, 3, 4, 5, 6, 7, 7, 8].map(|id| order(id, id)).into();
        let (freed, buyer) =
            (Withdrawal::Withdrawn(UserAfter::Freed), Withdrawal::Withdrawn(UserAfter::StaysBuyer));
        let expected = [
            (Withdrawal::OrderExists, false),
            (Withdrawal::IdTaken, false),
            (freed, true),
            (freed, false),
            (Withdrawal::IdTaken, false),
            (freed, false),
            (freed, true),
            (freed, false),
            (buyer, true),
        ];
        assert_eq!(decide(&orders, known), expected);
    }

    fn id_of_voucher() -> crate::VoucherId {
        7.try_into().unwrap()
    }
}
