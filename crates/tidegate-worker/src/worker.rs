//! What a worker process is made of.
//!
//! Start: Redis, the group, the name, one lane after the other; MySQL may be away, the breaker waits for it.
//! Stop: reading ends, each lane settles the batch in its hand, then the name is given back.

mod beside;
mod expire;
mod name;
mod reconcile;
mod shard;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context;
use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_operations::{
    InvalidInput, SystemSettings, connect, expirations::Sweeper, fleet_pause, partition_list,
    text::error_chain,
};
use tidegate_orders::{
    Announcer, Gate, Keys, Ledger, OrderCounters, OrderHandler, ResultsTrimmer, Sessions, UserLocks,
    worker_hands,
};
use tidegate_stream::{
    Backoff, Breaker, ConsumerRemover, Counters, Exclusive, Failover, GroupState, Lane, LaneSettings, Leases,
    Outage, PauseSwitch, Reader, RedisError, ServerClock, SetAsideNotes, SharedReader, Stream,
    StreamInspector, StreamNames, Trimmer, connect_reader, count_reconnects,
};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{
    settings::{ProcessSettings, WorkerSettings},
    trace::Traces,
    view::Parts,
};
use expire::{ExpiryLease, expire};
use name::Name;
pub use name::NameTaken;
use reconcile::{Reconciler, reconcile};
use shard::Shard;

/// Sessions with MySQL, which the workers of a process share.
#[derive(Clone, Debug)]
pub struct SharedMySql {
    sessions: Sessions,
    /// A lane that waits for a connection counts that as an outage, so none may wait for those who look at this process.
    for_lookers: MySqlPool,
    for_lanes: MySqlPool,
    ledger: Ledger,
}

impl SharedMySql {
    /// Not connected yet: a worker waits for MySQL to come up.
    ///
    /// # Errors
    /// When the URL is wrong, which the configuration has ruled out.
    pub fn of(system: &SystemSettings) -> anyhow::Result<Self> {
        let sessions = connect::mysql_sessions(system)?;
        // There are three questions (is it there, what does it hold, where are these orders), and the results that Redis refused;
        // none waits for another.
        let for_lookers = sessions.pool(4);
        let for_lanes = sessions.pool(system.mysql.connections);
        let ledger = Ledger::new(for_lanes.clone(), system.mysql.statement_timeout)
            .with_writers(system.mysql.writers)
            .committing_in_packet(sessions.commit_in_packet())
            .with_pay_within(system.pay_within);
        Ok(Self { sessions, for_lookers, for_lanes, ledger })
    }

    /// Looks for a better node, for ever.
    pub async fn watch(&self) {
        Box::pin(self.sessions.watch()).await;
    }
}

/// The worker of one partition, which is connected, holds its name there, and has not begun to read.
#[derive(Debug)]
pub struct Worker {
    name: Name,
    keys: Keys,
    pool: Pool,
    for_lookers: MySqlPool,
    mysql: Sessions,
    shard: Shard,
    ledger: Ledger,
    announcer: Announcer,
    stream: Stream,
    lanes: Vec<Lane<OrderHandler>>,
    sweeper: Sweeper,
    expiry_lease: ExpiryLease,
    reconciler: Reconciler,
    breaker: Arc<Breaker>,
    pause_switch: Arc<PauseSwitch>,
    counters: Arc<Counters>,
    order_counters: Arc<OrderCounters>,
    settings: WorkerSettings,
    system: SystemSettings,
    retention: Option<Duration>,
    results_trimmer: ResultsTrimmer,
}

impl Worker {
    /// Connects, makes the group, takes the name, looks whether all workers are paused. Waits for Redis for as long as it
    /// takes. Nothing is read while `pause_switch` is on. `traces`, where there are some, look on in every lane.
    pub async fn build(
        settings: &ProcessSettings,
        mysql: SharedMySql,
        pause_switch: Arc<PauseSwitch>,
        traces: Option<&Traces>,
    ) -> anyhow::Result<Self> {
        let ProcessSettings { system, worker, .. } = settings;
        let keys = Keys::new(system.keys.clone());
        let names = system.stream_names();

        // Also by a write, which the group is.
        let (pool, stream) =
            patiently(worker, is_another_list, async || open_stream(system, &names).await).await?;
        patiently(worker, is_a_no, async || partition_list::keep(system, &pool).await).await?;
        let shard = Shard::new(system, mysql.for_lookers.clone());
        shard.refuse_another().await?;
        let leases = Leases::new(pool.clone());
        let heartbeat = keys.heartbeat(&worker.name);
        let name = Name::new(leases.clone(), pool.clone(), heartbeat, &worker.name, worker.heartbeat_ttl);
        patiently(worker, is_a_no, async || name.take().await).await?;
        // Here a look that fails must not pass for a no: the lanes would begin to read.
        let look = async || Ok(fleet_pause::update_switch(&pool, &keys, &pause_switch).await?);
        patiently(worker, is_a_no, look).await.with_context(|| {
            format!("Failed to look whether the workers are paused ({})", system.keys.pause)
        })?;

        let SharedMySql { sessions: mysql, for_lookers, for_lanes, ledger } = mysql;
        let announcer = connect::announcer(system, &pool, &for_lanes);
        // As those who look, it keeps no lane waiting, and no lane keeps it.
        let sweeper = Sweeper::new(system, pool.clone(), mysql.pool(1));
        let expiry_lease = ExpiryLease::new(leases.clone(), keys.sweeper(), &worker.name);
        let stores = (pool.clone(), mysql.pool(1));
        let reconciler = Reconciler::new(stores, system, keys.clone(), &worker.name);
        let (counters, order_counters) = (Arc::new(Counters::default()), Arc::new(OrderCounters::default()));
        count_reconnects(&pool, &counters);
        let handler = OrderHandler::new(
            Gate::new(pool.clone(), keys.clone(), names.stream.clone()),
            UserLocks::new(leases, keys.clone(), worker.lock_lease),
            ledger.clone(),
            Arc::clone(&order_counters),
            StreamInspector::new(pool.clone(), names.clone()),
        );
        let handler = Arc::new(handler.announcing(announcer.clone()));
        let (breaker, alone) = (Arc::new(Breaker::default()), Arc::new(Exclusive::default()));
        let connect = async || Ok(connect_reader(&system.redis.connection()).await?);
        let common = patiently(worker, is_a_no, connect).await?;
        let failover = if system.redis.may_fail_over() { Failover::Possible } else { Failover::Never };
        let shared_reader = SharedReader::new(worker.lanes, worker.batch_bytes);
        // Whose connection is shared does not know by itself which server it reads from.
        let shared_reader = Arc::new(match failover {
            Failover::Possible => shared_reader,
            Failover::Never => shared_reader.over(common),
        });
        let mut lanes = Vec::with_capacity(worker.lanes);
        for lane in 0..worker.lanes {
            let client = patiently(worker, is_a_no, connect).await?;
            let reader = Reader::new(client, names.clone(), format!("{}-{lane}", worker.name));
            let (breaker, counters) = (Arc::clone(&breaker), Arc::clone(&counters));
            let settings = LaneSettings { failover, ..lane_settings(worker) };
            let lane = |handler| {
                let lane = Lane::new(reader, stream.clone(), handler, breaker, counters, settings);
                lane.with_pause_switch(Arc::clone(&pause_switch))
                    .with_exclusive(Arc::clone(&alone))
                    .with_shared_reader(Arc::clone(&shared_reader))
            };
            lanes.push(match traces.map(|traces| traces.watch(OrderHandler::clone(&handler))) {
                Some((handler, observer)) => lane(Arc::new(handler)).observed_by(observer),
                None => lane(Arc::clone(&handler)),
            });
        }
        Ok(Self {
            name,
            keys,
            results_trimmer: ResultsTrimmer::new(
                pool.clone(),
                system.stream.results.clone(),
                (system.results.keep, system.results.keep_bytes),
            ),
            pool,
            announcer: announcer.over(for_lookers.clone()),
            for_lookers,
            mysql,
            shard,
            ledger,
            stream,
            lanes,
            sweeper,
            expiry_lease,
            reconciler,
            breaker,
            pause_switch,
            counters,
            order_counters,
            settings: worker.clone(),
            system: system.clone(),
            retention: system.stream.retention,
        })
    }

    /// What can be looked at while it works.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts {
            redis: self.pool.clone(),
            mysql: self.for_lookers.clone(),
            sessions: self.mysql.clone(),
            lane_statuses: self.lanes.iter().map(Lane::lane_status).collect(),
            breaker: Arc::clone(&self.breaker),
            counters: Arc::clone(&self.counters),
            order_counters: Arc::clone(&self.order_counters),
            contentions: Arc::clone(self.ledger.contentions()),
            expirations: Arc::clone(self.sweeper.appended()),
            result_counters: Arc::clone(self.announcer.counters()),
        }
    }

    /// Works until `stop`, then finishes what is in hand.
    ///
    /// # Errors
    /// [`NameTaken`], after a stop in good order, when another process has taken the name; a lane that panicked.
    pub async fn run_until_stopped(self, stop: CancellationToken) -> anyhow::Result<()> {
        // Nothing is in hand yet: a stop need not wait for a MySQL that says nothing.
        if let Some(Err(outage)) = stop.run_until_cancelled(self.shard.probe(&self.ledger)).await {
            self.breaker.trip(outage, self.breaker.closings());
        }
        let consumers = self.lanes.len();
        let lane_statuses: Vec<_> = self.lanes.iter().map(Lane::lane_status).collect();
        let mut lanes = JoinSet::new();
        for lane in self.lanes {
            lanes.spawn(lane.run(stop.clone()).in_current_span());
        }
        tracing::info!(
            name = self.settings.name,
            stream = self.stream.names().stream,
            group = self.stream.names().group,
            lanes = consumers,
            batch = self.settings.batch,
            "worker started"
        );

        let probe = || probe(&self.shard, &self.ledger, &self.stream);
        let backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        let remover =
            ConsumerRemover::new(self.pool.clone(), self.stream.names().clone(), self.settings.retire_idle);
        let clock = ServerClock::new(self.pool.clone(), self.stream.names().clone());
        let trimmer =
            self.retention.map(|keep| Trimmer::new(self.pool.clone(), self.stream.names().clone(), keep));
        let set_aside_notes = SetAsideNotes::new(self.pool.clone(), self.stream.names());
        // What asks MySQL is on the heap: by value, these futures overflow the stack of the thread that they begin on.
        let around = async {
            tokio::join!(
                Box::pin(self.breaker.run(probe, backoff, stop.clone())),
                stop.run_until_cancelled(fleet_pause::watch(&self.pool, &self.keys, &self.pause_switch)),
                beside::trim(trimmer.as_ref(), self.settings.trim_every, stop.clone()),
                beside::trim_results(&self.results_trimmer, self.settings.trim_every, stop.clone()),
                self.shard.then(beside::announce_remembered(&self.announcer, stop.clone()), &stop),
                beside::remove_consumers(&remover, &self.keys, self.settings.claim_every, stop.clone()),
                beside::mind_the_clock(clock, self.settings.claim_every, stop.clone()),
                beside::report(
                    &self.counters,
                    &self.order_counters,
                    self.settings.report_every,
                    stop.clone()
                ),
                beside::post(&set_aside_notes, &self.settings.name, &self.counters, stop.clone()),
                self.shard.then(expire(self.sweeper, self.expiry_lease, stop.clone()), &stop),
                self.shard.then(reconcile(self.reconciler, stop.clone()), &stop),
            )
        };
        let joined = async {
            let mut outcome = Ok(());
            while let Some(lane) = lanes.join_next().await {
                // A lane that broke stops the process; the others finish what is in their hands.
                if let Err(broken) = lane {
                    stop.cancel();
                    outcome = Err(broken.into());
                }
            }
            outcome
        };
        let lost = OnceLock::new();
        let keep_name = async {
            // The lanes finish under a name that is no longer ours: the unique keys do not mind.
            let _ = lost.set(self.name.keep().await);
            stop.cancel();
            std::future::pending::<()>().await;
        };
        let changed = OnceLock::new();
        let mind_the_list = async {
            let _ = changed.set(partition_list::until_changed(&self.system, &self.pool).await);
            stop.cancel();
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            (outcome, _) = async { tokio::join!(joined, around) } => outcome,
            () = keep_name => unreachable!("pends for ever"),
            () = mind_the_list => unreachable!("pends for ever"),
            () = beside::tell_hands(&self.pool, &self.keys, &self.settings.name, &lane_statuses) => {
                unreachable!("goes on for ever")
            }
        };
        let _by_time = worker_hands::end(&self.pool, &self.keys, &self.settings.name).await;
        self.name.give_back().await;
        beside::tell("worker stopped", &self.counters, &self.order_counters);
        match (lost.into_inner(), changed.into_inner()) {
            (Some(taken), _) => Err(taken.into()),
            (None, Some(changed)) => Err(changed.into()),
            (None, None) => outcome,
        }
    }
}

fn lane_settings(worker: &WorkerSettings) -> LaneSettings {
    LaneSettings {
        batch: worker.batch,
        batch_bytes: worker.batch_bytes,
        entry_max_bytes: worker.entry_max_bytes,
        set_aside_max: worker.set_aside_max,
        block: worker.block,
        retry: worker.lock_retry,
        claim_idle: worker.claim_idle,
        claim_every: worker.claim_every,
        backoff_min: worker.backoff_min,
        backoff_max: worker.backoff_max,
        failover: Failover::Never,
    }
}

/// Both stores take a write: what a batch needs.
async fn probe(shard: &Shard, ledger: &Ledger, stream: &Stream) -> Result<(), Outage> {
    shard.probe(ledger).await?;
    Ok(stream.probe().await?)
}

/// Tries for as long as Redis is away: one that loads its file, has no memory or is a replica (a failover is under way) is
/// no reason to give up. `is_final` names the errors that are.
async fn patiently<T>(
    settings: &WorkerSettings,
    is_final: fn(&anyhow::Error) -> bool,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut backoff = Backoff::new(settings.backoff_min, settings.backoff_max);
    let mut is_told = false;
    loop {
        match attempt().await {
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if !is_told => {
                tracing::warn!("{}. Waiting for it", error_chain(&error));
                is_told = true;
            }
            Err(error) => tracing::debug!("{}", error_chain(&error)),
            done => return done,
        }
        sleep(backoff.next_wait()).await;
    }
}

/// The system has other partitions.
fn is_another_list(error: &anyhow::Error) -> bool {
    error.is::<InvalidInput>()
}

/// Redis answers, and says no; or it is not Redis that ends the start.
fn is_a_no(error: &anyhow::Error) -> bool {
    let of_client = error.downcast_ref::<fred::error::Error>().cloned().map(RedisError::from);
    let of_redis = of_client.or_else(|| error.downcast_ref().cloned());
    of_redis.is_none_or(|error| error.is_refusal())
}

async fn open_stream(system: &SystemSettings, names: &StreamNames) -> anyhow::Result<(Pool, Stream)> {
    let pool = connect::redis(system).await?;
    let stream = Stream::new(pool.clone(), names.clone());
    let group = stream.ensure_group().await.with_context(|| {
        format!("Failed to make the consumer group {:?} of {:?} in Redis", names.group, names.stream)
    })?;
    if group == GroupState::Created {
        tracing::info!(stream = names.stream, group = names.group, "consumer group made");
    }
    Ok((pool, stream))
}
