//! What Redis holds of single orders.

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

/// Entries a page: some milliseconds of the one thread that also admits.
const PAGE: u16 = 1_000;
/// Vouchers that are asked for at once.
const AT_ONCE: usize = 1_000;

/// An entry of the stream that carries the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryRecord {
    /// Its id, whose first part is the time at which it was added.
    pub id: EntryId,
    /// What stands in it; None: it was deleted or trimmed.
    #[serde(rename = "wanted")]
    pub content: Option<EntryContent>,
    /// Where it stands.
    pub state: EntryLocation,
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum EntryLocation {
    /// No worker has read it.
    Undelivered,
    /// It was read and is not acknowledged.
    Pending {
        /// Who holds it.
        consumer: String,
        /// The process of that consumer has a heartbeat.
        alive: bool,
        /// Since it was delivered; None: it is claimable.
        idle_ms: Option<u64>,
        /// How often it was delivered since it was last set aside; 0: it is.
        deliveries: u64,
        /// Worker processes that died with it in progress, where that is known.
        crashes: u64,
    },
    /// It is acknowledged.
    Settled,
}

impl EntryLocation {
    /// It will be handled.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Settled)
    }
}

/// What stands before the name of a repair.
const REPAIR: &str = "repair:";

/// What the journal of a voucher says of the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalRecord {
    /// The voucher.
    pub voucher: VoucherId,
    /// `admit` or `release`; empty where the note cannot be read.
    pub action: String,
    /// Units that moved: below 0 of an admission.
    pub change: Option<i64>,
    /// The user of an admission; of a release, who released.
    pub by: Option<String>,
    /// When, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The repair that made the note, `repair:<id>`; None: none did.
    pub repaired: Option<String>,
}

impl JournalRecord {
    fn of(voucher: VoucherId, note: &[u8]) -> Self {
        let entry = JournalNote::parse(note).unwrap_or_default();
        let JournalNote { action, change, by, at_ms, repaired, .. } = entry;
        let repaired = repaired.or_else(|| by.clone().filter(|by| by.starts_with(REPAIR)));
        Self { voucher, action, change, by, at_ms, repaired }
    }

    /// Its user was given the order, and it was not released since.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == "admit"
    }

    /// It was released.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == "release"
    }
}

/// The lock of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockRecord {
    /// Who holds it, in the words of the lock; None: it is no string, so some other program's.
    pub holder: Option<String>,
    /// When it ends by itself; None: never.
    pub ends_in_ms: Option<i64>,
}

/// Which part of a stream was searched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamCoverage {
    /// Entries that were looked at.
    pub entries: u64,
    /// That was all there is, or more was not necessary.
    pub complete: bool,
    /// Where not complete: nothing before this entry was looked at.
    pub down_to: EntryId,
}

/// Reads what Redis holds of single orders.
#[derive(Clone, Debug)]
pub struct RedisOrders<'a> {
    /// The store that is read.
    pub store: &'a RedisStore,
}

impl RedisOrders<'_> {
    /// What the journals of these vouchers say of an order.
    ///
    /// # Errors
    /// As for every call here: Redis does not answer, or a key holds something else than it should.
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

    /// Which of these vouchers have the user among their buyers.
    ///
    /// # Errors
    /// As for every call here.
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

    /// The lock of a user, if somebody holds it.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn lock(&self, user: UserId) -> Result<Option<LockRecord>, StreamError> {
        let Some(key) = self.store.keys().locks(&[user]).pop() else { return Ok(None) };
        // -2: there is none, -1: it never ends.
        let left_ms: i64 = self.store.pool().pttl(&key).await?;
        if left_ms == -2 {
            return Ok(None);
        }
        let holder = match self.store.pool().get::<Option<String>, _>(&key).await {
            Err(error) if error.details().starts_with("WRONGTYPE") => None,
            holder => match holder? {
                Some(holder) => Some(holder),
                None => return Ok(None),
            },
        };
        Ok(Some(LockRecord { holder, ends_in_ms: (left_ms >= 0).then_some(left_ms) }))
    }

    /// An entry, whether its payload is there or only somebody's pending list names it; None: it is unknown.
    ///
    /// # Errors
    /// As for every call here.
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

    /// Where an entry stands, with what stands in it.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn record(
        &self,
        id: EntryId,
        content: Option<EntryContent>,
    ) -> Result<EntryRecord, StreamError> {
        // The boundary first: what is delivered after this is beyond it, whatever becomes of it.
        let group = self.store.inspector().group();
        let delivered = group.last_delivered().await?;
        let state = match group.pending_entry(id).await? {
            Some(pending) => {
                let heartbeat: Key = self.store.keys().fleet().heartbeat(process_of(&pending.consumer));
                EntryLocation::Pending {
                    alive: self.store.pool().exists(heartbeat).await?,
                    idle_ms: (!is_claimable(pending.idle_ms)).then_some(pending.idle_ms),
                    deliveries: pending.deliveries,
                    // Whoever may not read this is told the rest.
                    crashes: group.crashes(&[id]).await.unwrap_or_default().first().copied().unwrap_or(0),
                    consumer: pending.consumer,
                }
            }
            None if delivered.is_none_or(|delivered| id > delivered) => EntryLocation::Undelivered,
            None => EntryLocation::Settled,
        };
        Ok(EntryRecord { id, content, state })
    }

    /// Looks through the stream `key` between two ids, the latest first, for entries that `is_meant` takes. Looks at no
    /// more than `budget` entries, which is lowered by as many; `seen` is told of each page.
    ///
    /// # Errors
    /// As for every call here.
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

/// Whether an entry carries this order, readable or not.
#[must_use]
pub fn carries(fields: &FieldNames, entry: &Entry, order: OrderId) -> bool {
    fields.id_text(entry).is_some_and(|id| id == order.to_string().as_bytes())
}
