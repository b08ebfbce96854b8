//! Asks Redis about orders that MySQL lacks, before a worker decides anything final.
//!
//! MySQL may be older than it was: restored from a backup, or replaced by a server that lacks its last seconds. Then it
//! lacks orders that were settled, and ends of orders that were released. Until a repair restores these, wrong
//! decisions would follow. A payment would have to be refunded although its order exists, or an order would be refused
//! because of another order that has ended.
//!
//! It decides like a comparison, so that repairs end every wait: only complete journals count, and a dead letter is not
//! lost (`OrderStatus::Lost` and `DifferenceKind::ReleasedAndLive` in the comparison).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use tidegate_stream::{EntryId, Letter, Outage, Read, StreamError, StreamInspector};
use tokio::sync::Mutex;

use crate::{
    dead_letters::buried_order,
    order::{OrderId, OrderIdentity, VoucherId},
    scripts::{RedisStore, ScriptError},
    wire::FieldNames,
};

/// The cause why an entry waits: MySQL has lost data that the entry depends on.
pub const LOST_IN_MYSQL: &str = "lost_in_mysql";

/// The number of dead letters in a page.
const PAGE: u16 = 1_000;

/// The journals and the dead letters of Redis, as evidence for lost orders.
#[derive(Clone, Debug)]
pub(crate) struct RedisEvidence {
    redis: RedisStore,
    buried: Arc<BuriedOrders>,
}

impl RedisEvidence {
    pub(crate) fn new(redis: RedisStore) -> Self {
        let (inspector, fields) = (redis.inspector().clone(), redis.keys().fields().clone());
        let buried = Arc::new(BuriedOrders { inspector, fields, known: Mutex::default() });
        Self { redis, buried }
    }

    /// The orders among these that MySQL has lost. MySQL knows nothing about any of them. A complete journal holds a
    /// lost order as admitted for its user, and it is no dead letter. If the journal of a voucher cannot be read, all
    /// orders of the voucher count as lost, so that nothing is decided about them until it can.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub(crate) async fn lost(&self, orders: &[OrderIdentity]) -> Result<HashSet<OrderId>, Outage> {
        let mut held = Vec::new();
        for orders in by_voucher(orders, |(.., voucher)| *voucher) {
            match unless_refused(self.redis.journals().held_since(&orders).await)? {
                Some(since) => {
                    let held_here = orders.into_iter().zip(since).filter(|(_, since)| since.is_some());
                    held.extend(held_here.map(|(order, _)| order));
                }
                None => held.extend(orders),
            }
        }
        let buried = match self.buried.of(&held).await {
            Err(StreamError::Redis(error)) if error.is_refusal() => HashSet::new(),
            buried => buried.map_err(|error| Outage::new("Redis", error))?,
        };
        Ok(held.into_iter().map(|(order, ..)| order).filter(|order| !buried.contains(order)).collect())
    }

    /// The orders among these live ones whose end MySQL has lost: a complete journal has released them. If the journal
    /// of a voucher cannot be read, all orders of the voucher count as ended.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub(crate) async fn ended(&self, live: &[(VoucherId, OrderId)]) -> Result<HashSet<OrderId>, Outage> {
        let mut ended = HashSet::new();
        for live in by_voucher(live, |(voucher, _)| *voucher) {
            let released = unless_refused(self.redis.journals().surely_released(&live).await)?;
            ended.extend(released.unwrap_or_else(|| live.into_iter().collect()));
        }
        Ok(ended.into_iter().map(|(_, order)| order).collect())
    }
}

/// The reply of Redis. `None` if Redis refused the call for a reason that concerns only this voucher.
fn unless_refused<T>(reply: Result<T, ScriptError>) -> Result<Option<T>, Outage> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(ScriptError::Unreachable(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

fn by_voucher<T: Copy>(all: &[T], voucher: impl Fn(&T) -> VoucherId) -> impl Iterator<Item = Vec<T>> {
    let mut by_voucher: BTreeMap<VoucherId, Vec<T>> = BTreeMap::new();
    for it in all {
        by_voucher.entry(voucher(it)).or_default().push(*it);
    }
    by_voucher.into_values()
}

/// Finds dead letters by their orders. It reads nothing before the first call, and each letter only once.
#[derive(Debug)]
struct BuriedOrders {
    inspector: StreamInspector,
    fields: FieldNames,
    known: Mutex<Letters>,
}

#[derive(Debug, Default)]
struct Letters {
    /// The id up to which letters were read.
    up_to: EntryId,
    by_order: HashMap<OrderIdentity, Vec<EntryId>>,
}

impl BuriedOrders {
    /// The orders among these that are dead letters.
    async fn of(&self, orders: &[OrderIdentity]) -> Result<HashSet<OrderId>, StreamError> {
        if orders.is_empty() {
            return Ok(HashSet::new());
        }
        let mut known = self.known.lock().await;
        self.read_new(&mut known).await?;
        let letters = |order: &OrderIdentity| known.by_order.get(order).into_iter().flatten().copied();
        let all: Vec<EntryId> = orders.iter().flat_map(letters).collect();
        // A letter that was read earlier may since be requeued, released or deleted.
        let there = self.those_there(&all).await?;
        let is_buried = |order: &&OrderIdentity| letters(order).any(|letter| there.contains(&letter));
        Ok(orders.iter().filter(is_buried).map(|(order, ..)| *order).collect())
    }

    async fn read_new(&self, known: &mut Letters) -> Result<(), StreamError> {
        let dead = &self.inspector.names().dead;
        let letters = self.inspector.length(dead).await?.max(PAGE.into());
        if known.by_order.len() as u64 > 2 * letters {
            // Most of the known letters are gone.
            *known = Letters::default();
        }
        let last = self.inspector.last_id(dead).await?;
        let mut pages = self.inspector.entry_pages(dead, (known.up_to, last), PAGE);
        while let Some(page) = pages.next(u64::MAX).await? {
            for letter in page.into_iter().map(Letter::parse) {
                known.up_to = letter.id;
                if let Some(order) = buried_order(&self.fields, &letter) {
                    known.by_order.entry((order.id, order.user, order.voucher)).or_default().push(letter.id);
                }
            }
        }
        Ok(())
    }

    async fn those_there(&self, letters: &[EntryId]) -> Result<HashSet<EntryId>, StreamError> {
        let (names, mut there) = (self.fields.naming_order(), HashSet::new());
        let mut pages = self.inspector.entries(&self.inspector.names().dead, letters, Read::Fields(&names));
        while let Some(page) = pages.next().await? {
            there.extend(page.into_iter().flatten().map(|letter| letter.id));
        }
        Ok(there)
    }
}
