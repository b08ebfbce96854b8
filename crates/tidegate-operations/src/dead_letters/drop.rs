//! Deletes letters that have no units to release, or whose orders have ended in MySQL.

use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, Incoming, Ledger, Order, OrderId, RedisStore,
    dead_letters::DropReply,
    ledger::{Cancellation, MissingRow},
    order_status::ID_TAKEN,
};
use tidegate_stream::{Letter, Outage};

use super::{
    letter::{is_about_money, reason_of},
    outcome::{EndedLetter, LetterBlocker, LetterDecision, LetterOutcome},
};

/// Deletes dead letters that are not needed any more.
#[derive(Debug)]
pub(super) struct Drop {
    pub(super) dead: DeadLetters,
    pub(super) redis: RedisStore,
    pub(super) ledger: Ledger,
}

impl Drop {
    /// Decides which letters can be deleted. A letter that holds an order stays, unless MySQL has the order, or the
    /// order id belongs to another order according to the letter or the journal. A letter about money stays as well,
    /// because no other record of the payment exists.
    pub(super) async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        let orders: Vec<Option<Order>> =
            letters.iter().map(|letter| self.dead.order_of(letter).ok()).collect();
        let known = orders.iter().flatten().map(|order| (order.id, order.user, order.voucher));
        let known: Vec<_> = known.collect();
        let are_of_others = self.redis.journals().are_of_others(&known).await;
        let mut are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?.into_iter();
        let mut are_written = self.are_written(letters).await?.into_iter();
        let decision = |(letter, order): (&Letter, &Option<Order>)| {
            let is_written = are_written.next().unwrap_or(false);
            if order.is_none() && is_about_money(self.dead.fields(), letter) {
                return LetterDecision::Stays(LetterBlocker::HoldsPayment);
            }
            let is_of_another = order.is_some() && are_of_others.next().unwrap_or(false);
            let is_done_with =
                order.is_none() || is_written || is_of_another || reason_of(letter) == ID_TAKEN;
            if is_done_with { LetterDecision::Done } else { LetterDecision::Stays(LetterBlocker::HoldsOrder) }
        };
        Ok(letters.iter().zip(&orders).map(decision).collect())
    }

    pub(super) async fn apply(
        &self,
        letters: &[&Letter],
    ) -> Result<Vec<Result<LetterOutcome, Outage>>, Outage> {
        let are_written = self.are_written(letters.iter().copied()).await?;
        let letters = letters.iter().zip(are_written);
        Ok(join_all(letters.map(|(letter, is_written)| self.drop(letter, is_written))).await)
    }

    /// Returns for each letter whether its order has a row of its own that counts, and not another order's row with the
    /// same id.
    async fn are_written<'a>(
        &self,
        letters: impl IntoIterator<Item = &'a Letter>,
    ) -> Result<Vec<bool>, Outage> {
        let incoming =
            |letter: &Letter| Some(Incoming { order: self.dead.order_of(letter).ok()?, entry: letter.id });
        let orders: Vec<Option<Incoming>> = letters.into_iter().map(incoming).collect();
        let known: Vec<Incoming> = orders.iter().flatten().cloned().collect();
        let mut cancellations =
            self.ledger.snapshot(&known, MissingRow::Decides).await?.predict_cancel(&known).into_iter();
        let is_written = |order: &Option<Incoming>| {
            order.is_some() && cancellations.next() == Some(Cancellation::OrderExists)
        };
        Ok(orders.iter().map(is_written).collect())
    }

    async fn drop(&self, letter: &Letter, is_written: bool) -> Result<LetterOutcome, Outage> {
        let order: Option<OrderId> = self.dead.order_of(letter).ok().map(|order| order.id);
        let reply = match is_written {
            true => self.dead.drop_written(letter).await,
            false => self.dead.drop(letter).await,
        };
        Ok(match reply {
            Ok(DropReply::Dropped) => LetterOutcome::Done(EndedLetter {
                letter: letter.id,
                outcome: "dropped",
                order: order.map(|order| order.to_string()),
                entry: None,
            }),
            Ok(DropReply::Gone) => LetterOutcome::Gone,
            Ok(DropReply::HoldsUnits) => LetterOutcome::Stays(LetterBlocker::HoldsUnits, None),
            Err(error) => LetterOutcome::of_error(error)?,
        })
    }
}
