//! Looks at orders that somebody asks for. However many ask, it is one look at a time, for all of them together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use futures_util::future::join_all;
use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{
    SystemSettings,
    order_progress::{OrderLookup, OrderProgress, WatchedOrder},
};
use tidegate_orders::{OrderId, Partition, RedisStore, VoucherId};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};

/// Between two looks for the same askers.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Between two looks, however many new askers come.
const LOOK_PAUSE: Duration = Duration::from_millis(25);
/// How long MySQL may take.
const MYSQL_PATIENCE: Duration = Duration::from_secs(2);
/// How long a look may take.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The stores of a partition, for whoever looks orders up.
pub trait OrderStores: std::fmt::Debug + Send + Sync {
    /// What is where in them.
    fn system(&self) -> &SystemSettings;

    /// Connections that no lane waits for. None: not there yet.
    fn connections(&self) -> Option<(RedisStore, MySqlPool)>;
}

/// An order, and its voucher where the asker names it.
pub type Asked = (OrderId, Option<VoucherId>);

/// What is known of an order.
#[derive(Clone, Debug)]
pub enum Told {
    /// Nobody has looked yet.
    NotYet,
    /// The last look saw this.
    Is(Arc<OrderProgress>),
    /// The last look failed: why.
    Failed(Arc<str>),
}

/// The orders that somebody asks for.
#[derive(Debug)]
pub struct OrderWatch {
    partitions: Vec<Arc<dyn OrderStores>>,
    asked: Mutex<HashMap<Asked, Watched>>,
    somebody_came: Notify,
}

#[derive(Debug)]
struct Watched {
    order: WatchedOrder,
    told: watch::Sender<Told>,
}

impl OrderWatch {
    /// Nobody asks yet. The stores of each partition, one at least.
    pub fn new(partitions: Vec<Arc<dyn OrderStores>>) -> Self {
        Self { partitions, asked: Mutex::default(), somebody_came: Notify::new() }
    }

    /// Whether rows of orders are in several MySQLs, of which only the voucher tells the one.
    pub fn is_sharded(&self) -> bool {
        !self.partitions[0].system().mysql.shard_tags.is_empty()
    }

    /// What is known of an order from now on, until the answer is dropped. Soon after, it has been looked at.
    pub fn ask(&self, asked: Asked) -> watch::Receiver<Told> {
        let told = match self.asked().entry(asked) {
            std::collections::hash_map::Entry::Occupied(watched) => watched.get().told.subscribe(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let (told, receiver) = watch::channel(Told::NotYet);
                let (order, voucher) = asked;
                vacant.insert(Watched { order: WatchedOrder::new(order, voucher), told });
                receiver
            }
        };
        self.somebody_came.notify_one();
        told
    }

    /// Looks for as long as somebody asks; never ends.
    pub async fn run(&self) {
        let mut lookups: Vec<Option<OrderLookup>> = self.partitions.iter().map(|_| None).collect();
        loop {
            self.somebody_came.notified().await;
            while self.is_asked() {
                // One that is away keeps nobody waiting who asks for an order of another.
                join_all(
                    self.partitions
                        .iter()
                        .zip(&mut lookups)
                        .map(|(stores, lookup)| self.look(stores, lookup)),
                )
                .await;
                sleep(LOOK_PAUSE).await;
                // Whoever comes is not to wait for the others' next look.
                let _somebody_came =
                    timeout(LOOK_EVERY.saturating_sub(LOOK_PAUSE), self.somebody_came.notified()).await;
            }
        }
    }

    /// Forgets orders that nobody asks for any more.
    fn is_asked(&self) -> bool {
        let mut asked = self.asked();
        asked.retain(|_, watched| watched.told.receiver_count() > 0);
        !asked.is_empty()
    }

    /// Where an order is looked for: in the partition of its voucher, or else in that which its id names.
    fn partition_of(&self, (order, voucher): Asked) -> usize {
        let all = self.partitions[0].system().partition().tags().len();
        let index = match voucher {
            Some(voucher) => Partition::index_of(voucher, all),
            None => Partition::index_in(order),
        };
        let is_it = |stores: &Arc<dyn OrderStores>| stores.system().partition().index() == index;
        self.partitions.iter().position(is_it).unwrap_or(0)
    }

    /// Looks once for orders of a partition, and tells everybody.
    async fn look(&self, stores: &Arc<dyn OrderStores>, lookup: &mut Option<OrderLookup>) {
        let is_own = |asked: &Asked| Arc::ptr_eq(&self.partitions[self.partition_of(*asked)], stores);
        let (asked, mut orders): (Vec<Asked>, Vec<WatchedOrder>) = self
            .asked()
            .iter()
            .filter(|(asked, _)| is_own(asked))
            .map(|(asked, watched)| (*asked, watched.order.clone()))
            .unzip();
        if asked.is_empty() {
            return;
        }
        let looked = match lookup_of(&**stores, lookup) {
            Ok(lookup) => timeout(LOOK_WITHIN, lookup.read(&mut orders))
                .await
                .unwrap_or_else(|_| Err(anyhow::anyhow!("the stores did not answer within {LOOK_WITHIN:?}"))),
            Err(error) => Err(error),
        };
        let told: Vec<Told> = match looked {
            Ok(all) => all.into_iter().map(|progress| Told::Is(Arc::new(progress))).collect(),
            Err(error) => {
                let why: Arc<str> = error_chain(&error).into();
                tracing::debug!(error = %why, "could not look at orders for those who ask over HTTP");
                vec![Told::Failed(why); asked.len()]
            }
        };
        let mut watched = self.asked();
        for ((asked, order), told) in asked.iter().zip(orders).zip(told) {
            if let Some(watched) = watched.get_mut(asked) {
                watched.order = order;
                watched.told.send_replace(told);
            }
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Asked, Watched>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lookup_of<'l>(
    stores: &dyn OrderStores,
    lookup: &'l mut Option<OrderLookup>,
) -> anyhow::Result<&'l mut OrderLookup> {
    if lookup.is_none() {
        let (redis, mysql) = stores.connections().context("not connected yet: the process is starting")?;
        *lookup = Some(OrderLookup::new(redis, mysql, MYSQL_PATIENCE));
    }
    lookup.as_mut().context("not connected yet")
}
