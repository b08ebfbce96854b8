//! The handle to the Redis of a partition, with one part for each kind of task.

use std::sync::Arc;

use fred::clients::Pool;
use tidegate_stream::{Confirmation, RedisPool, StreamInspector, StreamNames};

use super::{
    Admissions, Journals, Releases, Repairs, SaleLimits, Sales, SoldOut, StagedSales, access::RedisAccess,
    limited::LimitedCalls,
};
use crate::{
    keys::{KeyTemplates, Keys},
    partition::Partition,
};

/// A handle to the Redis of a partition. Clones share all of it.
#[derive(Clone, Debug)]
pub struct RedisStore {
    access: RedisAccess,
    doors: Arc<Doors>,
}

#[derive(Clone, Debug)]
struct Doors {
    inspector: StreamInspector,
    admissions: Admissions,
    releases: Releases,
    sales: Sales,
    limits: SaleLimits,
    journals: Journals,
    repairs: Repairs,
    staged_sales: StagedSales,
}

impl RedisStore {
    /// The Redis behind `pool`, with keys by these templates. The configuration has checked that the templates hold
    /// their placeholders.
    #[must_use]
    pub fn new(pool: Pool, keys: KeyTemplates, names: StreamNames) -> Self {
        let stream = names.stream.as_str().into();
        let access = RedisAccess { pool: pool.clone(), keys: Arc::new(Keys::new(keys)), stream };
        // Admissions and releases share what is known of limits.
        let limited = Arc::new(LimitedCalls::new(access.clone()));
        let doors = Doors {
            inspector: StreamInspector::new(pool, names),
            admissions: Admissions::new(&access, Arc::clone(&limited)),
            releases: Releases::new(&access, limited),
            sales: Sales::new(&access),
            limits: SaleLimits::new(&access),
            journals: Journals::new(&access),
            repairs: Repairs::new(&access),
            staged_sales: StagedSales::new(&access),
        };
        Self { access, doors: Arc::new(doors) }
    }

    /// As [`RedisStore::new`], with the tutorial's names of the streams and of the consumer group, after the tag of the
    /// partition.
    #[must_use]
    pub fn with_default_names(pool: Pool, keys: KeyTemplates) -> Self {
        let stream = format!("{}stream.orders", keys.prefix);
        let names = StreamNames { dead: format!("{stream}.dead"), stream, group: "g1".to_owned() };
        Self::new(pool, keys, names)
    }

    /// The same store, whose admissions are confirmed by replicas. A call waits until enough replicas have the order.
    /// If they do not get it in time, the caller gets [`ScriptError::Unconfirmed`](super::ScriptError::Unconfirmed). A
    /// refusal is returned at once.
    ///
    /// Each of `connections` is a pool of one connection to the master of this Redis, which no other code uses. As many
    /// calls are on their way at once as there are connections. A call of many orders waits once.
    #[must_use]
    pub fn confirmed(mut self, confirmation: Confirmation, connections: Vec<Pool>) -> Self {
        let doors = Arc::make_mut(&mut self.doors);
        doors.admissions = doors.admissions.clone().confirmed(confirmation, connections);
        self
    }

    /// The same store, which notes in `sold_out` when Redis refuses an order because units are missing, and when a
    /// release returns units.
    #[must_use]
    pub fn with_sold_out(mut self, sold_out: &Arc<SoldOut>) -> Self {
        let doors = Arc::make_mut(&mut self.doors);
        doors.admissions = doors.admissions.clone().with_sold_out(Arc::clone(sold_out));
        doors.releases = doors.releases.clone().with_sold_out(Arc::clone(sold_out));
        self
    }

    /// The pool of connections to this Redis.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.access.pool
    }

    /// The names of the keys in this Redis.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.access.keys
    }

    /// The partition whose vouchers this Redis holds.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        self.access.keys.partition()
    }

    /// The inspector of the stream of orders.
    #[must_use]
    pub fn inspector(&self) -> &StreamInspector {
        &self.doors.inspector
    }

    /// The part that admits orders.
    #[must_use]
    pub fn admissions(&self) -> &Admissions {
        &self.doors.admissions
    }

    /// The part that releases orders, which returns units and the right to buy.
    #[must_use]
    pub fn releases(&self) -> &Releases {
        &self.doors.releases
    }

    /// The part for sales: opens, pauses, changes, ends and reads them.
    #[must_use]
    pub fn sales(&self) -> &Sales {
        &self.doors.sales
    }

    /// The part for limits: their rules and their counters.
    #[must_use]
    pub fn limits(&self) -> &SaleLimits {
        &self.doors.limits
    }

    /// The part that reads journals.
    #[must_use]
    pub fn journals(&self) -> &Journals {
        &self.doors.journals
    }

    /// The part for repairs, compaction, and moves between partitions.
    #[must_use]
    pub fn repairs(&self) -> &Repairs {
        &self.doors.repairs
    }

    /// The part for sales that a rebuild fills next to those on sale.
    #[must_use]
    pub fn staged_sales(&self) -> &StagedSales {
        &self.doors.staged_sales
    }

    pub(super) const fn access(&self) -> &RedisAccess {
        &self.access
    }
}

impl From<&RedisStore> for RedisPool {
    fn from(redis: &RedisStore) -> Self {
        redis.pool().into()
    }
}
