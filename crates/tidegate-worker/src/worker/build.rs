//! How a worker starts: Redis, the group, the name, one lane after the other. Waits for whatever is away, but for MySQL, for which
//! the breaker waits.

use std::sync::Arc;

use anyhow::Context;
use fred::clients::Pool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{
    InvalidInput, SystemSettings, brake::Braker, connect, expirations::Sweeper, fleet_pause, partition_list,
};
use tidegate_orders::{Gate, Keys, OrderCounters, OrderHandler, ResultsTrimmer, UserLocks, gate::SoldOut};
use tidegate_stream::{
    Backoff, Breaker, Counters, Exclusive, Failover, GroupState, Lane, LaneSettings, Leases, PauseSwitch,
    Reader, RedisError, ReplicaProbe, SharedReader, Stream, StreamInspector, StreamNames, connect_reader,
    count_reconnects,
};
use tokio::{sync::Semaphore, time::sleep};

use super::{FleetLease, Name, Reconciler, Shard, SharedMySql, Worker};
use crate::{
    settings::{ProcessSettings, WorkerSettings},
    trace::Traces,
};

impl Worker {
    /// Connects, makes the group, takes the name, looks whether all workers are paused. Waits for Redis for as long as it
    /// takes. Nothing is read while `pause_switch` is on. The workers of a process share the one permit of `comparisons`.
    /// `sold_out`, where a gate asks for it, hears what is given back; `traces`, where there are some, look on in every lane.
    pub async fn build(
        settings: &ProcessSettings,
        mysql: SharedMySql,
        comparisons: Arc<Semaphore>,
        sold_out: Option<Arc<SoldOut>>,
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
        let replica_probe = patiently(worker, is_a_no, async || replica_probe(system).await).await?;
        let shard = Shard::new(system, mysql.for_lookers.clone());
        shard.refuse_another().await?;
        let leases = Leases::new(pool.clone());
        let heartbeat = keys.heartbeat(&worker.name);
        let name = Name::new(leases.clone(), pool.clone(), heartbeat, &worker.name, worker.heartbeat_ttl);
        patiently(worker, is_a_no, async || name.take().await).await?;
        // Here a look that fails must not pass for a no: the lanes would begin to read.
        let look = async || Ok(fleet_pause::update_switch(&pool, &keys, &pause_switch).await?);
        patiently(worker, is_a_no, look).await.with_context(|| {
            format!("Failed to look whether the workers are paused ({})", keys.pause().as_str_lossy())
        })?;

        let SharedMySql { sessions: mysql, for_lookers, for_lanes, ledger } = mysql;
        let announcer = connect::announcer(system, &pool, &for_lanes);
        // As those who look, it keeps no lane waiting, and no lane keeps it.
        let sweeper = Sweeper::new(system, pool.clone(), mysql.pool(1));
        let expiry_lease = FleetLease::new(leases.clone(), keys.sweeper(), &worker.name);
        let brake_lease = FleetLease::new(leases.clone(), keys.braker(), &worker.name);
        let braker = Braker::new(settings.brake, system, pool.clone(), mysql.pool(1));
        let stores = (pool.clone(), mysql.pool(1));
        let reconciler =
            Reconciler::new((stores, mysql.causal_reads()), system, keys.clone(), &worker.name, comparisons);
        let (counters, order_counters) = (Arc::new(Counters::default()), Arc::new(OrderCounters::default()));
        count_reconnects(&pool, &counters);
        let gate = Gate::new(pool.clone(), keys.clone(), names.stream.clone());
        let handler = OrderHandler::new(
            match sold_out {
                Some(sold_out) => gate.telling(sold_out),
                None => gate,
            },
            UserLocks::new(leases, keys.clone(), worker.lock_lease),
            ledger.clone(),
            Arc::clone(&order_counters),
            StreamInspector::new(pool.clone(), names.clone()),
        );
        let handler = handler.announcing(announcer.clone()).waking(Arc::clone(counters.set_aside()));
        let handler = Arc::new(handler);
        let (breaker, alone) = (Arc::new(Breaker::default()), Arc::new(Exclusive::default()));
        let connect = async || Ok(connect_reader(&system.redis.connection()).await?);
        let common = patiently(worker, is_a_no, connect).await?;
        let failover = if system.redis.may_fail_over() { Failover::Possible } else { Failover::Never };
        let shared_reader = SharedReader::new(worker.batch_bytes);
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
            let settings = LaneSettings { failover, replicas: system.confirmation, ..lane_settings(worker) };
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
            replica_probe,
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
            brake_settings: settings.brake,
            braker,
            brake_lease,
            busy: Arc::default(),
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
        replicas: None,
    }
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

/// What asks whether replicas have what is written, where that is asked for.
async fn replica_probe(system: &SystemSettings) -> anyhow::Result<Option<ReplicaProbe>> {
    let Some(wanted) = system.confirmation else { return Ok(None) };
    let probe = ReplicaProbe::new(connect_reader(&system.redis.connection()).await?, wanted)?;
    match probe.missing_right().await? {
        None => Ok(Some(probe)),
        Some(right) => anyhow::bail!(
            "the Redis user of this worker lacks the right {right}, without which no order is written while gate.wait_replicas is above \
             0. Type `ACL SETUSER NAME {right}` on every server, and add it to the aclfile (config/redis-users.acl); or set \
             gate.wait_replicas to 0 for the workers"
        ),
    }
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
