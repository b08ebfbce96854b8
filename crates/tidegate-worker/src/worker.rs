//! The worker of one partition and its parts.
//!
//! Start: see `build`. MySQL may be away; then the breaker waits for it. Stop: the lanes stop reading, each lane
//! settles its batch in progress, and then the worker releases its name.

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

pub use self::name::{NameTaken, VERSION};
use self::{background::Background, name::Name, shard::Shard, tasks::summary};
use crate::{
    on_heap::on_heap,
    settings::{ProcessSettings, WorkerSettings},
    view::Parts,
};

/// The MySQL sessions, and the ledger (the code that writes orders), which the workers of a process share.
#[derive(Clone, Debug)]
pub struct SharedMySql {
    sessions: Sessions,
    /// The sessions for queries about this process. A lane that waits for a connection counts as an outage, so queries
    /// have their own.
    for_lookups: MySqlPool,
    for_lanes: MySqlPool,
    ledger: Ledger,
}

impl SharedMySql {
    /// Creates the MySQL sessions without connecting, so that a worker can start and wait until MySQL answers.
    ///
    /// # Errors
    /// Fails if the URL is invalid, which the check of the configuration rules out.
    pub fn of(system: &SystemSettings) -> anyhow::Result<Self> {
        let sessions = connect::mysql_sessions(system)?;
        // Four kinds of queries use these sessions: a probe, a read of the status, a search for orders, and the
        // results that Redis refused. None of them waits for another.
        let for_lookups = sessions.pool(4);
        let for_lanes = sessions.pool(system.mysql.connections);
        let ledger = connect::ledger(system, &sessions, for_lanes.clone())
            .with_writers(system.mysql.writers)
            .committing_in_packet(sessions.commit_in_packet())
            .with_pay_within(system.pay_within, system.partition());
        Ok(Self { sessions, for_lookups, for_lanes, ledger })
    }

    /// Checks repeatedly whether the process should use another MySQL node, without end.
    pub async fn watch(&self) {
        Box::pin(self.sessions.watch()).await;
    }
}

/// A worker that is connected and has reserved its name, but has not begun to read the entries of its partition.
pub struct Worker {
    name: Name,
    probe: Probe,
    lanes: Vec<Lane<OrderHandler>>,
    tasks: Vec<Background>,
    parts: Parts,
    settings: ProcessSettings,
}

impl Worker {
    /// The connections, lane (consumer) states and counters that other tasks may read while the worker works.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Runs the worker until `stop` is cancelled. Then the worker finishes its work in progress.
    ///
    /// # Errors
    /// Fails with [`NameTaken`] if another process has taken the name, after a stop in good order. Also fails if a
    /// lane panicked.
    pub async fn run_until_stopped(self, stop: CancellationToken) -> anyhow::Result<()> {
        let Self { name, probe, lanes, tasks, parts, settings } = self;
        let (settings, system) = (settings.worker, settings.system);
        // No work is in progress yet, so a stop does not wait for a MySQL that does not answer.
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
            // The lanes finish under a name that this process no longer holds. That does no harm, because of the
            // unique keys in MySQL.
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

/// Waits for all lanes. A lane that panicked stops the process; the other lanes finish their work in progress.
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

/// The probe of both stores: whether they accept a batch.
struct Probe {
    shard: Shard,
    ledger: Ledger,
    stream: Stream,
    replicas: Option<ReplicaProbe>,
}

impl Probe {
    /// Checks what a batch needs: both stores accept a write, and the replicas have it if the settings require that.
    async fn run(&self, name: &Name) -> Result<(), Outage> {
        self.shard.probe(&self.ledger).await?;
        self.stream.probe().await?;
        match &self.replicas {
            Some(replicas) => name.is_replicated(replicas).await,
            None => Ok(()),
        }
    }
}
