//! What the handler would do with a batch, by the same decisions, with nothing locked and nothing written.

use tidegate_stream::{Death, Entry, Outage, Outcome};

use super::{Decoded, OrderHandler, Placed, decode, outcome};
use crate::ledger::{Absence, Decided, DryRun, Incoming, IncomingEvent, Verdict};

/// What would become of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// Its order is there.
    AlreadyThere,
    /// Its order would be written.
    Created,
    /// Its order would be refused, and given back.
    Refused,
    /// Its order was refused, and would be given back if it was not yet.
    RefusedBefore,
    /// Its order was given back without having been written: if it was written now, its unit would be sold twice.
    GivenBack,
    /// It is an event that is recorded.
    EventAlreadyThere,
    /// It is an event that would be recorded. What would come of it depends on what comes before it.
    Event,
    /// It can never be written.
    Dead(Death),
}

impl OrderHandler {
    /// Says what would become of a batch if it was handled after all that `before` knows of; notes it there, too.
    ///
    /// What MySQL itself refuses (a foreign key, a check) it says only when it is tried.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn predict(&self, batch: &[Entry], before: &mut DryRun) -> Result<Vec<Predicted>, Outage> {
        let (Decoded { orders, events }, outcomes) = decode(self.gate.fields(), self.gate.partition(), batch);
        let mut predicted: Vec<Predicted> = outcomes.into_iter().map(of_outcome).collect();
        let (places, events): (Vec<usize>, Vec<IncomingEvent>) =
            events.into_iter().map(|placed| (placed.at, placed.incoming)).unzip();
        for (at, (_, is_recorded)) in places.into_iter().zip(self.ledger.predict_events(&events).await?) {
            predicted[at] = if is_recorded { Predicted::EventAlreadyThere } else { Predicted::Event };
        }
        let all: Vec<Incoming> = orders.iter().map(|placed| placed.incoming.clone()).collect();
        let snapshot = self.ledger.snapshot(&all, Absence::SaysNothing).await?;
        let unknown = all.iter().map(|incoming| &incoming.order).filter(|order| snapshot.is_unknown(order));
        let unknown: Vec<_> = unknown.map(|order| (order.voucher, order.id)).collect();
        let given_back = self.gate.given_back(&unknown).await.map_err(|error| Outage::new("Redis", error))?;
        let (orders, given_back): (Vec<Placed<Incoming>>, Vec<Placed<Incoming>>) =
            orders.into_iter().partition(|Placed { incoming: Incoming { order, .. }, .. }| {
                !given_back.contains(&(order.voucher, order.id))
            });
        for placed in given_back {
            predicted[placed.at] = Predicted::GivenBack;
        }
        let (places, incoming): (Vec<usize>, Vec<Incoming>) =
            orders.into_iter().map(|placed| (placed.at, placed.incoming)).unzip();
        let decided = snapshot.predict_record(&incoming, before);
        for ((at, incoming), decided) in places.into_iter().zip(&incoming).zip(decided) {
            predicted[at] = of_decided(incoming, decided);
        }
        Ok(predicted)
    }
}

/// What decoding says of an entry; those that are orders are decided afterwards.
fn of_outcome(outcome: Outcome) -> Predicted {
    match outcome {
        Outcome::Dead(death) => Predicted::Dead(death),
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
