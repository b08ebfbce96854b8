//! Deleting letters of which nothing can be given back.

use futures_util::future::join_all;
use tidegate_orders::{DeadLetters, Gate, Order, dead_letters::DropReply};
use tidegate_stream::{Letter, Outage};

use super::{
    letter::reason_of,
    outcome::{EndedLetter, LetterDecision, LetterOutcome, Obstacle},
};

/// The reason of letters whose order id is another order's.
const ID_TAKEN: &str = "id_taken";

/// Deletes letters.
#[derive(Debug)]
pub(super) struct Drop {
    pub(super) dead: DeadLetters,
    pub(super) gate: Gate,
}

impl Drop {
    /// A letter stays that holds an order, unless its order id is another order's: by the letter itself, or by the
    /// journal.
    pub(super) async fn decide(&self, letters: &[Letter]) -> Result<Vec<LetterDecision>, Outage> {
        let orders: Vec<Option<Order>> =
            letters.iter().map(|letter| self.dead.order_of(letter).ok()).collect();
        let known: Vec<Order> = orders.iter().flatten().cloned().collect();
        let are_of_others = self.gate.are_of_others(&known).await;
        let mut are_of_others = are_of_others.map_err(|error| Outage::new("Redis", error))?.into_iter();
        let decision = |(letter, order): (&Letter, &Option<Order>)| {
            let is_of_another = order.is_some() && are_of_others.next().unwrap_or(false);
            let is_of_no_use = order.is_none() || is_of_another || reason_of(letter) == ID_TAKEN;
            if is_of_no_use { LetterDecision::Done } else { LetterDecision::Stays(Obstacle::HoldsOrder) }
        };
        Ok(letters.iter().zip(&orders).map(decision).collect())
    }

    pub(super) async fn apply(&self, letters: &[&Letter]) -> Vec<Result<LetterOutcome, Outage>> {
        join_all(letters.iter().map(|letter| self.drop(letter))).await
    }

    async fn drop(&self, letter: &Letter) -> Result<LetterOutcome, Outage> {
        Ok(match self.dead.drop(letter).await {
            Ok(DropReply::Dropped) => LetterOutcome::Done(EndedLetter {
                letter: letter.id,
                outcome: "dropped",
                order: self.dead.order_of(letter).ok().map(|order| order.id.to_string()),
                entry: None,
            }),
            Ok(DropReply::Gone) => LetterOutcome::Gone,
            Ok(DropReply::HoldsUnits) => LetterOutcome::Stays(Obstacle::HoldsUnits, None),
            Err(error) => LetterOutcome::of_error(error)?,
        })
    }
}
