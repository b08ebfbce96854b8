//! Reads what Redis holds of single orders.

use std::collections::BTreeMap;

use fred::{
    error::Error,
    interfaces::{HashesInterface, KeysInterface, SetsInterface},
    types::Key,
};
use futures_util::future::try_join_all;
use serde::Serialize;
use tidegate_stream::{Entry, EntryId, PageSize, StreamError, is_claimable};

use tidegate_orders::{
    RedisStore,
    keys::{naming, process_of},
    order::{OrderId, UserId, VoucherId},
    records::{EntryContent, journal::JournalNote},
    wire::FieldNames,
};

/// The entries of a page. A page takes some milliseconds of the one thread that also admits orders.
const PAGE: u16 = 1_000;
/// The vouchers that are read at once.
const AT_ONCE: usize = 1_000;

/// An entry of the stream that holds the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryRecord {
    /// The id of the entry, which begins with the time at which the entry was added.
    pub id: EntryId,
    /// The order in the entry; None: the content of the entry was deleted.
    #[serde(rename = "wanted")]
    pub content: Option<EntryContent>,
    /// The state of the entry in the consumer group: undelivered, pending or acknowledged.
    pub state: EntryLocation,
}

/// The state of a stream entry in the consumer group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum EntryLocation {
    /// No worker has read the entry.
    Undelivered,
    /// The entry was read and is not acknowledged.
    Pending {
        /// The consumer that holds the entry.
        consumer: String,
        /// Whether the process of that consumer has a heartbeat.
        alive: bool,
        /// The milliseconds since the entry was delivered; None: it is claimable.
        idle_ms: Option<u64>,
        /// The number of deliveries since it was last set aside; 0: it is set aside.
        deliveries: u64,
        /// The number of worker processes that died while they handled the entry, if this is known.
        crashes: u64,
    },
    /// The entry was acknowledged by a worker.
    Settled,
}

impl EntryLocation {
    /// Returns whether a worker will still handle the entry.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Settled)
    }
}

/// The prefix of the name of a repair.
const REPAIR: &str = "repair:";

/// The note about an order in a voucher's journal, the Redis hash of admitted and released orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalRecord {
    /// The voucher whose journal (Redis hash of orders) contains the note.
    pub voucher: VoucherId,
    /// The action on the order that the note records: `admit` or `release`; empty if the note cannot be parsed.
    pub action: String,
    /// The number of units by which the admission or the release of the order changed the stock in Redis; negative for
    /// an admission.
    pub change: Option<i64>,
    /// The user of the admitted order; for a release, the program that returned the units of the order.
    pub by: Option<String>,
    /// The time of the order's admission or release, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The id of the repair that wrote the note, as `repair:<id>`; None: no repair wrote the note.
    pub repaired: Option<String>,
}

impl JournalRecord {
    fn of(voucher: VoucherId, note: &[u8]) -> Self {
        let entry = JournalNote::parse(note).unwrap_or_default();
        let JournalNote { action, change, by, at_ms, repaired, .. } = entry;
        let repaired = repaired.or_else(|| by.clone().filter(|by| by.starts_with(REPAIR)));
        Self { voucher, action, change, by, at_ms, repaired }
    }

    /// Returns whether the note says that Redis admitted the order, and that its units were not returned.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == "admit"
    }

    /// Returns whether the note says that the order was released: its units returned to the stock.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == "release"
    }
}

/// The lock of a user in Redis, which a worker takes before it handles an order of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockRecord {
    /// The holder of the lock: a worker's batch, or another program. None: the lock's key holds neither a string nor a hash
    /// with one field, so another program wrote the key.
    pub holder: Option<String>,
    /// The milliseconds until the lock expires; None: the lock never expires.
    pub ends_in_ms: Option<i64>,
}

/// The part of a stream that was searched for an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamCoverage {
    /// The number of entries that were read.
    pub entries: u64,
    /// Whether the whole stream was searched, or the order was found before the end.
    pub complete: bool,
    /// The id of the oldest entry that was read. This id matters only if the search did not reach the start of the
    /// stream.
    pub down_to: EntryId,
}

/// The reader of records about single orders in Redis.
#[derive(Clone, Debug)]
pub struct RedisOrders<'a> {
    /// The Redis store that is read.
    pub store: &'a RedisStore,
}

impl RedisOrders<'_> {
    /// Reads the notes about an order in the journals (Redis hashes of admitted orders) of these vouchers.
    ///
    /// # Errors
    /// If Redis does not answer, or a key has a wrong type.
    pub async fn journals(
        &self,
        vouchers: &[VoucherId],
        order: OrderId,
    ) -> Result<Vec<JournalRecord>, StreamError> {
        let mut found = Vec::new();
        for vouchers in vouchers.chunks(AT_ONCE) {
            let notes = vouchers.iter().map(|voucher| async {
                let key = self.store.keys().journal(*voucher);
                let note = self.store.pool().hget(&key, order.to_string()).await;
                let note: Option<Vec<u8>> = note.map_err(|error| naming(&key, error))?;
                Ok::<_, Error>(note.map(|note| JournalRecord::of(*voucher, &note)))
            });
            found.extend(try_join_all(notes).await?.into_iter().flatten());
        }
        Ok(found)
    }

    /// Returns the vouchers for which Redis lists the user as a buyer.
    ///
    /// # Errors
    /// For the same reasons as [`RedisOrders::journals`].
    pub async fn bought(&self, vouchers: &[VoucherId], user: UserId) -> Result<Vec<VoucherId>, StreamError> {
        let mut found = Vec::new();
        for vouchers in vouchers.chunks(AT_ONCE) {
            let asked = vouchers.iter().map(|voucher| async {
                let key = self.store.keys().buyers(*voucher);
                let is_buyer = self.store.pool().sismember(&key, user.to_string()).await;
                let is_buyer: bool = is_buyer.map_err(|error| naming(&key, error))?;
                Ok::<_, Error>(is_buyer.then_some(*voucher))
            });
            found.extend(try_join_all(asked).await?.into_iter().flatten());
        }
        Ok(found)
    }

    /// Reads the lock of a user; None: no process holds the lock.
    ///
    /// # Errors
    /// For the same reasons as [`RedisOrders::journals`].
    pub async fn lock(&self, user: UserId) -> Result<Option<LockRecord>, StreamError> {
        let Some(key) = self.store.keys().locks(&[user]).pop() else { return Ok(None) };
        // PTTL answers -2 if there is no key, and -1 if it never expires.
        let left_ms: i64 = self.store.pool().pttl(&key).await?;
        if left_ms == -2 {
            return Ok(None);
        }
        let holder = match self.store.pool().get::<Option<String>, _>(&key).await {
            Err(error) if is_wrong_type(&error) => match self.fields_of_lock(&key).await?.as_deref() {
                // The lock was released meanwhile.
                Some([]) => return Ok(None),
                Some([holder]) => Some(holder.clone()),
                _ => None,
            },
            holder => match holder? {
                Some(holder) => Some(holder),
                None => return Ok(None),
            },
        };
        Ok(Some(LockRecord { holder, ends_in_ms: (left_ms >= 0).then_some(left_ms) }))
    }

    /// Reads the fields of a lock in the layout of Redisson, if there is at most one. None: the key is no such lock.
    async fn fields_of_lock(&self, key: &Key) -> Result<Option<Vec<String>>, StreamError> {
        match self.store.pool().hlen::<u64, _>(key).await {
            Err(error) if is_wrong_type(&error) => Ok(None),
            fields if fields.clone()? > 1 => Ok(None),
            _ => {
                let held: BTreeMap<String, String> = self.store.pool().hgetall(key).await?;
                Ok(Some(held.into_keys().collect()))
            }
        }
    }

    /// Reads the stream entry with this id; None: the stream has no such entry. The result includes a pending entry
    /// whose content was deleted.
    ///
    /// # Errors
    /// For the same reasons as [`RedisOrders::journals`].
    pub async fn entry(&self, id: EntryId) -> Result<Option<EntryRecord>, StreamError> {
        let content = self.store.inspector().entry(&self.store.inspector().names().stream, id).await?;
        match content {
            Some(entry) => {
                Ok(Some(self.record(id, Some(EntryContent::of(self.store.keys().fields(), &entry))).await?))
            }
            None => {
                let record = self.record(id, None).await?;
                Ok(matches!(record.state, EntryLocation::Pending { .. }).then_some(record))
            }
        }
    }

    /// Reads the state of an entry in the consumer group, and returns this state together with the entry's content.
    ///
    /// # Errors
    /// For the same reasons as [`RedisOrders::journals`].
    pub async fn record(
        &self,
        id: EntryId,
        content: Option<EntryContent>,
    ) -> Result<EntryRecord, StreamError> {
        // The boundary is read first: an entry that is delivered later is beyond it in any case.
        let group = self.store.inspector().group();
        let delivered = group.last_delivered().await?;
        let state = match group.pending_entry(id).await? {
            Some(pending) => {
                let heartbeat: Key = self.store.keys().fleet().heartbeat(process_of(&pending.consumer));
                EntryLocation::Pending {
                    alive: self.store.pool().exists(heartbeat).await?,
                    idle_ms: (!is_claimable(pending.idle_ms)).then_some(pending.idle_ms),
                    deliveries: pending.deliveries,
                    // A user without permission to read the crash counts still gets the other facts.
                    crashes: group.crashes(&[id]).await.unwrap_or_default().first().copied().unwrap_or(0),
                    consumer: pending.consumer,
                }
            }
            None if delivered.is_none_or(|delivered| id > delivered) => EntryLocation::Undelivered,
            None => EntryLocation::Settled,
        };
        Ok(EntryRecord { id, content, state })
    }

    /// Searches the stream `key` between two ids, newest first, for entries that `is_meant` accepts. Reads at most
    /// `budget` entries, and reduces `budget` by the number of read entries. Calls `seen` with the size of each page.
    ///
    /// # Errors
    /// For the same reasons as [`RedisOrders::journals`].
    pub async fn search(
        &self,
        key: &str,
        (first, last): (EntryId, EntryId),
        budget: &mut u64,
        is_meant: impl Fn(&Entry) -> bool,
        seen: impl Fn(u64),
    ) -> Result<(Vec<Entry>, StreamCoverage), StreamError> {
        let mut searched = StreamCoverage { down_to: last, ..StreamCoverage::default() };
        let mut found = Vec::new();
        let (mut before, mut size) = (last, PageSize::new(PAGE));
        while *budget > 0 {
            let count = size.count(*budget);
            let page = self.store.inspector().page_back(key, (first, before), count).await?;
            size.learn(page.iter().map(|entry| &entry.fields));
            let read = page.len() as u64;
            *budget -= read;
            searched.entries += read;
            seen(read);
            if let Some(oldest) = page.last() {
                before = oldest.id;
                searched.down_to = oldest.id;
            }
            found.extend(page.into_iter().filter(&is_meant));
            if read < u64::from(count) {
                searched.complete = true;
                break;
            }
        }
        Ok((found, searched))
    }
}

/// Returns whether an entry holds this order, even if some fields of the entry cannot be parsed.
#[must_use]
pub fn carries(fields: &FieldNames, entry: &Entry, order: OrderId) -> bool {
    fields.id_text(entry).is_some_and(|id| id == order.to_string().as_bytes())
}

fn is_wrong_type(error: &Error) -> bool {
    error.details().starts_with("WRONGTYPE")
}
