//! The stores of the demo: one Redis, with one voucher or a campaign of three regions, or a Redis Cluster with a
//! voucher in each of twelve partitions.

use std::{num::NonZeroU32, time::Duration};

use anyhow::{Context, Result};
use fred::clients::Pool;
use tidegate_lab::{RedisCluster, RedisServer};
use tidegate_orders::{
    KeyTemplates, OrderIdAllocator, Partition, RedisStore, UserId, VoucherId,
    keys::process_of,
    scripts::{Confirmation, ConfirmedIn},
};
use tidegate_stream::{
    RedisCluster as KnownCluster, RedisConnectionSettings, SlotMaster, StreamNames, connect_pool,
    inspect::inspect,
};
use tokio::time::{Instant, sleep};

/// The tags of the partitions, which spread evenly over three masters (docs/partitions.md).
const TAGS: [&str; 12] = ["10", "3", "43", "11", "2", "42", "12", "1", "41", "13", "0", "40"];
/// The regions of the campaign.
pub const REGIONS: [&str; 3] = ["north", "south", "west"];
/// The number of users who share a phone, one in each region; not all of them may have an order at a time.
pub const USERS_A_PHONE: u64 = 3;
/// The orders that a phone may have in the campaign.
pub const ORDERS_A_PHONE: i64 = 2;
/// The connections of a partition on which callers wait for a replica.
const WAITING: usize = 6;
/// The time for which a buyer without an answer repeats the request: longer than a failover takes.
pub const PATIENCE: Duration = Duration::from_secs(30);
const ONE_REPLICA: Confirmation = Confirmation {
    replicas: NonZeroU32::MIN,
    within: Duration::from_millis(500),
    place: ConfirmedIn::Memory,
};

/// The servers of the market.
pub enum Servers {
    One(RedisServer),
    Cluster(RedisCluster),
}

/// The place where all vouchers are sold.
pub struct Market {
    pub servers: Servers,
    pub stalls: Vec<Stall>,
}

/// The place where one voucher is sold.
pub struct Stall {
    pub voucher: VoucherId,
    /// The region of a campaign.
    pub region: Option<&'static str>,
    pub gate: RedisStore,
    pub ids: OrderIdAllocator,
    pub pool: Pool,
    /// The connections on which appending waits for a replica.
    pub waiting: Pool,
    pub names: StreamNames,
}

impl Servers {
    /// Starts one server, or three masters with a replica each.
    pub fn start(is_cluster: bool) -> Result<Self> {
        Ok(if is_cluster { Self::Cluster(RedisCluster::start()?) } else { Self::One(RedisServer::start()?) })
    }

    pub fn url(&self) -> String {
        match self {
            Self::One(redis) => redis.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// The value of `stream.partitions`.
    pub fn tags(&self) -> Vec<String> {
        match self {
            Self::One(_) => Vec::new(),
            Self::Cluster(_) => TAGS.map(str::to_owned).to_vec(),
        }
    }
}

impl Market {
    /// Connects to the servers. In a campaign, each region has its own voucher.
    pub async fn open(servers: Servers, is_campaign: bool) -> Result<Self> {
        let (url, mut stalls) = (servers.url(), Vec::new());
        let known = match &servers {
            Servers::One(_) => None,
            Servers::Cluster(_) => Some(KnownCluster::new(&url)?),
        };
        for partition in Partition::all(&servers.tags()) {
            let prefix = partition.prefix();
            let names = StreamNames {
                stream: format!("{prefix}stream.orders"),
                dead: format!("{prefix}stream.orders.dead"),
                group: "g1".into(),
            };
            let master = known.as_ref().map(|known| known.master_of(&names.stream));
            let pool = connect(&url, &master, 2).await?;
            let keys = KeyTemplates::default().of_partition(&partition);
            let mut gate = RedisStore::new(pool.clone(), keys, names.clone());
            if master.is_some() {
                let mut connections = Vec::new();
                for _ in 0..WAITING {
                    connections.push(connect(&url, &master, 1).await?);
                }
                gate = gate.confirmed(ONE_REPLICA, connections);
            }
            let block = NonZeroU32::new(1_000).context("A block is not empty")?;
            let first = voucher_of(&partition)?;
            let regions: Vec<_> =
                if is_campaign { REGIONS.into_iter().map(Some).collect() } else { vec![None] };
            for (voucher, region) in (first..).zip(regions) {
                stalls.push(Stall {
                    voucher: VoucherId::try_from(voucher)?,
                    region,
                    gate: gate.clone(),
                    ids: OrderIdAllocator::new(gate.clone(), block),
                    waiting: connect(&url, &master, 1).await?,
                    pool: pool.clone(),
                    names: names.clone(),
                });
            }
        }
        Ok(Self { servers, stalls })
    }

    /// Whether the market is a cluster. The death of a master may then lose answers.
    pub fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// The stall at which a user buys.
    pub fn of_user(&self, user: UserId) -> &Stall {
        let at = user.get().unsigned_abs() % self.stalls.len() as u64;
        &self.stalls[usize::try_from(at).unwrap_or(0)]
    }

    /// One stall for each stream.
    fn streams(&self) -> impl Iterator<Item = &Stall> {
        let of_one_stream = |stall: &&Stall| stall.region.is_none_or(|region| region == REGIONS[0]);
        self.stalls.iter().filter(of_one_stream)
    }

    /// The number of entries that are pending at the lanes of a worker.
    pub async fn held_by(&self, worker: &str) -> Result<u64> {
        let mut held = 0;
        for stall in self.streams() {
            let status = retry_until_ready(|| inspect(&stall.pool, &stall.names)).await?;
            let group = status.group.context("The group is gone")?;
            let lanes = group.consumers.iter().filter(|consumer| process_of(&consumer.name) == worker);
            held += lanes.map(|lane| lane.pending).sum::<u64>();
        }
        Ok(held)
    }

    /// The numbers of undelivered and of pending entries.
    pub async fn on_their_way(&self) -> Result<(u64, u64)> {
        let (mut undelivered, mut pending) = (0, 0);
        for stall in self.streams() {
            let group = inspect(&stall.pool, &stall.names).await?.group.context("The group is gone")?;
            undelivered += group.undelivered.number();
            pending += group.pending;
        }
        Ok((undelivered, pending))
    }
}

/// The phone of a user, which other users may share.
pub fn phone_of(user: UserId) -> u64 {
    user.get().unsigned_abs() / USERS_A_PHONE
}

/// The least voucher of a partition.
fn voucher_of(partition: &Partition) -> Result<i64> {
    let index = i64::try_from(partition.index())?;
    Ok(if index == 0 { i64::try_from(partition.tags().len().max(1))? } else { index })
}

async fn connect(url: &str, master: &Option<SlotMaster>, connections: usize) -> Result<Pool> {
    let timeout = Duration::from_secs(if master.is_some() { 2 } else { 5 });
    let settings = RedisConnectionSettings {
        sentinels: None,
        url: url.to_owned(),
        master: master.clone(),
        connections,
        command_timeout: timeout,
        connect_timeout: timeout,
    };
    Ok(connect_pool(&settings).await?.into())
}

/// Repeats a request until there is an answer, like a caller that got none.
pub async fn retry_until_ready<T, E, F: Future<Output = Result<T, E>>>(ask: impl Fn() -> F) -> Result<T, E> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(50)).await,
            answer => return answer,
        }
    }
}
