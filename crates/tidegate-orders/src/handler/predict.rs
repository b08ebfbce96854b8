//! What the handler would do with a batch, by the same decisions, with nothing locked and nothing written.

use tidegate_stream::{DeadLetterReason, Entry, Outage, Outcome};

use super::{
    PublishedEntries, OrderHandler,
    batch::{Batch, Placed},
    outcome,
    results::Results,
};
use crate::{
    ledger::{Absence, Decided, DryRun, Incoming, Verdict},
    results::Published,
};

/// What would become of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// Its order is there.
    AlreadyThere,
    /// Its order would be written.
    Created,
    /// Its order would be refused, and released.
    Refused,
    /// Its order was refused, and would be released if it was not yet.
    RefusedBefore,
    /// Its order was released without having been written: if it was written now, its unit would be sold twice.
    Released,
    /// It is an event that is recorded.
    EventAlreadyThere,
    /// It is an event that would be recorded. What would come of it depends on what comes before it.
    Event,
    /// It can never be written.
    Dead(DeadLetterReason),
}

impl OrderHandler {
    /// Says what would become of a batch if it was handled after all that `before` knows of; notes it there, too.
    ///
    /// What MySQL itself refuses (a foreign key, a check) it says only when it is tried.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn predict(&self, entries: &[Entry], before: &mut DryRun) -> Result<Vec<Predicted>, Outage> {
        let nothing =
            Results::new(entries, self.redis.keys().fields(), Published::None, PublishedEntries::All);
        let Batch { orders, events, outcomes, .. } =
            Batch::decode(entries, self.redis.keys().fields(), self.redis.partition(), nothing, None);
        let mut predicted: Vec<Predicted> = outcomes.into_iter().map(of_outcome).collect();
        let of_events = self.ledger.predict_events(&events.items).await?;
        for (at, (_, is_recorded)) in events.places.into_iter().zip(of_events) {
            predicted[at] = if is_recorded { Predicted::EventAlreadyThere } else { Predicted::Event };
        }
        let snapshot = self.ledger.snapshot(&orders.items, Absence::SaysNothing).await?;
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

/// What decoding says of an entry; those that are orders are decided afterwards.
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
