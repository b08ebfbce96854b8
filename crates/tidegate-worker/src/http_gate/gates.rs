//! The gates of all partitions, each of which is there as soon as its Redis answers.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroU32,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use fred::clients::Pool;
use futures_util::future::join_all;
use sqlx::MySqlPool;
use tidegate_operations::{System, SystemSettings, connect, text::error_chain};
use tidegate_orders::{CampaignId, Gate, Keys, OrderIdAllocator, VoucherId, gate::SoldOut};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::order_pages::OrderStores;

/// Ids that are taken from the counter at once.
const ID_BLOCK: NonZeroU32 = NonZeroU32::new(64).unwrap();
/// Calls that wait for replicas at once.
const CONFIRMING: usize = 4;
/// Between two tries to connect.
const RETRY: Duration = Duration::from_secs(1);
/// Sessions with each MySQL, for those who ask what became of an order.
const SESSIONS: u32 = 2;

/// A gate, and the ids that it gives out.
#[derive(Debug)]
pub struct PartitionGate {
    pub gate: Gate,
    redis: Pool,
    pub ids: OrderIdAllocator,
}

/// All of them.
#[derive(Debug)]
pub struct Gates {
    /// In the order of the partitions.
    partitions: Vec<Arc<PartitionStores>>,
    /// A region has the same voucher for ever.
    regions: Mutex<HashMap<(CampaignId, String), VoucherId>>,
}

/// The stores of a partition.
#[derive(Debug)]
struct PartitionStores {
    system: SystemSettings,
    gate: OnceLock<PartitionGate>,
    /// Only asked by whoever looks for an order: nobody is admitted by MySQL.
    mysql: MySqlPool,
}

impl OrderStores for PartitionStores {
    fn system(&self) -> &SystemSettings {
        &self.system
    }

    fn connections(&self) -> Option<(Pool, MySqlPool)> {
        self.gate.get().map(|gate| (gate.redis.clone(), self.mysql.clone()))
    }
}

/// Why a region has no voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoVoucher {
    /// No partition knows the region.
    Unknown,
    /// Not all of them could be asked.
    RedisAway,
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
        let mut partitions = Vec::new();
        for settings in system.partitions() {
            let url = settings.mysql.url.reveal().to_owned();
            let mysql = match pools.get(&url) {
                Some(pool) => MySqlPool::clone(pool),
                None => connect::mysql_sessions(settings)?.pool(SESSIONS),
            };
            pools.insert(url, mysql.clone());
            let stores = PartitionStores { system: settings.clone(), gate: OnceLock::new(), mysql };
            let (stores, sold_out, stop) = (Arc::new(stores), Arc::clone(sold_out), stop.clone());
            partitions.push(Arc::clone(&stores));
            tokio::spawn(async move {
                let opening = open_patiently(&stores.system, sold_out);
                if let Some(gate) = stop.run_until_cancelled(opening).await {
                    let _first = stores.gate.set(gate);
                }
            });
        }
        Ok(Self { partitions, regions: Mutex::default() })
    }

    /// The stores of all partitions.
    pub fn stores(&self) -> Vec<Arc<dyn OrderStores>> {
        self.partitions.iter().map(|own| Arc::clone(own) as Arc<dyn OrderStores>).collect()
    }

    /// The gate of a voucher. None: its Redis has not answered yet.
    pub fn of_voucher(&self, voucher: VoucherId) -> Option<&PartitionGate> {
        self.partitions.iter().find(|own| own.system.partition().owns(voucher))?.gate.get()
    }

    /// The voucher of a region of a campaign.
    pub async fn voucher_of(&self, campaign: CampaignId, region: &str) -> Result<VoucherId, NoVoucher> {
        let place = (campaign, region.to_owned());
        if let Some(known) = self.regions.lock().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return Ok(*known);
        }
        // Its vouchers share a partition, and which one that is, only they tell.
        let ask = async |own: &Arc<PartitionStores>| {
            let gate = own.gate.get().ok_or(NoVoucher::RedisAway)?;
            let found = gate.gate.read_regions(campaign, &[region]).await;
            found.map_err(|error| {
                tracing::debug!(%error, %campaign, "could not look for a region");
                NoVoucher::RedisAway
            })
        };
        let mut told = Err(NoVoucher::Unknown);
        for answer in join_all(self.partitions.iter().map(ask)).await {
            match answer {
                Ok(found) => {
                    if let Some(voucher) = found.into_iter().flatten().next() {
                        self.regions.lock().unwrap_or_else(PoisonError::into_inner).insert(place, voucher);
                        return Ok(voucher);
                    }
                }
                Err(away) => told = Err(away),
            }
        }
        told
    }

    /// Where the tutorial's service keeps its logins. None: it has not answered yet.
    pub fn redis_of_logins(&self) -> Option<&Pool> {
        Some(&self.partitions.first()?.gate.get()?.redis)
    }

    /// One of them is open at least.
    pub fn is_any_open(&self) -> bool {
        self.partitions.iter().any(|own| own.gate.get().is_some())
    }
}

async fn open_patiently(settings: &SystemSettings, sold_out: Arc<SoldOut>) -> PartitionGate {
    let mut has_told = false;
    loop {
        match open(settings).await {
            Ok(PartitionGate { gate, redis, ids }) => {
                return PartitionGate { gate: gate.telling(sold_out), redis, ids };
            }
            Err(error) if has_told => tracing::debug!(error = error_chain(&error), "Redis is still away"),
            Err(error) => {
                has_told = true;
                tracing::warn!(
                    partition = %settings.partition(), error = error_chain(&error),
                    "the gate waits for Redis: callers hear that it is away"
                );
            }
        }
        sleep(RETRY).await;
    }
}

async fn open(settings: &SystemSettings) -> anyhow::Result<PartitionGate> {
    let redis = connect::redis(settings).await?;
    let keys = Keys::new(settings.keys.clone());
    let mut gate = Gate::new(redis.clone(), keys.clone(), settings.stream.name.as_str());
    if let Some(confirmation) = settings.confirmation {
        let mut connections = Vec::new();
        for _ in 0..CONFIRMING {
            connections.push(connect::redis_in_order(settings).await?);
        }
        gate = gate.confirmed(confirmation, connections);
    }
    Ok(PartitionGate { gate, ids: OrderIdAllocator::new(redis.clone(), keys, ID_BLOCK), redis })
}
