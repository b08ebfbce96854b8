//! Cancels orders that are not written. After that no worker can write them, so Redis can release their units.
//!
//! A cancelled order is a row like one that a service leaves: it has the id, and neither a slot nor units. So the
//! primary key decides between this cancellation and a worker that writes the order, whether the voucher has a row or
//! not. The second of the two finds the row. A worker that finds it takes the order as written.

use tidegate_stream::Outage;

use super::{
    Incoming, Ledger,
    dry_run::Snapshot,
    fault::Fault,
    session::Session,
    sql::{self, Depth, Stocks},
    verdict::{Contention, Known},
    work_list::WorkList,
};
use crate::{order::Order, scripts::UserAfter};

/// The outcome of an attempt to cancel an order before it is written: see [`Ledger::cancel_unwritten`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// No worker can write the order from now on; the caller must release in Redis what the order holds. The user stays
    /// a buyer if another order of this user for the voucher is live.
    Cancelled(UserAfter),
    /// The order is already written.
    OrderExists,
    /// Another order, of another user or voucher, has this id, so nothing can be released.
    IdTaken,
    /// The database refuses the cancelled row, with this message. A worker may still write the order, so nothing can be
    /// released.
    Rejected(String),
    /// Other sessions hold rows that the cancellation needs. Nothing was done; try again.
    Contended,
}

impl Ledger {
    /// Cancels orders that are not written in MySQL, so that they are never written. A repeated call gives the same
    /// answer. If the database refuses a row, the call cancels all orders except the order of that row.
    ///
    /// # Errors
    /// Fails if MySQL does not answer, or if its node lags. Each order may be cancelled or not.
    pub async fn cancel_unwritten(&self, orders: &[Incoming]) -> Result<Vec<Cancellation>, Outage> {
        let work = WorkList::new(orders, Cancellation::Contended);
        self.work_off(work, None, Cancellation::Rejected, |ledger, session, part| {
            Box::pin(async {
                ledger.must_catch_up(session).await?;
                decide_and_cancel(session, part).await
            })
        })
        .await
    }
}

impl From<Contention> for Cancellation {
    fn from(_: Contention) -> Self {
        Self::Contended
    }
}

impl Snapshot {
    /// Predicts what [`Ledger::cancel_unwritten`] would do with `orders`. MySQL may still refuse a row at the time of
    /// writing.
    #[must_use]
    pub fn predict_cancel(mut self, orders: &[Incoming]) -> Vec<Cancellation> {
        decide(orders, &mut self.0).into_iter().map(|(cancellation, _)| cancellation).collect()
    }

    /// Whether the user of a cancelled order may order again. `None` if the order is not cancelled.
    #[must_use]
    pub fn cancelled(&self, order: &Order) -> Option<UserAfter> {
        let owner = (order.user.get(), order.voucher.get());
        let is_cancelled = self.0.ids.get(&order.id) == Some(&owner) && self.0.cancelled.contains(&order.id);
        is_cancelled.then(|| user_after(order, &self.0))
    }
}

async fn decide_and_cancel(session: &mut Session, part: &[&Incoming]) -> Result<Vec<Cancellation>, Fault> {
    // The primary key is the guard. The locks only keep a worker from refusing the same order at this moment: otherwise
    // it would be both cancelled and refused.
    let mut known = sql::look_up(session, part, Stocks::Locked, Depth::Ids).await?;
    let decided = decide(part.iter().copied(), &mut known);
    let new = part.iter().zip(&decided).filter(|(_, (_, is_new))| *is_new).map(|(incoming, _)| *incoming);
    if let Some(rows) = sql::cancelled_rows(new) {
        sql::run(session, rows).await?;
    }
    // In a packet of its own: a server that replicates by certification reports the result only for a COMMIT that is
    // sent alone.
    sql::run(session, sql::COMMIT.to_owned()).await?;
    Ok(decided.into_iter().map(|(cancellation, _)| cancellation).collect())
}

/// The outcome for each order, and whether a row must be written for it.
fn decide<'a>(
    orders: impl IntoIterator<Item = &'a Incoming>,
    known: &mut Known,
) -> Vec<(Cancellation, bool)> {
    orders.into_iter().map(|incoming| decide_one(&incoming.order, known)).collect()
}

fn decide_one(order: &Order, known: &mut Known) -> (Cancellation, bool) {
    let owner = (order.user.get(), order.voucher.get());
    let cancelled = Cancellation::Cancelled(user_after(order, known));
    match (known.ids.get(&order.id), known.refusals.get(&order.id)) {
        (Some(taken), _) if *taken == owner && !known.cancelled.contains(&order.id) => {
            (Cancellation::OrderExists, false)
        }
        (Some(taken), _) if *taken == owner => (cancelled, false),
        // The journal has the units of both orders under one id.
        (Some((_, voucher)), _) if *voucher == owner.1 => (Cancellation::IdTaken, false),
        (_, Some((user, voucher, _))) if (*user, *voucher) == owner => (cancelled, false),
        (_, Some(_)) => (Cancellation::IdTaken, false),
        // The id is taken under another voucher, so this order can never be written.
        (Some(_), None) => (cancelled, false),
        (None, None) => {
            known.ids.insert(order.id, owner);
            known.cancelled.insert(order.id);
            (cancelled, true)
        }
    }
}

fn user_after(order: &Order, known: &Known) -> UserAfter {
    let is_buyer =
        known.slot_keys.keys().any(|(voucher, user, _)| (*voucher, *user) == (order.voucher, order.user));
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
            uses: None,
        };
        Incoming { order, entry: EntryId::MIN }
    }

    #[test]
    fn only_what_is_not_written_and_shares_its_id_with_nobody_is_cancelled_once() {
        let mut known = Known::default();
        known.ids.extend([(id(1), (1, 7)), (id(2), (99, 7)), (id(3), (99, 8)), (id(4), (4, 7))]);
        known.cancelled.insert(id(4));
        known
            .refusals
            .extend([(id(5), (99, 8, Refusal::OutOfStock)), (id(6), (6, 7, Refusal::UserHasOrder))]);
        known.slot_keys.insert((voucher(), 8.try_into().unwrap(), Slot::FIRST), 80);
        let orders = [1, 2, 3, 4, 5, 6, 7, 7, 8].map(order);
        let freed = || Cancellation::Cancelled(UserAfter::Freed);
        let expected = [
            (Cancellation::OrderExists, false),
            (Cancellation::IdTaken, false),
            (freed(), false),
            (freed(), false),
            (Cancellation::IdTaken, false),
            (freed(), false),
            (freed(), true),
            (freed(), false),
            (Cancellation::Cancelled(UserAfter::StaysBuyer), true),
        ];
        assert_eq!(decide(&orders, &mut known), expected);
    }

    #[test]
    fn of_two_orders_with_one_id_the_first_is_cancelled() {
        let mut second = order(1);
        second.order.user = 2.try_into().unwrap();
        let decided = decide(&[order(1), second], &mut Known::default());
        let expected = [(Cancellation::Cancelled(UserAfter::Freed), true), (Cancellation::IdTaken, false)];
        assert_eq!(decided, expected);
    }
}
