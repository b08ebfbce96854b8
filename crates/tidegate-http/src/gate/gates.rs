//! The gates of all partitions of a list, each of which is there as soon as its Redis answers.

mod list;

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use fred::{clients::Pool, interfaces::ClientLike, types::Value};
use futures_util::{StreamExt, stream::FuturesUnordered};
use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{System, SystemSettings, connect, partition_list};
use tidegate_orders::{
    CampaignId, OrderIdAllocator, RedisStore, VoucherId,
    gate::{GateError, SoldOut},
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{forgotten_orders::ForgottenOrders, last_reconnect::LastReconnect};
use crate::order_pages::OrderStores;

/// Ids that are taken from the counter at once.
const ID_BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Calls that wait for replicas at once.
const CONFIRMING: usize = 4;
/// Between two tries to connect.
const RETRY: Duration = Duration::from_secs(1);
/// A region that nobody knows may be loaded at any time.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
const MOST_UNKNOWN: usize = 1024;
/// A Redis that needs longer to answer does not.
const READY_PATIENCE: Duration = Duration::from_secs(2);
/// Sessions with each MySQL, for those who ask what became of an order, and for orders that Redis has lost.
const SESSIONS: u32 = 3;

/// A gate, and the ids that it gives out.
#[derive(Debug)]
pub struct PartitionGate {
    /// How long a command may take.
    pub command_within: Duration,
    pub redis: RedisStore,
    /// On which calls wait for replicas.
    confirming: Vec<Pool>,
    pub last_reconnect: LastReconnect,
    pub ids: OrderIdAllocator,
}

/// All of them.
#[derive(Debug)]
pub struct Gates {
    /// In the order of the partitions.
    partitions: Vec<Arc<PartitionStores>>,
    /// Told when one more has answered.
    reached: Arc<Notify>,
    regions: Mutex<Regions>,
    /// Told that Redis refuses to note that the gate works.
    note_refused: Once,
}

/// What was found out about regions.
#[derive(Debug, Default)]
struct Regions {
    /// They have the same voucher for ever.
    known: HashMap<Region, VoucherId>,
    /// When nobody knew them.
    unknown: HashMap<Region, Instant>,
}

type Region = (CampaignId, String);

/// The stores of a partition.
#[derive(Debug)]
struct PartitionStores {
    system: SystemSettings,
    /// Reached, whatever list of partitions it keeps.
    redis: OnceLock<RedisStore>,
    gate: OnceLock<PartitionGate>,
    /// Asked what became of an order, and for orders that Redis has lost. It never admits a new one.
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

/// Why a region has no voucher.
#[derive(Debug)]
pub enum NoVoucher {
    /// No partition knows the region.
    Unknown,
    /// Not all partitions are there yet.
    Away,
    /// Not all of them answered as they should.
    Failed(GateError),
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
    /// Begins to connect, and goes on with it until `stop`. All of them tell `sold_out`.
    ///
    /// # Errors
    /// When the URL of MySQL is wrong, which the configuration has ruled out.
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

    /// Closes all connections.
    pub async fn close(&self) {
        for (own, redis) in self.reached() {
            let confirming = own.gate.get().map(|gate| &gate.confirming[..]).unwrap_or_default();
            for pool in confirming.iter().chain([redis.pool()]) {
                let _gone = pool.quit().await;
            }
            own.mysql.close().await;
        }
    }

    /// The stores of all partitions.
    pub fn stores(&self) -> Vec<Arc<dyn OrderStores>> {
        self.partitions.iter().map(|own| Arc::clone(own) as Arc<dyn OrderStores>).collect()
    }

    /// The gate of a voucher. None: its Redis has not answered yet.
    pub fn of_voucher(&self, voucher: VoucherId) -> Option<&PartitionGate> {
        self.stores_of(voucher)?.gate.get()
    }

    /// Where orders of a voucher are looked for that Redis has lost.
    pub fn forgotten_orders_of(&self, voucher: VoucherId) -> Option<&ForgottenOrders> {
        Some(&self.stores_of(voucher)?.forgotten_orders)
    }

    fn stores_of(&self, voucher: VoucherId) -> Option<&PartitionStores> {
        self.partitions.iter().map(|own| &**own).find(|own| own.system.partition().owns(voucher))
    }

    /// The voucher of a region of a campaign.
    pub async fn voucher_of(&self, campaign: CampaignId, region: &str) -> Result<VoucherId, NoVoucher> {
        let place = (campaign, region.to_owned());
        if let Some(known) = self.regions().get(&place) {
            return known;
        }
        let found = self.look_for(campaign, region).await;
        self.regions().note(place, &found);
        found
    }

    /// Its vouchers share a partition, and which one that is, only they tell: the first that does is believed.
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

    /// Where the tutorial's service keeps its logins. None: it has not answered yet.
    pub fn redis_of_logins(&self) -> Option<&RedisStore> {
        Some(&self.partitions.first()?.gate.get()?.redis)
    }

    /// One of them at least was reached once.
    pub fn was_any_open(&self) -> bool {
        self.partitions.iter().any(|own| own.gate.get().is_some())
    }

    /// Whether the Redis of one of them answers now.
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
            Err(error) if has_told => tracing::debug!(error = error_chain(&error), "Redis is still away"),
            Err(error) => {
                has_told = true;
                tracing::warn!(
                    partition = %stores.system.partition(), error = error_chain(&error),
                    "the gate waits for Redis: callers hear that it is away"
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
    let mut redis = redis.telling(sold_out);
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
