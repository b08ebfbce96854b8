//! What a worker process is made of.
//!
//! Start: `build`; MySQL may be away, the breaker waits for it.
//! Stop: reading ends, each lane settles the batch in its hand, then the name is released.

mod background;
mod build;
mod fleet_lease;
mod name;
mod notes;
mod shard;
mod tasks;

use std::sync::OnceLock;

use sqlx::MySqlPool;
use tidegate_operations::{SystemSettings, connect, partition_list};
use tidegate_orders::{Ledger, OrderHandler, Sessions, work_in_progress};
use tidegate_stream::{Backoff, Lane, Outage, ReplicaProbe, SetAsideNotes, Stream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use self::name::NameTaken;
use self::{background::Background, name::Name, shard::Shard, tasks::summary};
use crate::{
    on_heap::on_heap,
    settings::{ProcessSettings, WorkerSettings},
    view::Parts,
};

/// Sessions with MySQL, which the workers of a process share.
#[derive(Clone, Debug)]
pub struct SharedMySql {
    sessions: Sessions,
    /// A lane that waits for a connection counts that as an outage, so none may wait for those who look at this process.
    for_lookups: MySqlPool,
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
        let for_lookups = sessions.pool(4);
        let for_lanes = sessions.pool(system.mysql.connections);
        let ledger = connect::ledger(system, &sessions, for_lanes.clone())
            .with_writers(system.mysql.writers)
            .committing_in_packet(sessions.commit_in_packet())
            .with_pay_within(system.pay_within, system.partition());
        Ok(Self { sessions, for_lookups, for_lanes, ledger })
    }

    /// Looks for a better node, for ever.
    pub async fn watch(&self) {
        Box::pin(self.sessions.watch()).await;
    }
}

/// The worker of one partition, which is connected, holds its name there, and has not begun to read.
pub struct Worker {
    name: Name,
    probe: Probe,
    lanes: Vec<Lane<OrderHandler>>,
    tasks: Vec<Background>,
    parts: Parts,
    settings: ProcessSettings,
}

impl Worker {
    /// What can be looked at while it works.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Works until `stop`, then finishes what is in progress.
    ///
    /// # Errors
    /// [`NameTaken`], after a stop in good order, when another process has taken the name; a lane that panicked.
    pub async fn run_until_stopped(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { name, probe, lanes, tasks, parts, settings } = self;
        let (settings, system) = (settings.worker, settings.system);
        // Nothing is in progress yet: a stop need not wait for a MySQL that says nothing.
        if let Some(Err(outage)) = stop.run_until_cancelled(probe.shard.probe(&probe.ledger)).await {
            parts.breaker.trip(outage, parts.breaker.closings());
        }
        let running = start(lanes, &probe.stream, &settings, &stop);
        let backoff = Backoff::new(settings.lane.backoff_min, settings.lane.backoff_max);
        let set_aside_notes = SetAsideNotes::new(&parts.redis, probe.stream.names());
        let around = on_heap(async || {
            tokio::join!(
                on_heap(|| parts.breaker.run(|| probe.run(&name), backoff, stop.clone())),
                on_heap(|| notes::post(&set_aside_notes, &settings.name, &parts.counters, stop.clone())),
                on_heap(|| background::run(tasks, &stop)),
            )
        });
        let lost = OnceLock::new();
        let keep_name = on_heap(async || {
            // The lanes finish under a name that is no longer ours: the unique keys do not mind.
            let _ = lost.set(name.keep().await);
            stop.cancel();
            std::future::pending::<()>().await;
        });
        let changed = OnceLock::new();
        let watch_partition_list = on_heap(async || {
            let _ = changed.set(partition_list::until_changed(&system, &parts.redis).await);
            stop.cancel();
            std::future::pending::<()>().await;
        });
        let outcome = tokio::select! {
            (outcome, _) = async { tokio::join!(joined(running, &stop), around) } => outcome,
            () = keep_name => unreachable!("pends for ever"),
            () = watch_partition_list => unreachable!("pends for ever"),
            () = on_heap(|| notes::publish_in_progress(&parts.redis, &settings.name, &parts.lane_statuses)) => {
                unreachable!("goes on for ever")
            }
        };
        let _by_time = work_in_progress::end(&parts.redis, &settings.name).await;
        name.release().await;
        summary::tell("worker stopped", &parts.counters, &parts.order_counters);
        match (lost.into_inner(), changed.into_inner()) {
            (Some(taken), _) => Err(taken.into()),
            (None, Some(changed)) => Err(changed.into()),
            (None, None) => outcome,
        }
    }
}

fn start(
    lanes: Vec<Lane<OrderHandler>>,
    stream: &Stream,
    settings: &WorkerSettings,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let (mut running, names) = (JoinSet::new(), stream.names());
    for lane in lanes {
        running.spawn(lane.run(stop.clone()).in_current_span());
    }
    tracing::info!(
        name = settings.name,
        stream = names.stream,
        group = names.group,
        lanes = running.len(),
        batch = settings.lane.batch,
        "worker started"
    );
    running
}

/// Waits for all lanes. A lane that broke stops the process; the others finish what is in their hands.
async fn joined(mut lanes: JoinSet<()>, stop: &CancellationToken) -> anyhow::Result<()> {
    let mut outcome = Ok(());
    while let Some(lane) = lanes.join_next().await {
        if let Err(broken) = lane {
            stop.cancel();
            outcome = Err(broken.into());
        }
    }
    outcome
}

/// Asks both stores whether they take a batch.
struct Probe {
    shard: Shard,
    ledger: Ledger,
    stream: Stream,
    replicas: Option<ReplicaProbe>,
}

impl Probe {
    /// Both stores take a write, and replicas have it where that is asked for: what a batch needs.
    async fn run(&self, name: &Name) -> Result<(), Outage> {
        self.shard.probe(&self.ledger).await?;
        self.stream.probe().await?;
        match &self.replicas {
            Some(replicas) => name.is_replicated(replicas).await,
            None => Ok(()),
        }
    }
}
