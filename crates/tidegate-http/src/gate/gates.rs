//! The gates of all partitions of a list. Each one opens as soon as its Redis answers.

mod list;

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use fred::{clients::Pool, interfaces::ClientLike, types::Value};
use futures_util::{StreamExt, stream::FuturesUnordered};
use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{System, SystemSettings, connect, partition_list};
use tidegate_orders::{
    CampaignId, OrderIdAllocator, RedisStore, VoucherId,
    scripts::{ScriptError, SoldOut},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{forgotten_orders::ForgottenOrders, last_reconnect::LastReconnect};
use crate::order_pages::OrderStores;

/// The number of order ids that are taken from the counter at a time.
const ID_BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// The number of calls that may wait for replicas at a time.
const CONFIRMING: usize = 4;
/// The pause between two attempts to connect.
const RETRY: Duration = Duration::from_secs(1);
/// The time for which an unknown region stays unknown. It is short, because an operator may load the region at any
/// time.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const MOST_UNKNOWN: usize = 1024;
/// The time that Redis has to answer; a Redis that needs longer counts as away.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// The number of sessions with each MySQL. They serve queries for the state of orders, and the search for orders that
/// Redis has lost.
const SESSIONS: u32 = 3;

/// The connections of the gate to one partition, and the allocator of order ids for this partition.
#[derive(Debug)]
pub struct PartitionGate {
    /// The longest time that a Redis command may take.
    pub command_within: Duration,
    pub redis: RedisStore,
    /// The connections on which calls wait for replicas.
    confirming: Vec<Pool>,
    pub last_reconnect: LastReconnect,
    pub ids: OrderIdAllocator,
}

/// The connections of a gate to all partitions in one version of the partition list.
#[derive(Debug)]
pub struct Gates {
    /// The partitions, in their order.
    partitions: Vec<Arc<PartitionStores>>,
    /// Notified when one more partition has answered.
    reached: Arc<Notify>,
    regions: Mutex<Regions>,
    /// Logs once that Redis refuses the note of the gate.
    note_refused: Once,
}

/// The known and the unknown regions, from earlier searches.
#[derive(Debug, Default)]
struct Regions {
    /// The regions with a voucher. A region keeps its voucher for ever.
    known: HashMap<Region, VoucherId>,
    /// The time when no partition knew the region.
    unknown: HashMap<Region, Instant>,
}

type Region = (CampaignId, String);

/// The stores of a partition.
#[derive(Debug)]
struct PartitionStores {
    system: SystemSettings,
    /// The Redis that answered, whatever list of partitions it keeps.
    redis: OnceLock<RedisStore>,
    gate: OnceLock<PartitionGate>,
    /// The sessions that query the state of orders and the orders that Redis has lost. They never admit a new order.
    mysql: MySqlPool,
    forgotten_orders: ForgottenOrders,
}

impl OrderStores for PartitionStores {
    fn system(&self) -> &SystemSettings {
        &self.system
    }

    fn connections(&self) -> Option<(RedisStore, MySqlPool)> {
        self.gate.get().map(|gate| (gate.redis.clone(), self.mysql.clone()))
    }
}

/// The reason why the gate found no voucher for a region of a campaign.
#[derive(Debug)]
pub enum NoVoucher {
    /// No partition knows the region.
    Unknown,
    /// Some partitions have not answered since the start.
    Away,
    /// Some partitions answered with an error.
    Failed(ScriptError),
}

impl Regions {
    fn get(&self, place: &Region) -> Option<Result<VoucherId, NoVoucher>> {
        let is_fresh = |since: &Instant| since.elapsed() < UNKNOWN_FOR;
        match self.known.get(place) {
            Some(voucher) => Some(Ok(*voucher)),
            None => self.unknown.get(place).filter(|since| is_fresh(since)).map(|_| Err(NoVoucher::Unknown)),
        }
    }

    fn note(&mut self, place: Region, found: &Result<VoucherId, NoVoucher>) {
        match found {
            Ok(voucher) => _ = self.known.insert(place, *voucher),
            Err(NoVoucher::Unknown) => {
                if self.unknown.len() >= MOST_UNKNOWN {
                    self.unknown.clear();
                }
                self.unknown.insert(place, Instant::now());
            }
            Err(NoVoucher::Away | NoVoucher::Failed(_)) => {}
        }
    }
}

impl Gates {
    /// Starts to connect to Redis and MySQL of each partition, and repeats failed attempts until `stop` is cancelled.
    /// All partitions share `sold_out`, the memory of sold-out vouchers.
    ///
    /// # Errors
    /// Fails if the URL of MySQL is invalid, which the check of the configuration rules out.
    pub fn connect(
        system: &System,
        sold_out: &Arc<SoldOut>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let mut pools = BTreeMap::new();
        let (mut partitions, reached) = (Vec::new(), Arc::new(Notify::new()));
        for settings in system.partitions() {
            let url = settings.mysql.url.reveal().to_owned();
            let (mysql, forgotten_orders) = match pools.get(&url) {
                Some((pool, forgotten_orders)) => {
                    (MySqlPool::clone(pool), ForgottenOrders::clone(forgotten_orders))
                }
                None => {
                    let pool = connect::mysql_sessions(settings)?.pool(SESSIONS);
                    (pool.clone(), ForgottenOrders::begin(pool, settings.partition().clone()))
                }
            };
            pools.insert(url, (mysql.clone(), forgotten_orders.clone()));
            let (redis, gate) = (OnceLock::new(), OnceLock::new());
            let stores =
                Arc::new(PartitionStores { system: settings.clone(), redis, gate, mysql, forgotten_orders });
            let (sold_out, stop, reached) = (Arc::clone(sold_out), stop.clone(), Arc::clone(&reached));
            partitions.push(Arc::clone(&stores));
            tokio::spawn(async move {
                let opening = open_patiently(&stores, &sold_out, &reached);
                if let Some(gate) = stop.run_until_cancelled(opening).await {
                    let _first = stores.gate.set(gate);
                }
            });
        }
        Ok(Self { partitions, reached, regions: Mutex::default(), note_refused: Once::new() })
    }

    fn reached(&self) -> impl Iterator<Item = (&PartitionStores, &RedisStore)> {
        self.partitions.iter().filter_map(|own| Some((&**own, own.redis.get()?)))
    }

    /// Closes all connections to Redis and MySQL.
    pub async fn close(&self) {
        for (own, redis) in self.reached() {
            let confirming = own.gate.get().map(|gate| &gate.confirming[..]).unwrap_or_default();
            for pool in confirming.iter().chain([redis.pool()]) {
                let _gone = pool.quit().await;
            }
            own.mysql.close().await;
        }
    }

    /// The stores (Redis and MySQL) of each partition, for queries about orders.
    pub fn stores(&self) -> Vec<Arc<dyn OrderStores>> {
        self.partitions.iter().map(|own| Arc::clone(own) as Arc<dyn OrderStores>).collect()
    }

    /// The connections to the partition that has a voucher. None: the Redis of this partition has not answered yet.
    pub fn of_voucher(&self, voucher: VoucherId) -> Option<&PartitionGate> {
        self.stores_of(voucher)?.gate.get()
    }

    /// The connections for queries about the orders of a voucher.
    ///
    /// # Errors
    /// Fails if Redis has not answered since the start.
    pub fn stores_of_voucher(&self, voucher: VoucherId) -> anyhow::Result<(RedisStore, MySqlPool)> {
        let connections = self.stores_of(voucher).and_then(OrderStores::connections);
        connections.context("the gate has not connected to Redis yet")
    }

    /// The Redis of each partition, in their order. None: it has not answered yet.
    pub fn redis_of_all(&self) -> Vec<Option<RedisStore>> {
        self.partitions.iter().map(|own| Some(own.gate.get()?.redis.clone())).collect()
    }

    /// The search in MySQL for orders of a voucher that Redis has lost.
    pub fn forgotten_orders_of(&self, voucher: VoucherId) -> Option<&ForgottenOrders> {
        Some(&self.stores_of(voucher)?.forgotten_orders)
    }

    fn stores_of(&self, voucher: VoucherId) -> Option<&PartitionStores> {
        self.partitions.iter().map(|own| &**own).find(|own| own.system.partition().owns(voucher))
    }

    /// Finds the voucher that a campaign sells in a region.
    pub async fn voucher_of(&self, campaign: CampaignId, region: &str) -> Result<VoucherId, NoVoucher> {
        let place = (campaign, region.to_owned());
        if let Some(known) = self.regions().get(&place) {
            return known;
        }
        let found = self.look_for(campaign, region).await;
        self.regions().note(place, &found);
        found
    }

    /// Asks all partitions for the voucher. The vouchers of a campaign share a partition, but only Redis knows which
    /// one, so the first answer with a voucher counts.
    async fn look_for(&self, campaign: CampaignId, region: &str) -> Result<VoucherId, NoVoucher> {
        let ask = async |own: &Arc<PartitionStores>| {
            let gate = own.gate.get().ok_or(NoVoucher::Away)?;
            gate.redis.limits().read_regions(campaign, &[region]).await.map_err(NoVoucher::Failed)
        };
        let mut asked: FuturesUnordered<_> = self.partitions.iter().map(ask).collect();
        let mut why = NoVoucher::Unknown;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(found) => {
                    if let Some(voucher) = found.into_iter().flatten().next() {
                        return Ok(voucher);
                    }
                }
                Err(other) => why = other,
            }
        }
        Err(why)
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the Redis of at least one partition has answered since the gate started.
    pub fn was_any_open(&self) -> bool {
        self.partitions.iter().any(|own| own.gate.get().is_some())
    }

    /// Whether the Redis of at least one partition answers now.
    pub fn any_answers(&self) -> impl Future<Output = bool> + Send + use<> {
        let partitions = self.partitions.clone();
        async move {
            let answers = async |own: Arc<PartitionStores>| {
                let Some(gate) = own.gate.get() else { return false };
                let ping = gate.redis.pool().ping::<Value>(None);
                timeout(READY_PATIENCE, ping).await.is_ok_and(|answer| answer.is_ok())
            };
            let mut asked: FuturesUnordered<_> = partitions.into_iter().map(answers).collect();
            while let Some(answers) = asked.next().await {
                if answers {
                    return true;
                }
            }
            false
        }
    }
}

async fn open_patiently(
    stores: &PartitionStores,
    sold_out: &Arc<SoldOut>,
    reached: &Notify,
) -> PartitionGate {
    let mut has_told = false;
    loop {
        match open(stores, sold_out, reached).await {
            Ok(gate) => return gate,
            Err(error) if has_told => tracing::debug!(error = error_chain(&error), "waiting for Redis"),
            Err(error) => {
                has_told = true;
                tracing::warn!(
                    partition = %stores.system.partition(), error = error_chain(&error),
                    "the gate waits for Redis: until Redis answers, callers get the problem redis-away"
                );
            }
        }
        sleep(RETRY).await;
    }
}

async fn open(
    stores: &PartitionStores,
    sold_out: &Arc<SoldOut>,
    reached: &Notify,
) -> anyhow::Result<PartitionGate> {
    let settings = &stores.system;
    let redis = match stores.redis.get() {
        Some(redis) => redis.clone(),
        None => {
            let redis = connect::redis_of_any_list(settings).await?;
            let redis = stores.redis.get_or_init(|| redis).clone();
            reached.notify_one();
            redis
        }
    };
    partition_list::compare(settings, &redis).await?;
    let mut redis = redis.with_sold_out(sold_out);
    let mut confirming = Vec::new();
    if let Some(confirmation) = settings.confirmation {
        for _ in 0..CONFIRMING {
            confirming.push(connect::redis_in_order(settings).await?.pool().clone());
        }
        redis = redis.confirmed(confirmation, confirming.clone());
    }
    Ok(PartitionGate {
        command_within: settings.redis.command_timeout,
        last_reconnect: LastReconnect::of(redis.pool()).await,
        ids: OrderIdAllocator::new(redis.clone(), ID_BLOCK),
        redis,
        confirming,
    })
}
