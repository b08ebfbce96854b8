//! The partitions of both lists, with the connections to work in each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, ensure};
use fred::{
    clients::Pool,
    interfaces::{ClientLike, KeysInterface},
    types::{ClusterHash, CustomCommand, InfoKind, config::Options},
};
use tidegate_orders::{RedisStore, VoucherId, sale};

use crate::{
    connect,
    settings::{System, SystemSettings},
};

/// The time within which a replica must have the writes of its master.
const REPLICATED_WITHIN: Duration = Duration::from_secs(10);
/// The additional time for the reply.
const MARGIN: Duration = Duration::from_secs(1);

/// A partition of the old or the new partition list.
#[derive(Clone, Debug)]
pub struct ListedPartition {
    pub settings: SystemSettings,
    pub redis: RedisStore,
}

impl ListedPartition {
    /// Connects to the partition, or shares the connections of another partition on the same server.
    pub async fn connect(
        settings: &SystemSettings,
        pools: &mut BTreeMap<String, Pool>,
    ) -> anyhow::Result<Self> {
        let prefix = settings.partition().prefix();
        let redis = match pools.get(&prefix) {
            // Only the connections are shared, because the vouchers of a partition depend on the list.
            Some(pool) => connect::redis_store(settings, pool.clone()),
            None => connect::redis_of_any_list(settings).await?,
        };
        pools.insert(prefix, redis.pool().clone());
        Ok(Self { settings: settings.clone(), redis })
    }

    /// Returns the prefix of the partition's keys.
    pub fn prefix(&self) -> String {
        self.settings.partition().prefix()
    }

    /// Waits until a replica has all writes of this partition. Copied data may be removed from the old partition only
    /// after this wait, because a failover could lose the copy. Does nothing if there is no replica.
    pub async fn replicated(&self) -> anyhow::Result<()> {
        // WAIT counts the writes of its own connection.
        let (client, key) = (self.redis.pool().next().clone(), self.redis.keys().partition_list().tags());
        let replication: String = client.info(Some(InfoKind::Replication)).await?;
        if replication.lines().any(|line| line.trim_end() == "connected_slaves:0") {
            return Ok(());
        }
        if let Some(list) = client.get::<Option<String>, _>(&key).await? {
            let _kept: () = client.set(&key, list, None, None, false).await?;
        }
        let command = CustomCommand::new_static("WAIT", ClusterHash::FirstKey, false);
        let within_ms = i64::try_from(REPLICATED_WITHIN.as_millis()).unwrap_or(i64::MAX);
        let timeout = Some(REPLICATED_WITHIN + MARGIN);
        let options = Options { timeout, max_attempts: Some(1), ..Options::default() };
        let replicas: i64 =
            client.with_options(&options).custom(command, vec![1, within_ms]).await.context("WAIT failed")?;
        ensure!(
            replicas > 0,
            "no replica of the partition {} confirmed the copied sales within {} s, so no sale was removed from its \
             old partition. Run this command again when a replica has caught up",
            self.settings.partition(),
            REPLICATED_WITHIN.as_secs()
        );
        Ok(())
    }

    /// Returns all vouchers that have at least one key in this partition.
    pub async fn vouchers(&self) -> anyhow::Result<BTreeSet<VoucherId>> {
        let redis = &self.redis;
        let mut found = BTreeSet::new();
        found.extend(sale::find_loaded(redis, |_| {}).await?);
        found.extend(sale::find_known(redis, |_| {}).await?);
        found.extend(sale::find_journaled(redis, |_| {}).await?);
        found.extend(sale::find_bought(redis, |_| {}).await?);
        Ok(found)
    }
}

/// The partitions of the old and the new partition list.
#[derive(Debug)]
pub struct ListedPartitions {
    pub old: Vec<ListedPartition>,
    pub new: Vec<ListedPartition>,
}

impl ListedPartitions {
    pub async fn connect(old: &System, new: &System) -> anyhow::Result<Self> {
        let mut pools = BTreeMap::new();
        let mut partitions = Self { old: Vec::new(), new: Vec::new() };
        for settings in old.partitions() {
            partitions.old.push(ListedPartition::connect(settings, &mut pools).await?);
        }
        for settings in new.partitions() {
            partitions.new.push(ListedPartition::connect(settings, &mut pools).await?);
        }
        Ok(partitions)
    }

    /// Returns the partition in which a change of the list is recorded first.
    pub fn first(&self) -> &ListedPartition {
        &self.old[0]
    }

    /// Returns each partition of both lists once, the partitions of the old list first.
    pub fn all(&self) -> Vec<&ListedPartition> {
        let mut seen = BTreeSet::new();
        self.old.iter().chain(&self.new).filter(|partition| seen.insert(partition.prefix())).collect()
    }

    /// Returns the partition of a voucher in the new partition list.
    pub fn of(&self, voucher: VoucherId) -> &ListedPartition {
        let own = self.new.iter().find(|partition| partition.settings.partition().owns(voucher));
        own.unwrap_or(&self.new[0])
    }
}
