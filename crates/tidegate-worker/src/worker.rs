//! What a worker process is made of.
//!
//! Start: `build`; MySQL may be away, the breaker waits for it.
//! Stop: reading ends, each lane settles the batch in its hand, then the name is given back.

mod beside;
mod brake;
mod build;
mod expire;
mod fleet_lease;
mod name;
mod reconcile;
mod shard;

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use sqlx::MySqlPool;
use tidegate_operations::{
    SystemSettings,
    brake::{BrakeSettings, Braker},
    connect,
    expirations::Sweeper,
    fleet_pause, partition_list,
};
use tidegate_orders::{
    Announcer, Ledger, OrderCounters, OrderHandler, RedisStore, ResultsTrimmer, Sessions, worker_hands,
};
use tidegate_stream::{
    Backoff, Breaker, ConsumerRemover, Counters, Lane, Outage, PauseSwitch, ReplicaProbe, ServerClock,
    SetAsideNotes, Stream, Trimmer,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::{on_heap::on_heap, settings::WorkerSettings, view::Parts};
use brake::brake;
use expire::expire;
use fleet_lease::FleetLease;
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
        let ledger = connect::ledger(system, &sessions, for_lanes.clone())
            .with_writers(system.mysql.writers)
            .committing_in_packet(sessions.commit_in_packet())
            .with_pay_within(system.pay_within, system.partition());
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
    replica_probe: Option<ReplicaProbe>,
    redis: RedisStore,
    for_lookers: MySqlPool,
    mysql: Sessions,
    shard: Shard,
    ledger: Ledger,
    announcer: Announcer,
    stream: Stream,
    lanes: Vec<Lane<OrderHandler>>,
    sweeper: Sweeper,
    expiry_lease: FleetLease,
    brake_settings: BrakeSettings,
    braker: Braker,
    brake_lease: FleetLease,
    busy: Arc<AtomicBool>,
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
    /// What can be looked at while it works.
    #[must_use]
    pub fn parts(&self) -> Parts {
        Parts {
            redis: self.redis.clone(),
            mysql: self.for_lookers.clone(),
            sessions: self.mysql.clone(),
            lane_statuses: self.lanes.iter().map(Lane::lane_status).collect(),
            breaker: Arc::clone(&self.breaker),
            counters: Arc::clone(&self.counters),
            order_counters: Arc::clone(&self.order_counters),
            contentions: Arc::clone(self.ledger.contentions()),
            expirations: Arc::clone(self.sweeper.appended()),
            busy: Arc::clone(&self.busy),
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

        let replicas = self.replica_probe.as_ref().map(|probe| (&self.name, probe));
        let probe = || probe(&self.shard, &self.ledger, &self.stream, replicas);
        let backoff = Backoff::new(self.settings.backoff_min, self.settings.backoff_max);
        let remover =
            ConsumerRemover::new(&self.redis, self.stream.names().clone(), self.settings.retire_idle);
        let clock = ServerClock::new(&self.redis, self.stream.names().clone());
        let trimmer = self.retention.map(|keep| Trimmer::new(&self.redis, self.stream.names().clone(), keep));
        let set_aside_notes = SetAsideNotes::new(&self.redis, self.stream.names());
        let around = on_heap(async || {
            tokio::join!(
                on_heap(|| self.breaker.run(probe, backoff, stop.clone())),
                stop.run_until_cancelled(on_heap(|| fleet_pause::watch(&self.redis, &self.pause_switch))),
                on_heap(|| beside::trim(trimmer.as_ref(), self.settings.trim_every, stop.clone())),
                on_heap(|| beside::trim_results(
                    &self.results_trimmer,
                    self.settings.trim_every,
                    stop.clone()
                )),
                self.shard.then(|| beside::announce_remembered(&self.announcer, stop.clone()), &stop),
                on_heap(|| beside::remove_consumers(
                    &remover,
                    self.redis.keys(),
                    self.settings.claim_every,
                    stop.clone()
                )),
                on_heap(|| beside::mind_the_clock(clock, self.settings.claim_every, stop.clone())),
                beside::report(
                    &self.counters,
                    &self.order_counters,
                    self.settings.report_every,
                    stop.clone()
                ),
                on_heap(|| beside::post(&set_aside_notes, &self.settings.name, &self.counters, stop.clone())),
                self.shard.then(|| expire(self.sweeper, self.expiry_lease, stop.clone()), &stop),
                on_heap(|| brake(
                    self.brake_settings,
                    self.braker,
                    self.brake_lease,
                    self.busy,
                    stop.clone()
                )),
                self.shard.then(|| reconcile(self.reconciler, stop.clone()), &stop),
            )
        });
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
        let keep_name = on_heap(async || {
            // The lanes finish under a name that is no longer ours: the unique keys do not mind.
            let _ = lost.set(self.name.keep().await);
            stop.cancel();
            std::future::pending::<()>().await;
        });
        let changed = OnceLock::new();
        let mind_the_list = on_heap(async || {
            let _ = changed.set(partition_list::until_changed(&self.system, &self.redis).await);
            stop.cancel();
            std::future::pending::<()>().await;
        });
        let outcome = tokio::select! {
            (outcome, _) = async { tokio::join!(joined, around) } => outcome,
            () = keep_name => unreachable!("pends for ever"),
            () = mind_the_list => unreachable!("pends for ever"),
            () = on_heap(|| beside::tell_hands(&self.redis, &self.settings.name, &lane_statuses)) => {
                unreachable!("goes on for ever")
            }
        };
        let _by_time = worker_hands::end(&self.redis, &self.settings.name).await;
        self.name.give_back().await;
        beside::tell("worker stopped", &self.counters, &self.order_counters);
        match (lost.into_inner(), changed.into_inner()) {
            (Some(taken), _) => Err(taken.into()),
            (None, Some(changed)) => Err(changed.into()),
            (None, None) => outcome,
        }
    }
}

/// Both stores take a write, and replicas have it where that is asked for: what a batch needs.
async fn probe(
    shard: &Shard,
    ledger: &Ledger,
    stream: &Stream,
    replicas: Option<(&Name, &ReplicaProbe)>,
) -> Result<(), Outage> {
    shard.probe(ledger).await?;
    stream.probe().await?;
    match replicas {
        Some((name, probe)) => name.is_replicated(probe).await,
        None => Ok(()),
    }
}
