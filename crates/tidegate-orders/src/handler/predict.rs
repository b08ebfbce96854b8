//! Predicts what the handler would do with a batch, by the same decisions. It locks nothing and writes nothing.

use tidegate_stream::{DeadLetterReason, Entry, Outage, Outcome};

use super::{
    OrderHandler, PublishedEntries,
    batch::{Batch, Placed},
    outcome,
    results::Results,
};
use crate::{
    ledger::{Decided, DryRun, Incoming, MissingRow, Verdict},
    results::Published,
};

/// The predicted outcome of an entry in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// The order is already written.
    AlreadyThere,
    /// The order would be written.
    Created,
    /// The order would be refused and released.
    Refused,
    /// The order was refused before. It would be released, unless that was done.
    RefusedBefore,
    /// The order was released without having been written. If it were written now, its units would be sold twice.
    Released,
    /// The entry is an event that is already recorded.
    EventAlreadyThere,
    /// The entry is an event that would be recorded. Its outcome depends on the entries before it.
    Event,
    /// The entry can never be written.
    Dead(DeadLetterReason),
}

impl OrderHandler {
    /// Predicts the outcomes of a batch, as if all orders and events in `before` were handled first. Adds the orders
    /// and events of the batch to `before`.
    ///
    /// It cannot predict what MySQL itself refuses (a foreign key, a check).
    ///
    /// # Errors
    /// If a store does not answer.
    pub async fn predict(&self, entries: &[Entry], before: &mut DryRun) -> Result<Vec<Predicted>, Outage> {
        let nothing =
            Results::new(entries, self.redis.keys().fields(), Published::None, PublishedEntries::All);
        let Batch { orders, events, outcomes, .. } =
            Batch::decode(entries, self.redis.keys().fields(), self.redis.keys().partition(), nothing, None);
        let mut predicted: Vec<Predicted> = outcomes.into_iter().map(of_outcome).collect();
        let of_events = self.ledger.predict_events(&events.items).await?;
        for (at, (_, is_recorded)) in events.places.into_iter().zip(of_events) {
            predicted[at] = if is_recorded { Predicted::EventAlreadyThere } else { Predicted::Event };
        }
        let snapshot = self.ledger.snapshot(&orders.items, MissingRow::SaysNothing).await?;
        let unknown = orders.items.iter().map(|incoming| &incoming.order);
        let unknown: Vec<_> = unknown
            .filter(|order| snapshot.is_unknown(order))
            .map(|order| (order.voucher, order.id))
            .collect();
        let released =
            self.redis.journals().released(&unknown).await.map_err(|error| Outage::new("Redis", error))?;
        let mut left = Placed::with_capacity(orders.items.len());
        for (at, incoming) in orders.places.into_iter().zip(orders.items) {
            if released.contains(&(incoming.order.voucher, incoming.order.id)) {
                predicted[at] = Predicted::Released;
            } else {
                left.push(at, incoming);
            }
        }
        let decided = snapshot.predict_record(&left.items, before);
        for ((at, incoming), decided) in left.iter().zip(decided) {
            predicted[at] = of_decided(incoming, decided);
        }
        Ok(predicted)
    }
}

/// The prediction from decoding an entry. Orders are decided afterwards.
fn of_outcome(outcome: Outcome) -> Predicted {
    match outcome {
        Outcome::Dead(why) => Predicted::Dead(why),
        Outcome::Done | Outcome::SetAside(_) => Predicted::AlreadyThere,
    }
}

fn of_decided(incoming: &Incoming, Decided { verdict, is_new }: Decided) -> Predicted {
    match (verdict, is_new) {
        (Verdict::Created, _) => Predicted::Created,
        (Verdict::Refused(_), true) => Predicted::Refused,
        (Verdict::Refused(_), false) => Predicted::RefusedBefore,
        (verdict, _) => of_outcome(outcome(incoming, verdict)),
    }
}
