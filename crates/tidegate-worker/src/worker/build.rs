//! The start of a worker: Redis, the consumer group, the name, and one lane after the other. The start waits for Redis
//! if it is away. It does not wait for MySQL, because the breaker does.

use std::sync::Arc;

use anyhow::Context;
use tidegate_compare::text::error_chain;
use tidegate_operations::{
    InvalidInput, SystemSettings, connect, expirations::Sweeper, fleet_pause, partition_list,
};
use tidegate_orders::{
    Ledger, LockLayout, LockedUsers, OrderHandler, Publisher, RedisStore, UserLocks, scripts::SoldOut,
};
use tidegate_stream::{
    Backoff, Exclusive, Failover, GroupState, Lane, Leases, PauseSwitch, Reader, RedisError, ReplicaProbe,
    SharedReader, Stream, StreamNames, connect_reader, count_reconnects,
};
use tokio::{sync::Semaphore, time::sleep};

use super::{Name, Probe, Shard, SharedMySql, Worker, tasks::tasks};
use crate::{
    settings::{ProcessSettings, WorkerSettings},
    trace::Traces,
    view::Parts,
};

impl Worker {
    /// Connects to the stores, creates the consumer group, reserves the worker's name, and checks whether all workers
    /// are paused. This function waits for Redis without a time limit. `pause_switch` can stop the reading of entries.
    /// The workers of a process share the single permit in `comparisons`. `sold_out` is the memory of a gate in this
    /// process. `traces` sends traces of orders.
    pub async fn build(
        settings: &ProcessSettings,
        mysql: SharedMySql,
        comparisons: Arc<Semaphore>,
        sold_out: Option<Arc<SoldOut>>,
        pause_switch: Arc<PauseSwitch>,
        traces: Option<&Traces>,
    ) -> anyhow::Result<Self> {
        let ProcessSettings { system, worker, .. } = settings;
        let names = system.stream_names();

        // This also checks that Redis accepts a write, because creating the group is one.
        let (redis, stream) =
            retry_until_ready(worker, is_another_list, async || open_stream(system, &names).await).await?;
        retry_until_ready(worker, is_permanent, async || partition_list::keep(system, &redis).await).await?;
        let replicas = retry_until_ready(worker, is_permanent, async || replica_probe(system).await).await?;
        let shard = Shard::new(system, mysql.for_lookups.clone());
        shard.refuse_another().await?;
        let (leases, heartbeat) = (Leases::new(&redis), redis.keys().fleet().heartbeat(&worker.name));
        let name = Name::new(leases, redis.clone(), heartbeat, worker, system.fleet.lock_layout);
        retry_until_ready(worker, is_permanent, async || name.take().await).await?;
        // If this check fails, the start must not continue as if there were no pause: the lanes would begin to read.
        let look = async || Ok(fleet_pause::update_switch(&redis, &pause_switch).await?);
        retry_until_ready(worker, is_permanent, look).await.with_context(|| {
            let key = redis.keys().fleet().pause();
            format!("Failed to read whether the workers are paused ({})", key.as_str_lossy())
        })?;

        let SharedMySql { sessions, for_lookups, for_lanes, ledger } = mysql;
        let publisher = connect::publisher(system, &redis, &for_lanes);
        let sweeper = Sweeper::new(system, redis.clone(), sessions.pool(1));
        let mut parts = Parts {
            redis,
            mysql: for_lookups,
            sessions,
            lane_statuses: Vec::new(),
            breaker: Arc::default(),
            counters: Arc::default(),
            order_counters: Arc::default(),
            contentions: Arc::clone(ledger.contentions()),
            expirations: Arc::clone(sweeper.appended()),
            busy: Arc::default(),
            not_loaded: Arc::default(),
            result_counters: Arc::clone(publisher.counters()),
        };
        count_reconnects(parts.redis.pool(), &parts.counters);
        let listens = system.fleet.lock_layout == LockLayout::Redisson;
        let locked_users = listens.then(Arc::<LockedUsers>::default);
        let locks = user_locks(settings, &parts, locked_users.clone());
        let handler = order_handler(&parts, locks, &ledger, &publisher, sold_out);
        let lanes = open_lanes(settings, &stream, handler, &parts, &pause_switch, traces).await?;
        parts.lane_statuses = lanes.iter().map(Lane::lane_status).collect();
        // The publisher uses a session for lookups, so that the task and the lanes do not wait for each other.
        let publisher = publisher.over(parts.mysql.clone());
        let tasks =
            tasks(settings, &parts, &shard, (publisher, sweeper), pause_switch, comparisons, locked_users);
        let probe = Probe { shard, ledger, stream, replicas };
        Ok(Self { name, probe, lanes, tasks, parts, settings: settings.clone() })
    }
}

/// The locks of users. Orders of the users in `locked_users` are retried as soon as the user's lock ends.
fn user_locks(
    ProcessSettings { system, worker, .. }: &ProcessSettings,
    parts: &Parts,
    locked_users: Option<Arc<LockedUsers>>,
) -> UserLocks {
    let locks = UserLocks::new(parts.redis.clone(), worker.lock_lease, system.fleet.lock_layout);
    match locked_users {
        Some(users) => locks.with_locked_users(users),
        None => locks,
    }
}

fn order_handler(
    parts: &Parts,
    locks: UserLocks,
    ledger: &Ledger,
    publisher: &Publisher,
    sold_out: Option<Arc<SoldOut>>,
) -> OrderHandler {
    let redis = match sold_out {
        Some(sold_out) => parts.redis.clone().with_sold_out(&sold_out),
        None => parts.redis.clone(),
    };
    let handler = OrderHandler::new(redis, locks, ledger.clone(), Arc::clone(&parts.order_counters));
    handler.publishing(publisher.clone()).waking(Arc::clone(parts.counters.set_aside()))
}

/// Connects the lanes, one after the other.
async fn open_lanes(
    settings: &ProcessSettings,
    stream: &Stream,
    handler: OrderHandler,
    parts: &Parts,
    pause_switch: &Arc<PauseSwitch>,
    traces: Option<&Traces>,
) -> anyhow::Result<Vec<Lane<OrderHandler>>> {
    let ProcessSettings { system, worker, .. } = settings;
    let (handler, alone) = (Arc::new(handler), Arc::new(Exclusive::default()));
    let connect = async || Ok(connect_reader(&system.redis.connection()).await?);
    let common = retry_until_ready(worker, is_permanent, connect).await?;
    let shared_reader = SharedReader::new(worker.lane.batch_bytes);
    // A shared connection does not reveal which server it reads from.
    let shared_reader = Arc::new(match worker.lane.failover {
        Failover::Possible => shared_reader,
        Failover::Never => shared_reader.over(common),
    });
    let mut lanes = Vec::with_capacity(worker.lanes);
    for lane in 0..worker.lanes {
        let client = retry_until_ready(worker, is_permanent, connect).await?;
        let reader = Reader::new(client, system.stream_names(), format!("{}-{lane}", worker.name));
        let (breaker, counters) = (Arc::clone(&parts.breaker), Arc::clone(&parts.counters));
        let lane = |handler| {
            let lane = Lane::new(reader, stream.clone(), handler, breaker, counters, worker.lane.clone());
            lane.with_pause_switch(Arc::clone(pause_switch))
                .with_exclusive(Arc::clone(&alone))
                .with_shared_reader(Arc::clone(&shared_reader))
        };
        lanes.push(match traces.map(|traces| traces.watch(OrderHandler::clone(&handler))) {
            Some((handler, observer)) => lane(Arc::new(handler)).observed_by(observer),
            None => lane(Arc::clone(&handler)),
        });
    }
    Ok(lanes)
}

/// Retries for as long as Redis is away. A Redis that loads its file, has no memory or is a replica (during a
/// failover) is no reason to give up. `is_final` names the errors that are.
async fn retry_until_ready<T>(
    settings: &WorkerSettings,
    is_final: fn(&anyhow::Error) -> bool,
    mut attempt: impl AsyncFnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut backoff = Backoff::new(settings.lane.backoff_min, settings.lane.backoff_max);
    let mut is_told = false;
    loop {
        match attempt().await {
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if !is_told => {
                tracing::warn!("{}. Waiting for Redis", error_chain(&error));
                is_told = true;
            }
            Err(error) => tracing::debug!("{}", error_chain(&error)),
            done => return done,
        }
        sleep(backoff.next_wait()).await;
    }
}

/// Whether the error says that the system has other partitions.
fn is_another_list(error: &anyhow::Error) -> bool {
    error.is::<InvalidInput>()
}

/// Whether Redis refuses the start, or the error does not come from Redis.
fn is_permanent(error: &anyhow::Error) -> bool {
    let of_client = error.downcast_ref::<fred::error::Error>().cloned().map(RedisError::from);
    let of_redis = of_client.or_else(|| error.downcast_ref().cloned());
    of_redis.is_none_or(|error| error.is_refusal())
}

/// Creates the probe of the replicas, if the settings require that replicas confirm writes.
async fn replica_probe(system: &SystemSettings) -> anyhow::Result<Option<ReplicaProbe>> {
    let Some(wanted) = system.confirmation else { return Ok(None) };
    let probe = ReplicaProbe::new(connect_reader(&system.redis.connection()).await?, wanted)?;
    match probe.missing_right().await? {
        None => Ok(Some(probe)),
        Some(right) => anyhow::bail!(
            "the Redis user of this worker lacks the right {right}, so the worker writes no orders while gate.wait_replicas is above \
             0. Type `ACL SETUSER NAME {right}` on every server, and add this right to the aclfile (config/redis-users.acl). \
             Or set gate.wait_replicas to 0 for the workers"
        ),
    }
}

async fn open_stream(system: &SystemSettings, names: &StreamNames) -> anyhow::Result<(RedisStore, Stream)> {
    let redis = connect::redis(system).await?;
    let stream = Stream::new(&redis, names.clone());
    let group = stream.ensure_group().await.with_context(|| {
        format!("Failed to create the consumer group {:?} of the stream {:?}", names.group, names.stream)
    })?;
    if group == GroupState::Created {
        tracing::info!(stream = names.stream, group = names.group, "consumer group created");
    }
    Ok((redis, stream))
}
