//! Settling of a batch: the lane acknowledges entries that are done, buries dead ones, and sets the others aside.

use std::time::Instant;

use super::{
    Lane,
    burials::Burials,
    step::{DEAD_STREAM, Step},
};
use crate::{
    entry::{Delivery, Entry, EntryId},
    handler::{Cause, DeadLetterReason, Handler, Outage, Outcome},
    lane_status::Activity,
    observer::{Settling, Stage},
    redis::RedisError,
    stream::StreamError,
};

impl<H: Handler> Lane<H> {
    pub(super) async fn settle(
        &self,
        delivery: &Delivery,
        outcomes: &[Outcome],
        step: &mut Step,
    ) -> Settling {
        self.lane_status.enter(Activity::Settling);
        let (began, mut unburied) = (Instant::now(), Vec::new());
        let settled = self.settle_each(delivery, outcomes, step, &mut unburied).await;
        let stage = Stage::since(began);
        if settled.is_ok() {
            self.counters.settled(stage.time());
        }
        Settling { stage, unburied, outage: settled.err() }
    }

    /// Acknowledges the entries that are done, and notes that the others are not in progress; both calls wait together
    /// for Redis to write its file. Then it buries the dead entries: one that cannot be buried delays no other entry.
    /// It deletes the crash counts of entries before it acknowledges them. If the process dies in between, no count of
    /// an entry that is gone is left.
    async fn settle_each(
        &self,
        delivery: &Delivery,
        outcomes: &[Outcome],
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let outcomes = || delivery.entries.iter().zip(outcomes);
        let done = outcomes().filter(|(_, outcome)| **outcome == Outcome::Done);
        let done: Vec<EntryId> = done.map(|(entry, _)| entry.id).collect();
        let (survivors, others): (Vec<EntryId>, Vec<EntryId>) =
            delivery.survivors.iter().partition(|id| done.contains(id));
        self.stream.forget_crashes(&survivors).await?;
        let waiting = outcomes().filter_map(|(entry, outcome)| match outcome {
            Outcome::SetAside(cause) => Some((entry.id, *cause)),
            Outcome::Done | Outcome::Dead(_) => None,
        });
        let waiting: Vec<(EntryId, Cause)> = waiting.collect();
        let mut left: Vec<EntryId> = step.set_aside.iter().chain(&waiting).map(|(id, _)| *id).collect();
        let (acknowledged, out_of_hand) = tokio::join!(
            self.stream.settle_of(self.run_of_server(), &done),
            self.stream.set_aside(self.reader.consumer(), &left),
        );
        acknowledged?;
        step.report.done = done.len();
        out_of_hand?;
        waiting.into_iter().for_each(|(id, cause)| step.set_aside(id, cause));
        let dead = outcomes().filter_map(|(entry, outcome)| match outcome {
            Outcome::Dead(why) => Some((entry, why)),
            Outcome::Done | Outcome::SetAside(_) => None,
        });
        self.bury(dead, step, unburied).await?;
        self.stream.set_aside(self.reader.consumer(), unburied).await?;
        left.extend_from_slice(unburied);
        let gone: Vec<EntryId> = others.into_iter().filter(|id| !left.contains(id)).collect();
        Ok(self.stream.forget_crashes(&gone).await?)
    }

    async fn bury<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a DeadLetterReason)>,
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
    ) -> Result<(), Outage> {
        let mut burials = Burials::default();
        let buried = self.bury_each(dead, step, unburied, &mut burials).await;
        burials.log_rest();
        if let Some(error) = buried? {
            self.log_unburied(&error);
        }
        Ok(())
    }

    pub(super) fn log_unburied(&self, error: &RedisError) {
        let dead = &self.stream.names().dead;
        tracing::error!(%error, %dead, "cannot write dead letters, so the entries stay pending; the worker tries again");
    }

    /// Buries each of the dead entries. Returns the error of Redis if it refused one of them.
    async fn bury_each<'a>(
        &self,
        dead: impl Iterator<Item = (&'a Entry, &'a DeadLetterReason)>,
        step: &mut Step,
        unburied: &mut Vec<EntryId>,
        burials: &mut Burials,
    ) -> Result<Option<RedisError>, Outage> {
        let mut refusal = None;
        for (entry, why) in dead {
            match self.stream.bury_of(self.run_of_server(), entry, why).await {
                Ok(true) => {
                    burials.log(entry.id, why);
                    step.report.buried += 1;
                    self.counters.buried(why.reason);
                }
                // Another worker has settled it in the meantime.
                Ok(false) => {}
                Err(StreamError::Redis(error)) if error.is_refusal() => {
                    step.set_aside(entry.id, DEAD_STREAM);
                    unburied.push(entry.id);
                    refusal = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(refusal)
    }
}
