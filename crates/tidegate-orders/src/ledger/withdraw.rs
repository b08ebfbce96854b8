//! Withdrawing orders that are not written: from then on nobody can write them, so that what Redis holds for them can
//! be given back.
//!
//! A withdrawn order is a cancelled row, as a service leaves one: it has the id, and neither a slot nor units. So the
//! primary key decides between this and whoever writes the order, whether the voucher has a row or not: who comes second
//! finds the row, and for a worker it is there already.

use tidegate_stream::Outage;

use super::{
    Incoming, Ledger,
    fault::Fault,
    retry::{Tried, insist},
    session::Session,
    sql::{self, Depth, Stocks},
    verdict::Known,
};
use crate::{gate::UserAfter, order::Order};

/// What becomes of an order that is to be withdrawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It will not be written, whoever brings it; what Redis holds for it has to be given back now. Its user stays a
    /// buyer where another order of the user for this voucher stands.
    Withdrawn(UserAfter),
    /// It is written.
    OrderExists,
    /// Another order, of another user or voucher, has this id: nothing can be given back by it.
    IdTaken,
    /// The database refuses its cancelled row, with these words: it may be written one day, so nothing can be given back.
    Rejected(String),
    /// Others hold rows that it needs: nothing was done, and it can be tried again.
    Contended,
}

impl Ledger {
    /// What would become of these orders, by what stands in MySQL now. Changes nothing. What MySQL itself refuses it says
    /// only when it is tried.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn would_withdraw(&self, orders: &[Incoming]) -> Result<Vec<Withdrawal>, Outage> {
        let known = self.known(orders).await.map_err(Outage::from)?;
        Ok(decide(orders, known).into_iter().map(|(withdrawal, _)| withdrawal).collect())
    }

    /// Which of these orders stand cancelled in MySQL, be it that they were withdrawn, and whether their users may order
    /// again then. Changes nothing.
    ///
    /// # Errors
    /// When MySQL does not answer.
    pub async fn withdrawn(&self, orders: &[Incoming]) -> Result<Vec<Option<UserAfter>>, Outage> {
        let known = self.known(orders).await.map_err(Outage::from)?;
        let withdrawn = |Incoming { order, .. }: &Incoming| {
            let is_cancelled = known.ids.get(&order.id) == Some(&(order.user.get(), order.voucher.get()))
                && known.cancelled.contains(&order.id);
            is_cancelled.then(|| user_after(order, &known))
        };
        Ok(orders.iter().map(withdrawn).collect())
    }

    /// Withdraws orders. The same again gives the same answer. An order whose row the database refuses is split off until
    /// it stands alone; its neighbours are withdrawn.
    ///
    /// # Errors
    /// When MySQL does not answer; each may be withdrawn or not.
    pub async fn withdraw(&self, orders: &[Incoming]) -> Result<Vec<Withdrawal>, Outage> {
        let mut withdrawals = Vec::with_capacity(orders.len());
        let mut parts = vec![orders];
        while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
            match insist(self.contentions(), || self.try_to_withdraw(part)).await? {
                Tried::Done(part) => withdrawals.extend(part),
                Tried::InTheWay | Tried::Held => {
                    withdrawals.extend(part.iter().map(|_| Withdrawal::Contended));
                }
                Tried::Refused(error) if part.len() == 1 => {
                    self.probe().await?;
                    withdrawals.push(Withdrawal::Rejected(error));
                }
                Tried::Refused(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        Ok(withdrawals)
    }

    async fn try_to_withdraw(&self, part: &[Incoming]) -> Result<Vec<Withdrawal>, Fault> {
        let attempt = async {
            let mut session = Session::open(&self.pool).await?;
            let withdrawals = withdraw(&mut session, part).await;
            session.end(withdrawals).await
        };
        let tried = tokio::time::timeout(self.timeout, attempt).await;
        tried.unwrap_or_else(|_| Err(Fault::Outage(self.too_late())))
    }
}

async fn withdraw(session: &mut Session, part: &[Incoming]) -> Result<Vec<Withdrawal>, Fault> {
    // The primary key is the guard. The locks only keep a worker from refusing the same order at this moment: it would be
    // cancelled and refused.
    let all: Vec<&Incoming> = part.iter().collect();
    let known = sql::look_up(session, &all, Stocks::Locked, Depth::Ids).await?;
    let decided = decide(part, known);
    let new = part.iter().zip(&decided).filter(|(_, (_, is_new))| *is_new).map(|(incoming, _)| incoming);
    if let Some(rows) = sql::cancelled_rows(new) {
        sql::run(session, rows).await?;
    }
    // Apart from the row: a server that replicates by certification says only to a COMMIT of its own what came of it.
    sql::run(session, sql::COMMIT.to_owned()).await?;
    Ok(decided.into_iter().map(|(withdrawal, _)| withdrawal).collect())
}

/// What becomes of each, and whether it needs a row for that.
fn decide(orders: &[Incoming], mut known: Known) -> Vec<(Withdrawal, bool)> {
    orders.iter().map(|incoming| decide_one(incoming, &mut known)).collect()
}

fn decide_one(Incoming { order, .. }: &Incoming, known: &mut Known) -> (Withdrawal, bool) {
    let owner = (order.user.get(), order.voucher.get());
    let withdrawn = Withdrawal::Withdrawn(user_after(order, known));
    match (known.ids.get(&order.id), known.refusals.get(&order.id)) {
        (Some(taken), _) if *taken == owner && !known.cancelled.contains(&order.id) => {
            (Withdrawal::OrderExists, false)
        }
        (Some(taken), _) if *taken == owner => (withdrawn, false),
        // Their units stand under one id in one journal.
        (Some((_, voucher)), _) if *voucher == owner.1 => (Withdrawal::IdTaken, false),
        (_, Some((user, voucher, _))) if (*user, *voucher) == owner => (withdrawn, false),
        (_, Some(_)) => (Withdrawal::IdTaken, false),
        // The id is taken under another voucher, so this order can never be written.
        (Some(_), None) => (withdrawn, false),
        (None, None) => {
            known.ids.insert(order.id, owner);
            known.cancelled.insert(order.id);
            (withdrawn, true)
        }
    }
}

fn user_after(order: &Order, known: &Known) -> UserAfter {
    let is_buyer =
        known.seats.iter().any(|(voucher, user, _)| (*voucher, *user) == (order.voucher, order.user));
    if is_buyer { UserAfter::StaysBuyer } else { UserAfter::Freed }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::{
        ledger::Refusal,
        order::{OrderId, Quantity, Slot, VoucherId},
    };

    fn voucher() -> VoucherId {
        7.try_into().unwrap()
    }

    fn id(id: i64) -> OrderId {
        id.try_into().unwrap()
    }

    fn order(at: i64) -> Incoming {
        let order = Order {
            id: id(at),
            user: at.try_into().unwrap(),
            voucher: voucher(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
        };
        Incoming { order, entry: EntryId::MIN }
    }

    #[test]
    fn only_what_is_not_written_and_shares_its_id_with_nobody_is_withdrawn_once() {
        let mut known = Known::default();
        known.ids.extend([(id(1), (1, 7)), (id(2), (99, 7)), (id(3), (99, 8)), (id(4), (4, 7))]);
        known.cancelled.insert(id(4));
        known
            .refusals
            .extend([(id(5), (99, 8, Refusal::OutOfStock)), (id(6), (6, 7, Refusal::UserHasOrder))]);
        known.seats.insert((voucher(), 8.try_into().unwrap(), Slot::FIRST));
        let orders = [1, 2, 3, 4, 5, 6, 7, 7, 8].map(order);
        let freed = || Withdrawal::Withdrawn(UserAfter::Freed);
        let expected = [
            (Withdrawal::OrderExists, false),
            (Withdrawal::IdTaken, false),
            (freed(), false),
            (freed(), false),
            (Withdrawal::IdTaken, false),
            (freed(), false),
            (freed(), true),
            (freed(), false),
            (Withdrawal::Withdrawn(UserAfter::StaysBuyer), true),
        ];
        assert_eq!(decide(&orders, known), expected);
    }

    #[test]
    fn of_two_orders_with_one_id_the_first_is_withdrawn() {
        let mut second = order(1);
        second.order.user = 2.try_into().unwrap();
        let decided = decide(&[order(1), second], Known::default());
        let expected = [(Withdrawal::Withdrawn(UserAfter::Freed), true), (Withdrawal::IdTaken, false)];
        assert_eq!(decided, expected);
    }
}
