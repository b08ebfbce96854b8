//! The repeated query for orders that clients ask for. However many clients ask, one query at a time serves all of
//! them.

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

/// The pause between two queries for the same clients.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The shortest pause between two queries, however many new clients ask.
const LOOK_PAUSE: Duration = Duration::from_millis(25);
/// The time that MySQL has to answer.
const MYSQL_PATIENCE: Duration = Duration::from_secs(2);
/// The time that a whole query has.
const LOOK_WITHIN: Duration = Duration::from_secs(3);

/// The stores (Redis and MySQL) of a partition, for queries about orders.
pub trait OrderStores: std::fmt::Debug + Send + Sync {
    /// The settings that say where the data is in the stores.
    fn system(&self) -> &SystemSettings;

    /// The connections for queries, which no lane waits for. None: there are none yet.
    fn connections(&self) -> Option<(RedisStore, MySqlPool)>;
}

/// An order that a client asks for: the order id, and the voucher id if the client sent it.
pub type Asked = (OrderId, Option<VoucherId>);

/// The result of the last query for an order.
#[derive(Clone, Debug)]
pub enum LastProgress {
    /// No query has ended yet.
    NotYet,
    /// The last query found this progress.
    Is(Arc<OrderProgress>),
    /// The last query failed, with the reason.
    Failed(Arc<str>),
}

/// The orders that clients ask for, with the task that queries the state of these orders repeatedly.
#[derive(Debug)]
pub struct OrderWatch {
    partitions: Vec<Arc<dyn OrderStores>>,
    asked: Mutex<HashMap<Asked, Watched>>,
    somebody_came: Notify,
}

#[derive(Debug)]
struct Watched {
    order: WatchedOrder,
    told: watch::Sender<LastProgress>,
}

impl OrderWatch {
    /// Creates a watch without orders. `partitions` has the stores of each partition, and is not empty.
    pub fn new(partitions: Vec<Arc<dyn OrderStores>>) -> Self {
        Self { partitions, asked: Mutex::default(), somebody_came: Notify::new() }
    }

    /// Whether the rows of orders are in several MySQL databases (shards). In this case, only the voucher id shows
    /// which database has an order.
    pub fn is_sharded(&self) -> bool {
        !self.partitions[0].system().mysql.shard_tags.is_empty()
    }

    /// Starts to query an order repeatedly, until the returned receiver is dropped. The receiver gets each result.
    pub fn ask(&self, asked: Asked) -> watch::Receiver<LastProgress> {
        let told = match self.asked().entry(asked) {
            std::collections::hash_map::Entry::Occupied(watched) => watched.get().told.subscribe(),
            std::collections::hash_map::Entry::Vacant(vacant) => {
                let (told, receiver) = watch::channel(LastProgress::NotYet);
                let (order, voucher) = asked;
                vacant.insert(Watched { order: WatchedOrder::new(order, voucher), told });
                receiver
            }
        };
        self.somebody_came.notify_one();
        told
    }

    /// Queries the requested orders repeatedly while clients wait for them, without end.
    pub async fn run(&self) {
        let mut lookups: Vec<Option<OrderLookup>> = self.partitions.iter().map(|_| None).collect();
        loop {
            self.somebody_came.notified().await;
            while self.is_asked() {
                // The partitions are queried at the same time: a partition that is away does not delay orders of the
                // others.
                join_all(
                    self.partitions
                        .iter()
                        .zip(&mut lookups)
                        .map(|(stores, lookup)| self.look(stores, lookup)),
                )
                .await;
                sleep(LOOK_PAUSE).await;
                // A new client does not have to wait for the regular query.
                let _somebody_came =
                    timeout(LOOK_EVERY.saturating_sub(LOOK_PAUSE), self.somebody_came.notified()).await;
            }
        }
    }

    /// Whether clients ask for an order. This forgets the orders that no client asks for any more.
    fn is_asked(&self) -> bool {
        let mut asked = self.asked();
        asked.retain(|_, watched| watched.told.receiver_count() > 0);
        !asked.is_empty()
    }

    /// The index of the partition that has an order: that of its voucher, or otherwise the one that its id names.
    fn partition_of(&self, (order, voucher): Asked) -> usize {
        let all = self.partitions[0].system().partition().tags().len();
        let index = match voucher {
            Some(voucher) => Partition::index_of(voucher, all),
            None => Partition::index_in(order),
        };
        let is_it = |stores: &Arc<dyn OrderStores>| stores.system().partition().index() == index;
        self.partitions.iter().position(is_it).unwrap_or(0)
    }

    /// Queries the orders of a partition once, and sends the results to all clients.
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
            Ok(lookup) => timeout(LOOK_WITHIN, lookup.read(&mut orders)).await.unwrap_or_else(|_| {
                Err(anyhow::anyhow!("Redis or MySQL did not answer within {LOOK_WITHIN:?}"))
            }),
            Err(error) => Err(error),
        };
        let told: Vec<LastProgress> = match looked {
            Ok(all) => all.into_iter().map(|progress| LastProgress::Is(Arc::new(progress))).collect(),
            Err(error) => {
                let why: Arc<str> = error_chain(&error).into();
                tracing::debug!(error = %why, "could not query the orders that clients ask for");
                vec![LastProgress::Failed(why); asked.len()]
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
        let (redis, mysql) =
            stores.connections().context("the process is starting and has not connected yet")?;
        *lookup = Some(OrderLookup::new(redis, mysql, MYSQL_PATIENCE));
    }
    lookup.as_mut().context("not connected yet")
}
