//! The partitions of both lists, with what it takes to work in each.

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

/// How long a replica may take to get what was written to its master.
const REPLICATED_WITHIN: Duration = Duration::from_secs(10);
/// How much longer the reply may take to come.
const MARGIN: Duration = Duration::from_secs(1);

/// A partition.
#[derive(Clone, Debug)]
pub struct ListedPartition {
    pub settings: SystemSettings,
    pub redis: RedisStore,
}

impl ListedPartition {
    /// With connections of its own, or with those of another one at the same place.
    pub async fn connect(
        settings: &SystemSettings,
        pools: &mut BTreeMap<String, Pool>,
    ) -> anyhow::Result<Self> {
        let prefix = settings.partition().prefix();
        let redis = match pools.get(&prefix) {
            // The connections only: which vouchers a partition owns differs from list to list.
            Some(pool) => connect::redis_store(settings, pool.clone()),
            None => connect::redis_of_any_list(settings).await?,
        };
        pools.insert(prefix, redis.pool().clone());
        Ok(Self { settings: settings.clone(), redis })
    }

    /// What stands before its names.
    pub fn prefix(&self) -> String {
        self.settings.partition().prefix()
    }

    /// Waits until a replica has all that was written here, where there is one: what another server lacks after a failover must not be
    /// removed elsewhere.
    pub async fn replicated(&self) -> anyhow::Result<()> {
        // WAIT is about what its own connection has written.
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
            "no replica of the partition {} has what was copied there, after {} s: nothing was removed elsewhere. Run this again \
             when the replica is in step",
            self.settings.partition(),
            REPLICATED_WITHIN.as_secs()
        );
        Ok(())
    }

    /// All vouchers of it that have any key in Redis.
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

/// The partitions of both lists.
#[derive(Debug)]
pub struct ListedPartitions {
    pub old: Vec<ListedPartition>,
    pub new: Vec<ListedPartition>,
}

impl ListedPartitions {
    pub async fn connect(old: &System, new: &System) -> anyhow::Result<Self> {
        let mut pools = BTreeMap::new();
        let mut places = Self { old: Vec::new(), new: Vec::new() };
        for settings in old.partitions() {
            places.old.push(ListedPartition::connect(settings, &mut pools).await?);
        }
        for settings in new.partitions() {
            places.new.push(ListedPartition::connect(settings, &mut pools).await?);
        }
        Ok(places)
    }

    /// The one that tells first that a change is under way.
    pub fn first(&self) -> &ListedPartition {
        &self.old[0]
    }

    /// Each place once, those of the list before first.
    pub fn all(&self) -> Vec<&ListedPartition> {
        let mut seen = BTreeSet::new();
        self.old.iter().chain(&self.new).filter(|place| seen.insert(place.prefix())).collect()
    }

    /// Where a voucher belongs by the new list.
    pub fn of(&self, voucher: VoucherId) -> &ListedPartition {
        let own = self.new.iter().find(|place| place.settings.partition().owns(voucher));
        own.unwrap_or(&self.new[0])
    }
}
