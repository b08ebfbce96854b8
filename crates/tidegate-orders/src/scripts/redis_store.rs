//! The handle to the Redis of a partition, with one part for each kind of task.

use std::sync::Arc;

use fred::clients::Pool;
use tidegate_stream::{Confirmation, RedisPool, StreamInspector, StreamNames};

use super::{
    Admissions, EventAppends, Journals, Releases, Repairs, SaleLimits, Sales, SoldOut, StagedSales,
    access::RedisAccess, confirmed::ConfirmedCalls, limited::LimitedCalls,
};
use crate::keys::{KeyTemplates, Keys};

/// Access to the Redis that holds the vouchers of a partition. Clones share their connections and scripts.
#[derive(Clone, Debug)]
pub struct RedisStore {
    access: RedisAccess,
    doors: Arc<Doors>,
}

#[derive(Clone, Debug)]
struct Doors {
    inspector: StreamInspector,
    admissions: Admissions,
    events: EventAppends,
    releases: Releases,
    sales: Sales,
    limits: SaleLimits,
    journals: Journals,
    repairs: Repairs,
    staged_sales: StagedSales,
}

impl RedisStore {
    /// Creates access to the Redis behind `pool`, with keys by the given templates. The configuration has already
    /// checked that each template contains its placeholder.
    #[must_use]
    pub fn new(pool: Pool, keys: KeyTemplates, names: StreamNames) -> Self {
        let stream = names.stream.as_str().into();
        let access = RedisAccess { pool: pool.clone(), keys: Arc::new(Keys::new(keys)), stream };
        // Admissions and releases share what is known of limits.
        let limited = Arc::new(LimitedCalls::new(access.clone()));
        let doors = Doors {
            events: EventAppends::new(&access, names.clone()),
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

    /// Creates access to Redis like [`RedisStore::new`]. The streams and the consumer group have the names of the
    /// tutorial shop hm-dianping, after the tag (name) of the partition.
    #[must_use]
    pub fn with_default_names(pool: Pool, keys: KeyTemplates) -> Self {
        let stream = format!("{}stream.orders", keys.prefix);
        let names = StreamNames { dead: format!("{stream}.dead"), stream, group: "g1".to_owned() };
        Self::new(pool, keys, names)
    }

    /// Returns a copy in which each new order and each event waits until enough replicas have it. If the replicas do not
    /// get it in time, the caller gets [`ScriptError::Unconfirmed`](super::ScriptError::Unconfirmed). A refusal is
    /// returned at once.
    ///
    /// Each of `connections` is a pool of one connection to the master of this Redis, which no other code uses. As many
    /// calls are on their way at once as there are connections. A call of many orders waits once.
    #[must_use]
    pub fn confirmed(mut self, confirmation: Confirmation, connections: Vec<Pool>) -> Self {
        let doors = Arc::make_mut(&mut self.doors);
        let calls = Arc::new(ConfirmedCalls::new(confirmation, connections));
        doors.events = doors.events.clone().confirmed(Arc::clone(&calls));
        doors.admissions = doors.admissions.clone().confirmed(calls);
        self
    }

    /// Returns a copy that records in `sold_out` when Redis refuses an order because too few units are left, and when
    /// units return to the stock.
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

    /// The maker of the names of keys in this Redis.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.access.keys
    }

    /// Returns read access to the stream of orders.
    #[must_use]
    pub fn inspector(&self) -> &StreamInspector {
        &self.doors.inspector
    }

    /// Returns access to the scripts that admit or refuse orders.
    #[must_use]
    pub fn admissions(&self) -> &Admissions {
        &self.doors.admissions
    }

    /// Returns access to the appending of events to the stream.
    #[must_use]
    pub fn events(&self) -> &EventAppends {
        &self.doors.events
    }

    /// Returns access to the scripts that release orders, so that units return to the stock and users may buy again.
    #[must_use]
    pub fn releases(&self) -> &Releases {
        &self.doors.releases
    }

    /// Returns access to the calls that open, pause, change, end and read sales.
    #[must_use]
    pub fn sales(&self) -> &Sales {
        &self.doors.sales
    }

    /// Returns access to the rules and the counters of limits.
    #[must_use]
    pub fn limits(&self) -> &SaleLimits {
        &self.doors.limits
    }

    /// Returns read access to the journals, the Redis hashes that note how each order changed the stock.
    #[must_use]
    pub fn journals(&self) -> &Journals {
        &self.doors.journals
    }

    /// Returns access to the calls that repair sales, remove notes of final orders, and move sales between partitions.
    #[must_use]
    pub fn repairs(&self) -> &Repairs {
        &self.doors.repairs
    }

    /// Returns access to the new keys that a rebuild of a sale fills, before they replace the old keys of the sale.
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
