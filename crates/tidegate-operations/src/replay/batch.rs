//! Replays a batch of entries, and settles those that are pending.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use fred::{interfaces::KeysInterface, types::Key};
use tidegate_orders::{
    DryRun, Keys, LOST_IN_MYSQL, Ledger, OrderCounters, OrderHandler, Predicted, PublishedEntries,
    RedisStore, UserLocks, keys::process_of, scripts::rebuild_id,
};
use tidegate_stream::{
    Backoff, BuryReply, DeadLetterReason, Entry, EntryId, Outage, Outcome, ReplicaProbe, ServerRun, Stream,
    StreamError, connect_reader,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{ReplayOutcomes, ReplayReport, ReplayRequest, ReplaySource};
use crate::{Stores, entry_source::EntrySource, settings::SystemSettings};

/// The reason why an entry is left.
const HELD: &str = "another process holds a lock, a row or a key that this order needs, or a living worker \
                    is processing the entry";
const LOST: &str =
    "MySQL lacks the order, or the event that ended an earlier order: run `tidegate reconcile --repair`";

const BEHIND: &str = "an older entry of the same order is not written: the replay left that entry; or the replay \
                      begins after that entry, and no worker has read that entry";

/// The time for which Redis keeps the key with which replicas are asked.
const LEASE: Duration = Duration::from_secs(10);

/// The pending entries that are read at once.
const PAGE: u16 = 2_000;

/// Replays entries batch by batch.
#[derive(Debug)]
pub(super) struct BatchRunner {
    handler: OrderHandler,
    order_counters: Arc<OrderCounters>,
    ledger: Ledger,
    stream: Stream,
    redis: RedisStore,
    /// The source of the entries.
    source: EntrySource,
    /// The check that replicas have an entry of the stream before its order is written, if the settings ask for it.
    replicas: Option<Replicas>,
    /// Whether entries are settled; those of a file are not.
    settles: bool,
    /// The first entry of the replay; entries before it are left out.
    first: EntryId,
    /// Whether results of entries that are not pending are published again. They were published when the entries were
    /// acknowledged.
    publishes_all: bool,
    retry: (Duration, Duration),
    patience: Duration,
}

/// Asks whether replicas have everything that was written, as a worker does.
#[derive(Debug)]
struct Replicas {
    probe: ReplicaProbe,
    /// The key that is written to ask; no other process uses it.
    key: Key,
    token: String,
}

impl Replicas {
    async fn open(settings: &SystemSettings, keys: &Keys) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = settings.confirmation else { return Ok(None) };
        let connection = connect_reader(&settings.redis.connection()).await?;
        let (probe, token) = (ReplicaProbe::new(connection, wanted)?, rebuild_id());
        Ok(Some(Self { probe, key: keys.fleet().replay(&token), token }))
    }

    async fn have_all(&self, run: &ServerRun) -> Result<(), Outage> {
        self.probe.replicas_have_all_of(run, self.key.clone(), &self.token, LEASE).await
    }
}

/// The entries that are to be replayed.
struct ToRun {
    entries: Vec<Entry>,
    known: Before,
}

/// The state of entries before they were replayed.
#[derive(Default)]
struct Before {
    /// The entries whose orders were refused.
    refused: HashSet<EntryId>,
    /// The entries that hold events, and whether these were recorded.
    events: HashMap<EntryId, bool>,
}

impl BatchRunner {
    /// Creates a runner for these stores. Entries of the stream are read from `source`.
    pub(super) async fn open(
        stores: &Stores,
        source: &EntrySource,
        request: &ReplayRequest,
    ) -> anyhow::Result<Self> {
        let (settings, redis) = (stores.settings(), stores.redis().await?.clone());
        let fleet = &settings.fleet;
        let publisher = stores.publisher().await?;
        let ledger = stores.ledger().await?;
        let ledger = ledger
            .with_look_up_first()
            .committing_in_packet(stores.sessions().await?.commit_in_packet())
            .with_pay_within(settings.pay_within, settings.partition());
        let order_counters = Arc::new(OrderCounters::default());
        let handler = OrderHandler::new(
            redis.clone(),
            UserLocks::new(redis.clone(), fleet.lock_lease, fleet.lock_layout),
            ledger.clone(),
            Arc::clone(&order_counters),
        );
        let handler = handler.publishing(publisher);
        Ok(Self {
            handler,
            order_counters,
            ledger,
            first: request.first.unwrap_or(EntryId::MIN),
            stream: Stream::new(&redis, redis.inspector().names().clone()),
            source: source.clone(),
            replicas: Replicas::open(settings, redis.keys()).await?,
            redis,
            settles: request.source == ReplaySource::Stream,
            publishes_all: request.publish,
            retry: (fleet.lock_retry, fleet.backoff_max),
            // The locks of a killed worker have expired by then.
            patience: fleet.lock_lease * 2,
        })
    }

    /// Adds the predicted outcomes of these entries, which may depend on all entries in `before`; it changes nothing.
    pub(super) async fn predict(
        &self,
        batch: &[Entry],
        before: &mut DryRun,
        outcomes: &mut ReplayOutcomes,
    ) -> Result<(), Outage> {
        for (entry, predicted) in batch.iter().zip(self.handler.predict(batch, before).await?) {
            match predicted {
                Predicted::AlreadyThere => outcomes.add(|counts| &mut counts.already_there),
                Predicted::Created => outcomes.add(|counts| &mut counts.created),
                Predicted::Refused => outcomes.add(|counts| &mut counts.refused),
                Predicted::RefusedBefore => outcomes.add(|counts| &mut counts.refused_before),
                Predicted::Released => outcomes.add_released(entry.id),
                Predicted::Event => outcomes.add(|counts| &mut counts.events),
                Predicted::EventAlreadyThere => outcomes.add(|counts| &mut counts.events_before),
                Predicted::Dead(why) => match self.predict_burial(entry.id).await? {
                    BuryReply::Buried => outcomes.add(|counts| &mut counts.buried),
                    BuryReply::Settled => outcomes.add_dead(entry.id, &why),
                    BuryReply::InProgress => outcomes.add_in_progress(entry.id, &why),
                },
            }
        }
        Ok(())
    }

    /// Replays entries, and settles those that are pending. Entries whose users are locked by other processes are
    /// retried for a while. If `stop` ends the run, it returns the first entry that was not replayed.
    ///
    /// # Errors
    /// If a store does not answer; everything that is in `report` by then is done.
    pub(super) async fn run(
        &self,
        batch: &[Entry],
        report: &mut ReplayReport,
        stop: &CancellationToken,
    ) -> Result<Option<EntryId>, Outage> {
        self.await_replicas().await?;
        let ToRun { mut entries, known } = self.to_run(batch, report).await?;
        // If a worker reads an entry from now on, that worker publishes and settles it.
        let pending = self.pending(&entries).await?;
        let (began, mut backoff) = (Instant::now(), Backoff::new(self.retry.0, self.retry.1));
        let mut waited_for_lost = HashSet::new();
        loop {
            let outcomes = self.handle((&entries, &pending), &known, report).await?;
            let in_progress = self.settle((&entries, &pending), &outcomes, report).await?;
            let mut outcomes = outcomes.iter();
            entries.retain(|entry| match outcomes.next() {
                // An earlier entry of this batch may have written what the entry waits for. Otherwise, only a repair
                // ends its wait.
                Some(Outcome::SetAside(cause))
                    if cause.kind == LOST_IN_MYSQL && !waited_for_lost.insert(entry.id) =>
                {
                    self.leave(entry, LOST, report);
                    false
                }
                Some(Outcome::SetAside(_)) if self.is_behind(entry, report) => {
                    self.leave(entry, BEHIND, report);
                    false
                }
                Some(Outcome::SetAside(_)) => true,
                _ => in_progress.contains(&entry.id),
            });
            let Some(first) = entries.first() else { return Ok(None) };
            if began.elapsed() > self.patience {
                entries.iter().for_each(|entry| self.leave(entry, HELD, report));
                return Ok(None);
            }
            if stop.run_until_cancelled(sleep(backoff.next_wait())).await.is_none() {
                return Ok(Some(first.id));
            }
        }
    }

    /// Waits until replicas have the entries that were read, if the settings ask for it. A lane waits in the same way.
    async fn await_replicas(&self) -> Result<(), Outage> {
        match self.replicas.as_ref().filter(|_| self.settles) {
            Some(replicas) => replicas.have_all(&self.source.run).await,
            None => Ok(()),
        }
    }

    /// Leaves an entry, and with it all later events of its order.
    fn leave(&self, entry: &Entry, why: impl Into<String>, report: &mut ReplayReport) {
        report.leave(entry.id, self.handler.order_of(entry), why);
    }

    /// Returns whether an older entry of the event's order is not done, even if it is not pending because no worker has
    /// read it.
    fn is_behind(&self, event: &Entry, report: &ReplayReport) -> bool {
        self.handler.order_of(event).is_some_and(|order| report.has_left(order))
    }

    /// Notes the orders of undelivered entries before the first entry of this replay that are not done. It runs once.
    async fn look_before_first(&self, report: &mut ReplayReport) -> Result<(), Outage> {
        if !self.settles
            || self.first == EntryId::MIN
            || std::mem::replace(&mut report.has_looked_before, true)
        {
            return Ok(());
        }
        let mut after = self.source.inspector.group().last_delivered().await?.unwrap_or_default();
        while after < self.first.previous() {
            let range = (after, self.first.previous());
            let page = self.source.inspector.page(&self.source.inspector.names().stream, range, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            let predicted = self.handler.predict(&page, &mut DryRun::default()).await?;
            let to_do = page.iter().zip(predicted);
            let to_do = to_do.filter(|(_, it)| matches!(it, Predicted::Event | Predicted::Created));
            report.orders_left.extend(to_do.filter_map(|(entry, _)| self.handler.order_of(entry)));
        }
        Ok(())
    }

    /// Returns the entries of `batch` whose orders were not released, without events that come too early.
    async fn to_run(&self, batch: &[Entry], report: &mut ReplayReport) -> Result<ToRun, Outage> {
        let mut to_run = ToRun { entries: Vec::with_capacity(batch.len()), known: Before::default() };
        let predicted = self.handler.predict(batch, &mut DryRun::default()).await?;
        if predicted.iter().any(|predicted| matches!(predicted, Predicted::Event)) {
            self.look_before_first(report).await?;
        }
        for (entry, predicted) in batch.iter().zip(predicted) {
            match predicted {
                Predicted::Event if self.is_behind(entry, report) => {
                    self.leave(entry, BEHIND, report);
                    continue;
                }
                Predicted::Released => {
                    report.outcomes.add_released(entry.id);
                    continue;
                }
                Predicted::RefusedBefore => _ = to_run.known.refused.insert(entry.id),
                Predicted::Event => _ = to_run.known.events.insert(entry.id, false),
                Predicted::EventAlreadyThere => _ = to_run.known.events.insert(entry.id, true),
                _ => {}
            }
            to_run.entries.push(entry.clone());
        }
        Ok(to_run)
    }

    async fn handle(
        &self,
        (entries, pending): (&[Entry], &HashSet<EntryId>),
        known: &Before,
        report: &mut ReplayReport,
    ) -> Result<Vec<Outcome>, Outage> {
        let before = self.order_counters.counts();
        let published =
            if self.publishes_all { PublishedEntries::All } else { PublishedEntries::Only(pending) };
        let outcomes = self.handler.handle_publishing(entries, published).await?;
        let now = self.order_counters.counts();
        let ended = entries.iter().zip(&outcomes).filter(|(_, outcome)| **outcome == Outcome::Done);
        let refused_before =
            ended.clone().filter(|(entry, _)| known.refused.contains(&entry.id)).count() as u64;
        let events = ended.clone().filter_map(|(entry, _)| known.events.get(&entry.id));
        let (events_before, events): (Vec<bool>, Vec<bool>) = events.partition(|was_recorded| **was_recorded);
        let refused = now.refused() - before.refused();
        let counts = &mut report.outcomes.counts;
        counts.entries += ended.count() as u64;
        counts.created += now.created - before.created;
        counts.already_there += now.already_there - before.already_there;
        counts.refused_before += refused_before;
        counts.refused += refused.saturating_sub(refused_before);
        counts.events += events.len() as u64;
        counts.events_before += events_before.len() as u64;
        Ok(outcomes)
    }

    /// Settles pending entries: acknowledges the done ones and buries the dead ones. Entries that the group has not
    /// read yet are left to it: a worker will find them done. It returns the dead entries that a living worker has in
    /// progress. For that worker they may be valid, because the row of their voucher may have been added in the
    /// meantime.
    async fn settle(
        &self,
        (entries, pending): (&[Entry], &HashSet<EntryId>),
        outcomes: &[Outcome],
        report: &mut ReplayReport,
    ) -> Result<HashSet<EntryId>, Outage> {
        let mut in_progress = HashSet::new();
        let ended = entries.iter().zip(outcomes).filter(|(_, outcome)| **outcome == Outcome::Done);
        let ended = ended.map(|(entry, _)| entry.id).filter(|id| pending.contains(id));
        let ended: Vec<EntryId> = ended.collect();
        if !ended.is_empty() {
            // A row that was only read may be visible shortly before it is durable. A durable write of this process
            // shows that the row is durable, too.
            self.ledger.probe().await?;
            report.acknowledged += self.stream.settle_of(&self.source.run, &ended).await? as u64;
            self.stream.forget_crashes(&ended).await?;
        }
        for (entry, outcome) in entries.iter().zip(outcomes) {
            let Outcome::Dead(why) = outcome else { continue };
            if !pending.contains(&entry.id) {
                report.outcomes.add_dead(entry.id, why);
            } else if self.settle_dead(entry, why, report).await? == BuryReply::InProgress {
                in_progress.insert(entry.id);
            }
        }
        Ok(in_progress)
    }

    /// Buries an entry that can never be written, unless it is not pending or a living worker has it.
    async fn settle_dead(
        &self,
        entry: &Entry,
        why: &DeadLetterReason,
        report: &mut ReplayReport,
    ) -> Result<BuryReply, Outage> {
        let reply = match self.bury(entry, why).await {
            Err(StreamError::Redis(error)) if error.is_refusal() => {
                self.leave(entry, error.to_string(), report);
                return Ok(BuryReply::Settled);
            }
            reply => reply?,
        };
        match reply {
            BuryReply::Buried => report.outcomes.add(|counts| &mut counts.buried),
            BuryReply::Settled => report.outcomes.add_dead(entry.id, why),
            BuryReply::InProgress => {}
        }
        Ok(reply)
    }

    async fn bury(&self, entry: &Entry, why: &DeadLetterReason) -> Result<BuryReply, StreamError> {
        let Some(pending) = self.source.inspector.group().pending_entry(entry.id).await? else {
            return Ok(BuryReply::Settled);
        };
        let heartbeat = self.redis.keys().fleet().heartbeat(process_of(&pending.consumer));
        self.stream.bury_of_dead(&self.source.run, entry, why, &pending.consumer, heartbeat).await
    }

    /// Returns what [`BatchRunner::bury`] would return now.
    async fn predict_burial(&self, id: EntryId) -> Result<BuryReply, Outage> {
        if !self.settles {
            return Ok(BuryReply::Settled);
        }
        let Some(pending) = self.source.inspector.group().pending_entry(id).await? else {
            return Ok(BuryReply::Settled);
        };
        let heartbeat: Key = self.redis.keys().fleet().heartbeat(process_of(&pending.consumer));
        let is_alive = self.redis.pool().exists(heartbeat).await.map_err(StreamError::from)?;
        Ok(if is_alive { BuryReply::InProgress } else { BuryReply::Buried })
    }

    /// Returns those of `entries` that are pending.
    async fn pending(&self, entries: &[Entry]) -> Result<HashSet<EntryId>, Outage> {
        let ids: HashSet<EntryId> = entries.iter().map(|entry| entry.id).collect();
        let mut pending = HashSet::new();
        let (Some(first), Some(last), true) = (ids.iter().min(), ids.iter().max(), self.settles) else {
            return Ok(pending);
        };
        let mut pages = self.source.inspector.group().pending_pages((first.previous(), *last), PAGE, None);
        while let Some(page) = pages.next().await? {
            pending.extend(page.into_iter().map(|pending| pending.id).filter(|id| ids.contains(id)));
        }
        Ok(pending)
    }
}
