//! Cancels the orders of dead letters.

use futures_util::future::join_all;
use tidegate_orders::{
    DeadLetters, Incoming, Ledger, Order, OrderResult, Publisher, RedisStore, ResultState,
    dead_letters::CancelReply,
    ledger::{Cancellation, MissingRow},
    publisher::now_ms,
    results::PLACED,
    scripts::{Release, ReleaseReply, ScriptError, UserAfter},
};
use tidegate_stream::{Letter, Outage};

use super::{
    letter::is_about_money,
    outcome::{EndedLetter, LetterBlocker, LetterDecision, LetterOutcome, PlannedRelease},
};

/// The reason in the result of an order that an operator has cancelled.
const BY_OPERATOR: &str = "by_operator";

/// Cancels the orders of dead letters.
#[derive(Debug)]
pub(super) struct Cancel {
    pub(super) dead: DeadLetters,
    pub(super) redis: RedisStore,
    pub(super) ledger: Ledger,
    pub(super) publisher: Publisher,
}

impl Cancel {
    /// Decides which orders can be cancelled. A letter stays if it holds no order of its own, or an order that MySQL's
    /// rows do not allow to be cancelled. The journal is asked first for the owners of the ids. A cancelled row of a
    /// forged order would keep the genuine order with the same id from being written.
    pub(super) async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        let orders: Vec<_> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let orders = self.without_those_of_others(orders).await?;
        let held = held(&orders);
        let mut cancellations =
            self.ledger.snapshot(&held, MissingRow::Decides).await?.predict_cancel(&held).into_iter();
        let ids: Vec<_> = held.iter().map(|incoming| (incoming.order.voucher, incoming.order.id)).collect();
        let released =
            self.redis.journals().released(&ids).await.map_err(|error| Outage::new("Redis", error))?;
        let decision = |order: &Result<Incoming, LetterBlocker>| match order {
            Ok(Incoming { order, .. }) => match cancellations.next().map(user_after) {
                Some(Err((blocker, _))) => LetterDecision::Stays(blocker),
                Some(Ok(user_after)) if !released.contains(&(order.voucher, order.id)) => {
                    let Order { voucher, user, quantity, .. } = *order;
                    LetterDecision::Releases(PlannedRelease {
                        voucher,
                        units: quantity.get(),
                        user,
                        user_after,
                    })
                }
                _ => LetterDecision::Done,
            },
            Err(blocker) => LetterDecision::Stays(*blocker),
        };
        Ok(orders.iter().map(decision).collect())
    }

    /// Cancels all orders in MySQL first, then publishes their results, then releases each order in Redis.
    pub(super) async fn apply(
        &self,
        letters: &[&Letter],
    ) -> Result<Vec<Result<LetterOutcome, Outage>>, Outage> {
        let orders: Vec<_> = letters.iter().map(|letter| self.order_of(letter)).collect();
        let held = held(&orders);
        let cancellations = self.ledger.cancel_unwritten(&held).await?;
        self.publish(&held, &cancellations).await?;
        let mut cancellations = cancellations.into_iter();
        let cancelled = orders.into_iter().map(|order| order.map(|order| (order, cancellations.next())));
        let outcomes = letters.iter().zip(cancelled).map(async |(letter, order)| match order {
            Ok((incoming, Some(cancellation))) => self.cancel(letter, &incoming.order, cancellation).await,
            Ok((_, None)) => Ok(LetterOutcome::Gone),
            Err(blocker) => Ok(LetterOutcome::Stays(blocker, None)),
        });
        Ok(join_all(outcomes).await)
    }

    fn order_of(&self, letter: &Letter) -> Result<Incoming, LetterBlocker> {
        match (self.dead.order_of(letter), &letter.burial) {
            (_, None) => Err(LetterBlocker::Foreign),
            (Err(_), _) if is_about_money(self.dead.fields(), letter) => Err(LetterBlocker::HoldsPayment),
            (Err(_), _) => Err(LetterBlocker::NoOrder),
            (Ok(order), Some(burial)) => Ok(Incoming { order, entry: burial.entry }),
        }
    }

    async fn without_those_of_others(
        &self,
        orders: Vec<Result<Incoming, LetterBlocker>>,
    ) -> Result<Vec<Result<Incoming, LetterBlocker>>, Outage> {
        let known =
            orders.iter().flatten().map(|Incoming { order, .. }| (order.id, order.user, order.voucher));
        let known: Vec<_> = known.collect();
        let are_of_others = self.redis.journals().are_of_others(&known).await;
        let mut are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?.into_iter();
        let mut own = |order: Incoming| match are_of_others.next() {
            Some(true) => Err(LetterBlocker::IdTaken),
            _ => Ok(order),
        };
        Ok(orders.into_iter().map(|order| order.and_then(&mut own)).collect())
    }

    /// Publishes the results before the letters are deleted, because nothing would publish them later.
    async fn publish(&self, orders: &[Incoming], cancellations: &[Cancellation]) -> Result<(), Outage> {
        if !self.publisher.published().includes(ResultState::Cancelled) {
            return Ok(());
        }
        let of = |(Incoming { order, entry }, cancellation): (&Incoming, &Cancellation)| {
            matches!(cancellation, Cancellation::Cancelled(_)).then(|| OrderResult {
                order: order.id,
                user: Some(order.user),
                voucher: Some(order.voucher),
                quantity: Some(order.quantity),
                state: ResultState::Cancelled,
                reference: None,
                reason: Some(BY_OPERATOR.into()),
                step: PLACED,
                entry: *entry,
                at_ms: now_ms(),
                traceparent: None,
            })
        };
        let results: Vec<OrderResult> = orders.iter().zip(cancellations).filter_map(of).collect();
        self.publisher.publish(&results).await
    }

    async fn cancel(
        &self,
        letter: &Letter,
        order: &Order,
        cancellation: Cancellation,
    ) -> Result<LetterOutcome, Outage> {
        let user_after = match user_after(cancellation) {
            Ok(user_after) => user_after,
            Err((blocker, error)) => return Ok(LetterOutcome::Stays(blocker, error)),
        };
        let reply = match self.dead.cancel(letter, order, user_after).await {
            // Another program has requeued the letter, and the order is cancelled now: only this call can still release
            // it.
            Ok(CancelReply::Gone) => match self.redis.releases().release(&release(order, user_after)).await {
                Ok(ReleaseReply::ReleasedBefore | ReleaseReply::NotAdmitted | ReleaseReply::NoSale) => {
                    return Ok(LetterOutcome::Gone);
                }
                reply => reply,
            },
            Ok(CancelReply::Cancelled(reply)) => Ok(reply),
            Err(error) => Err(error),
        };
        Ok(match reply {
            Ok(reply) => LetterOutcome::Done(EndedLetter {
                letter: letter.id,
                outcome: match reply {
                    ReleaseReply::Released => "released",
                    ReleaseReply::ReleasedBefore => "released_before",
                    ReleaseReply::ReleasedWithoutStock => "released_without_stock",
                    ReleaseReply::NotAdmitted => "not_admitted",
                    ReleaseReply::NoSale => "no_sale_in_redis",
                },
                order: Some(order.id.to_string()),
                entry: None,
            }),
            Err(ScriptError::IdTaken { .. }) => LetterOutcome::Stays(LetterBlocker::IdTaken, None),
            Err(error) => LetterOutcome::of_error(error)?,
        })
    }
}

/// Maps a cancellation, predicted or done, to the user's state afterwards, or to the blocker that keeps the letter,
/// with MySQL's message.
fn user_after(cancellation: Cancellation) -> Result<UserAfter, (LetterBlocker, Option<String>)> {
    match cancellation {
        Cancellation::Cancelled(user_after) => Ok(user_after),
        Cancellation::OrderExists => Err((LetterBlocker::OrderExists, None)),
        Cancellation::IdTaken => Err((LetterBlocker::IdTaken, None)),
        Cancellation::Rejected(error) => Err((LetterBlocker::Rejected, Some(error))),
        Cancellation::Contended => Err((LetterBlocker::Contended, None)),
    }
}

/// Builds the release of an order whose dead letter is gone.
pub(super) fn release(order: &Order, user_after: UserAfter) -> Release {
    let Order { id, user, voucher, quantity, .. } = *order;
    Release { order: id, user, voucher, units: Some(quantity), user_after, by: "operator:dead_cancel".into() }
}

fn held(orders: &[Result<Incoming, LetterBlocker>]) -> Vec<Incoming> {
    orders.iter().flatten().cloned().collect()
}
