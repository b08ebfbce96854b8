//! Running entries again, through the same handler as a lane. What is there already stays as it is.

mod pace;
mod source;

use std::{collections::HashSet, sync::Arc, time::Duration};

use fred::{clients::Pool, interfaces::KeysInterface, types::Key};
use serde::Serialize;
use tidegate_orders::{
    Foreseen, Foresight, Gate, Keys, Ledger, OrderHandler, Tally, UserLocks, keys::process_of,
};
use tidegate_stream::{
    Backoff, BuryReply, Death, Entry, EntryId, Handler, Leases, Outage, Outcome, Stream, StreamError, Survey,
    is_refusal,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{config::Settings, connect};
pub use pace::Pace;
pub use source::{FileLines, Origin, Source};

/// Entries that are told one by one, at most.
const MOST_NOTES: usize = 20;

/// What became of entries, or would become of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// All of them.
    pub entries: u64,
    /// Their orders are in MySQL since before.
    pub already_there: u64,
    /// Their orders were written.
    pub created: u64,
    /// Their orders were refused.
    pub refused: u64,
    /// Their orders had been refused before.
    pub refused_before: u64,
    /// Their orders were given back without having been written: they were not run.
    pub given_back: u64,
    /// They can never be written, were pending, and are dead letters now.
    pub buried: u64,
    /// They can never be written, and are not pending: nothing is done about them.
    pub dead: u64,
    /// They could not be written now, and a living worker has them in hand or has set them aside: nobody else buries
    /// them. Only foreseen; those that it keeps to the end are left.
    pub in_hand: u64,
}

/// An entry of which there is something to say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    entry: String,
    /// `dead`, `given_back`, `in_hand` or `left`.
    what: &'static str,
    why: String,
}

impl Note {
    /// For people.
    pub fn text(&self) -> String {
        format!("  {} {}: {}", self.entry, self.what.replace('_', " "), self.why)
    }
}

/// What became of entries, with those that need a look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tidings {
    /// By what became of them.
    #[serde(flatten)]
    pub counts: Counts,
    /// The first of those that need a look.
    pub notes: Vec<Note>,
}

impl Tidings {
    fn note(&mut self, id: EntryId, what: &'static str, why: impl Into<String>) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(Note { entry: id.to_string(), what, why: why.into() });
        }
    }

    fn given_back(&mut self, id: EntryId) {
        self.counts.entries += 1;
        self.counts.given_back += 1;
        self.note(id, "given_back", "its unit is free again, so it is not run");
    }

    fn dead(&mut self, id: EntryId, Death { reason, error }: &Death) {
        self.counts.entries += 1;
        self.counts.dead += 1;
        self.note(id, "dead", format!("{reason}: {error}; it is not pending, so it is not buried"));
    }

    fn in_hand(&mut self, id: EntryId, Death { reason, error }: &Death) {
        self.counts.entries += 1;
        self.counts.in_hand += 1;
        self.note(
            id,
            "in_hand",
            format!("{reason}: {error}; a living worker has it, so a replay waits for that"),
        );
    }
}

/// What was done so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Done {
    /// What became of entries.
    #[serde(flatten)]
    pub tidings: Tidings,
    /// Entries that are still to be done: others hold their users, their vouchers or themselves for too long, or Redis
    /// takes no dead letter.
    pub left: u64,
    /// The first of these.
    #[serde(skip)]
    pub first_left: Option<EntryId>,
    /// How many of all were pending in the group and are acknowledged now, buried ones not counted.
    pub acknowledged: u64,
}

impl Done {
    fn left(&mut self, id: EntryId, why: impl Into<String>) {
        self.left += 1;
        self.first_left = Some(self.first_left.map_or(id, |first| first.min(id)));
        self.tidings.note(id, "left", why);
    }
}

/// Runs entries again.
#[derive(Debug)]
pub struct Replay {
    handler: OrderHandler,
    tally: Arc<Tally>,
    ledger: Ledger,
    stream: Stream,
    survey: Survey,
    pool: Pool,
    keys: Keys,
    origin: Origin,
    retry: (Duration, Duration),
    patience: Duration,
}

impl Replay {
    /// Connects to MySQL; `pool` is that of Redis.
    ///
    /// # Errors
    /// When MySQL cannot be reached.
    pub async fn open(settings: &Settings, pool: Pool, origin: Origin) -> anyhow::Result<Self> {
        let (worker, names) = (&settings.worker, settings.stream_names());
        let keys = Keys::new(settings.keys.clone());
        let sessions = connect::mysql_reached(settings).await?;
        let mysql = sessions.pool(settings.mysql.connections);
        let ledger = Ledger::new(mysql, settings.mysql.statement_timeout)
            .looking_first()
            .committing_in_packet(sessions.commit_in_packet());
        let tally = Arc::new(Tally::default());
        let handler = OrderHandler::new(
            Gate::new(pool.clone(), keys.clone(), names.stream.clone()),
            UserLocks::new(Leases::new(pool.clone()), keys.clone(), worker.lock_lease),
            ledger.clone(),
            Arc::clone(&tally),
        );
        Ok(Self {
            handler,
            tally,
            ledger,
            stream: Stream::new(pool.clone(), names.clone()),
            survey: Survey::new(pool.clone(), names),
            pool,
            keys,
            origin,
            retry: (worker.lock_retry, worker.backoff_max),
            // A killed worker's locks have ended by then.
            patience: worker.lock_lease * 2,
        })
    }

    /// Adds what would become of these entries, after all that `before` knows of; changes nothing.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn foresee(
        &self,
        batch: &[Entry],
        before: &mut Foresight,
        seen: &mut Tidings,
    ) -> Result<(), Outage> {
        for (entry, foreseen) in batch.iter().zip(self.handler.foresee(batch, before).await?) {
            let counter = match foreseen {
                Foreseen::AlreadyThere => &mut seen.counts.already_there,
                Foreseen::Created => &mut seen.counts.created,
                Foreseen::Refused => &mut seen.counts.refused,
                Foreseen::RefusedBefore => &mut seen.counts.refused_before,
                Foreseen::Dead(death) => match self.foresee_burial(entry.id).await? {
                    BuryReply::Buried => &mut seen.counts.buried,
                    BuryReply::Settled => {
                        seen.dead(entry.id, &death);
                        continue;
                    }
                    BuryReply::InHand => {
                        seen.in_hand(entry.id, &death);
                        continue;
                    }
                },
                Foreseen::GivenBack => {
                    seen.given_back(entry.id);
                    continue;
                }
            };
            *counter += 1;
            seen.counts.entries += 1;
        }
        Ok(())
    }

    /// Runs entries, and settles those that are pending. Those whose users are locked by others are tried again for a
    /// while. Answers with the first that is left when `stop` ends that.
    ///
    /// # Errors
    /// When a store does not answer; what is told in `done` by then is done.
    pub async fn run(
        &self,
        batch: &[Entry],
        done: &mut Done,
        stop: &CancellationToken,
    ) -> Result<Option<EntryId>, Outage> {
        let (mut todo, mut refused_before) = (Vec::with_capacity(batch.len()), HashSet::new());
        let foreseen = self.handler.foresee(batch, &mut Foresight::default()).await?;
        for (entry, foreseen) in batch.iter().zip(foreseen) {
            match foreseen {
                Foreseen::GivenBack => {
                    done.tidings.given_back(entry.id);
                    continue;
                }
                Foreseen::RefusedBefore => _ = refused_before.insert(entry.id),
                _ => {}
            }
            todo.push(entry.clone());
        }
        let (began, mut backoff) = (Instant::now(), Backoff::new(self.retry.0, self.retry.1));
        loop {
            let outcomes = self.handle(&todo, &refused_before, done).await?;
            let in_hand = self.settle(&todo, &outcomes, done).await?;
            let mut outcomes = outcomes.iter();
            todo.retain(|entry| {
                matches!(outcomes.next(), Some(Outcome::SetAside(_))) || in_hand.contains(&entry.id)
            });
            let Some(first) = todo.first() else { return Ok(None) };
            if began.elapsed() > self.patience {
                for entry in &todo {
                    done.left(
                        entry.id,
                        "somebody else holds its user's lock, its voucher's row or a key of its voucher, or a \
                         living worker has it in hand",
                    );
                }
                return Ok(None);
            }
            if stop.run_until_cancelled(sleep(backoff.next_wait())).await.is_none() {
                return Ok(Some(first.id));
            }
        }
    }

    async fn handle(
        &self,
        todo: &[Entry],
        refused_before: &HashSet<EntryId>,
        done: &mut Done,
    ) -> Result<Vec<Outcome>, Outage> {
        let before = self.tally.counts();
        let outcomes = self.handler.handle(todo).await?;
        let now = self.tally.counts();
        let ended = todo.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Done);
        let known = ended.clone().filter(|(entry, _)| refused_before.contains(&entry.id)).count() as u64;
        let refused = now.refused() - before.refused();
        let counts = &mut done.tidings.counts;
        counts.entries += ended.count() as u64;
        counts.created += now.created - before.created;
        counts.already_there += now.already_there - before.already_there;
        counts.refused_before += known;
        counts.refused += refused.saturating_sub(known);
        Ok(outcomes)
    }

    /// Acknowledges what is done and buries what is dead, of that which is pending. What the group has not read yet is
    /// left to it: a worker finds it done. Answers with what is dead and in hand of a living worker, for which it may
    /// be alive: the row of its voucher may have been added meanwhile.
    async fn settle(
        &self,
        todo: &[Entry],
        outcomes: &[Outcome],
        done: &mut Done,
    ) -> Result<HashSet<EntryId>, Outage> {
        let mut in_hand = HashSet::new();
        let ids = || todo.iter().map(|entry| entry.id);
        let (Some(first), Some(last)) = (ids().min(), ids().max()) else { return Ok(in_hand) };
        let is_pending = self.is_any_pending(first, last).await?;
        let ended: Vec<EntryId> =
            ids().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Done).map(|(id, _)| id).collect();
        if is_pending && !ended.is_empty() {
            // A row that was only read may be visible a moment before it is durable: a write of our own that is durable
            // means that it is, too.
            self.ledger.probe().await?;
            done.acknowledged += self.stream.settle(&ended).await? as u64;
            self.stream.forget_deaths(&ended).await?;
        }
        for (entry, outcome) in todo.iter().zip(outcomes) {
            let Outcome::Dead(death) = outcome else { continue };
            if !is_pending {
                done.tidings.dead(entry.id, death);
                continue;
            }
            match self.bury(entry, death).await {
                Ok(BuryReply::Buried) => {
                    done.tidings.counts.entries += 1;
                    done.tidings.counts.buried += 1;
                }
                Ok(BuryReply::Settled) => done.tidings.dead(entry.id, death),
                Ok(BuryReply::InHand) => _ = in_hand.insert(entry.id),
                Err(StreamError::Redis(error)) if is_refusal(&error) => {
                    done.left(entry.id, error.to_string())
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(in_hand)
    }

    async fn bury(&self, entry: &Entry, death: &Death) -> Result<BuryReply, StreamError> {
        let Some(pending) = self.survey.pending_entry(entry.id).await? else { return Ok(BuryReply::Settled) };
        let heartbeat = self.keys.heartbeat(process_of(&pending.consumer));
        self.stream.bury_of_dead(entry, death, &pending.consumer, heartbeat).await
    }

    /// What [`Replay::bury`] would answer now.
    async fn foresee_burial(&self, id: EntryId) -> Result<BuryReply, Outage> {
        if self.origin == Origin::File {
            return Ok(BuryReply::Settled);
        }
        let Some(pending) = self.survey.pending_entry(id).await? else { return Ok(BuryReply::Settled) };
        let heartbeat: Key = self.keys.heartbeat(process_of(&pending.consumer));
        let is_alive = self.pool.exists(heartbeat).await.map_err(StreamError::from)?;
        Ok(if is_alive { BuryReply::InHand } else { BuryReply::Buried })
    }

    async fn is_any_pending(&self, first: EntryId, last: EntryId) -> Result<bool, Outage> {
        match self.origin {
            Origin::Stream => Ok(self.survey.first_pending((first, last)).await?.is_some()),
            Origin::File => Ok(false),
        }
    }
}
