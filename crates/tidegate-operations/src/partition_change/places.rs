//! The partitions of both lists, with what it takes to work in each.

use std::collections::{BTreeMap, BTreeSet};

use fred::clients::Pool;
use tidegate_orders::{Gate, Keys, VoucherId, sale};

use crate::{
    connect,
    settings::{System, SystemSettings},
};

/// A partition.
#[derive(Clone, Debug)]
pub struct Place {
    pub settings: SystemSettings,
    pub redis: Pool,
    pub keys: Keys,
    pub gate: Gate,
}

impl Place {
    /// With connections of its own, or with those of another one at the same place.
    pub async fn connect(
        settings: &SystemSettings,
        pools: &mut BTreeMap<String, Pool>,
    ) -> anyhow::Result<Self> {
        let prefix = settings.partition().prefix();
        let redis = match pools.get(&prefix) {
            Some(redis) => redis.clone(),
            None => connect::redis_of_any_list(settings).await?,
        };
        pools.insert(prefix, redis.clone());
        let keys = Keys::new(settings.keys.clone());
        let gate = Gate::new(redis.clone(), keys.clone(), settings.stream.name.as_str());
        Ok(Self { settings: settings.clone(), redis, keys, gate })
    }

    /// What stands before its names.
    pub fn prefix(&self) -> String {
        self.settings.partition().prefix()
    }

    /// All vouchers of it that have any key in Redis.
    pub async fn vouchers(&self) -> anyhow::Result<BTreeSet<VoucherId>> {
        let (redis, keys) = (&self.redis, &self.keys);
        let mut found = BTreeSet::new();
        found.extend(sale::find_loaded(redis, keys, |_| {}).await?);
        found.extend(sale::find_known(redis, keys, |_| {}).await?);
        found.extend(sale::find_journaled(redis, keys, |_| {}).await?);
        found.extend(sale::find_bought(redis, keys, |_| {}).await?);
        Ok(found)
    }
}

/// The partitions of both lists.
#[derive(Debug)]
pub struct Places {
    pub old: Vec<Place>,
    pub new: Vec<Place>,
}

impl Places {
    pub async fn connect(old: &System, new: &System) -> anyhow::Result<Self> {
        let mut pools = BTreeMap::new();
        let mut places = Self { old: Vec::new(), new: Vec::new() };
        for settings in old.partitions() {
            places.old.push(Place::connect(settings, &mut pools).await?);
        }
        for settings in new.partitions() {
            places.new.push(Place::connect(settings, &mut pools).await?);
        }
        Ok(places)
    }

    /// The one that tells first that a change is under way.
    pub fn first(&self) -> &Place {
        &self.old[0]
    }

    /// Each place once, those of the list before first.
    pub fn all(&self) -> Vec<&Place> {
        let mut seen = BTreeSet::new();
        self.old.iter().chain(&self.new).filter(|place| seen.insert(place.prefix())).collect()
    }

    /// Where a voucher belongs by the new list.
    pub fn of(&self, voucher: VoucherId) -> &Place {
        let own = self.new.iter().find(|place| place.settings.partition().owns(voucher));
        own.unwrap_or(&self.new[0])
    }
}
