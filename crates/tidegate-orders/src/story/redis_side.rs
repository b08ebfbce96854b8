//! What Redis holds of single orders.

use fred::{
    clients::Pool,
    error::Error,
    interfaces::{HashesInterface, KeysInterface, SetsInterface},
    types::Key,
};
use futures_util::future::try_join_all;
use serde::{Deserialize, Serialize};
use tidegate_stream::{Entry, EntryId, Letter, PageSize, StreamError, Survey, is_offered};

use crate::{
    keys::{Keys, naming, process_of},
    order::{OrderId, UserId, VoucherId},
    wire::{FieldNames, Glimpse},
};

/// Entries a page: some milliseconds of the one thread that also admits.
const PAGE: u16 = 1_000;
/// Vouchers that are asked for at once.
const AT_ONCE: usize = 1_000;

/// What an entry wants, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Wanted {
    /// Whose order.
    pub user: Option<UserId>,
    /// Of what.
    pub voucher: Option<VoucherId>,
    /// How many units; 1 where nothing is said.
    pub quantity: i64,
    /// Why the entry is no order.
    pub error: Option<String>,
}

/// An entry of the stream that carries the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryFacts {
    /// Its id, whose first part is the time at which it was added.
    #[serde(serialize_with = "as_text")]
    pub id: EntryId,
    /// What it wants; None: it was deleted or trimmed.
    pub wanted: Option<Wanted>,
    /// Where it stands.
    pub state: EntryState,
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum EntryState {
    /// No worker has read it.
    Undelivered,
    /// It was read and is not acknowledged.
    Pending {
        /// Who holds it.
        consumer: String,
        /// The process of that consumer has a heartbeat.
        alive: bool,
        /// Since it was delivered; None: it is on offer.
        idle_ms: Option<u64>,
        /// How often it was delivered since it was last set aside; 0: it is.
        deliveries: u64,
        /// Worker processes that died with it in hand, where that is known.
        deaths: u64,
    },
    /// It is acknowledged.
    Settled,
}

impl EntryState {
    /// It will be handled.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Settled)
    }
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LetterFacts {
    /// Its id in the stream of dead letters.
    #[serde(serialize_with = "as_text")]
    pub id: EntryId,
    /// The entry that was buried.
    pub entry: Option<String>,
    /// Why, in a word; None: somebody else wrote it there.
    pub reason: Option<String>,
    /// Why, in a sentence.
    pub error: Option<String>,
    /// When, in Unix milliseconds.
    pub at_ms: Option<i64>,
    /// How often it was put back before.
    pub requeued: u32,
    /// What the entry wanted.
    pub wanted: Wanted,
}

impl LetterFacts {
    /// Our program buried it, and it holds an order of this user for this voucher.
    #[must_use]
    pub fn is_order_of(&self, user: i64, voucher: i64) -> bool {
        let Wanted { user: wanted, voucher: of, error, .. } = &self.wanted;
        let is_same =
            wanted.is_some_and(|wanted| wanted.get() == user) && of.is_some_and(|of| of.get() == voucher);
        is_same && error.is_none() && self.reason.is_some()
    }
}

/// What the journal of a voucher says of the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalFacts {
    /// The voucher.
    pub voucher: VoucherId,
    /// `admit` or `release`; empty where the note cannot be read.
    pub action: String,
    /// Units that moved: below 0 of an admission.
    pub change: Option<i64>,
    /// The user of an admission; of a release, who gave back.
    pub by: Option<String>,
    /// When, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
}

impl JournalFacts {
    /// Its user was given the order, and it was not given back since.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == "admit"
    }

    /// It was given back.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == "release"
    }
}

/// The lock of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LockFacts {
    /// Who holds it, in the words of the lock; None: it is no string, so some other program's.
    pub holder: Option<String>,
    /// When it ends by itself; None: never.
    pub ends_in_ms: Option<i64>,
}

/// Which part of a stream was searched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Searched {
    /// Entries that were looked at.
    pub entries: u64,
    /// That was all there is, or more was not necessary.
    pub complete: bool,
    /// Where not complete: nothing before this entry was looked at.
    #[serde(serialize_with = "as_text")]
    pub down_to: EntryId,
}

fn as_text<S: serde::Serializer>(id: &EntryId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Reads Redis.
#[derive(Clone, Debug)]
pub struct Trail<'a> {
    /// The connections.
    pub pool: &'a Pool,
    /// A look at the stream.
    pub survey: &'a Survey,
    /// Names of keys.
    pub keys: &'a Keys,
}

impl Trail<'_> {
    /// What the journals of these vouchers say of an order.
    ///
    /// # Errors
    /// As for every call here: Redis does not answer, or a key holds something else than it should.
    pub async fn journals(
        &self,
        vouchers: &[VoucherId],
        order: OrderId,
    ) -> Result<Vec<JournalFacts>, StreamError> {
        let mut found = Vec::new();
        for vouchers in vouchers.chunks(AT_ONCE) {
            let notes = vouchers.iter().map(|voucher| async {
                let key = self.keys.journal(*voucher);
                let note = self.pool.hget(&key, order.to_string()).await;
                let note: Option<Vec<u8>> = note.map_err(|error| naming(&key, error))?;
                Ok::<_, Error>(note.map(|note| journal(*voucher, &note)))
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
                let key = self.keys.buyers(*voucher);
                let is_buyer = self.pool.sismember(&key, user.to_string()).await;
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
    pub async fn lock(&self, user: UserId) -> Result<Option<LockFacts>, StreamError> {
        let Some(key) = self.keys.locks(&[user]).pop() else { return Ok(None) };
        // -2: there is none, -1: it never ends.
        let left_ms: i64 = self.pool.pttl(&key).await?;
        if left_ms == -2 {
            return Ok(None);
        }
        let holder = match self.pool.get::<Option<String>, _>(&key).await {
            Err(error) if error.details().starts_with("WRONGTYPE") => None,
            holder => match holder? {
                Some(holder) => Some(holder),
                None => return Ok(None),
            },
        };
        Ok(Some(LockFacts { holder, ends_in_ms: (left_ms >= 0).then_some(left_ms) }))
    }

    /// An entry, whether its payload is there or only somebody's pending list names it; None: it is unknown.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn entry(&self, id: EntryId) -> Result<Option<EntryFacts>, StreamError> {
        let content = self.survey.entry(&self.survey.names().stream, id).await?;
        match content {
            Some(entry) => Ok(Some(self.facts(id, Some(wanted(self.keys.fields(), &entry))).await?)),
            None => {
                let facts = self.facts(id, None).await?;
                Ok(matches!(facts.state, EntryState::Pending { .. }).then_some(facts))
            }
        }
    }

    /// Where an entry stands, with what it wants.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn facts(&self, id: EntryId, wanted: Option<Wanted>) -> Result<EntryFacts, StreamError> {
        // The boundary first: what is delivered after this is beyond it, whatever becomes of it.
        let delivered = self.survey.last_delivered().await?;
        let state = match self.survey.pending_entry(id).await? {
            Some(pending) => {
                let heartbeat: Key = self.keys.heartbeat(process_of(&pending.consumer));
                EntryState::Pending {
                    alive: self.pool.exists(heartbeat).await?,
                    idle_ms: (!is_offered(pending.idle_ms)).then_some(pending.idle_ms),
                    deliveries: pending.deliveries,
                    // Whoever may not read this is told the rest.
                    deaths: self.survey.deaths(&[id]).await.unwrap_or_default().first().copied().unwrap_or(0),
                    consumer: pending.consumer,
                }
            }
            None if delivered.is_none_or(|delivered| id > delivered) => EntryState::Undelivered,
            None => EntryState::Settled,
        };
        Ok(EntryFacts { id, wanted, state })
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
    ) -> Result<(Vec<Entry>, Searched), StreamError> {
        let mut searched = Searched { down_to: last, ..Searched::default() };
        let mut found = Vec::new();
        let (mut before, mut size) = (last, PageSize::new(PAGE));
        while *budget > 0 {
            let count = size.count(*budget);
            let page = self.survey.page_back(key, (first, before), count).await?;
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

/// What an entry wants, as far as it can be read.
#[must_use]
pub fn wanted(fields: &FieldNames, entry: &Entry) -> Wanted {
    let Glimpse { user, voucher, .. } = fields.glimpse(entry);
    let order = fields.decode(entry);
    let quantity = order.as_ref().map_or(1, |order| order.quantity.get());
    Wanted { user, voucher, quantity, error: order.err().map(|error| error.to_string()) }
}

/// Reads a dead letter.
#[must_use]
pub fn letter(fields: &FieldNames, letter: &Letter) -> LetterFacts {
    let burial = letter.burial.as_ref();
    LetterFacts {
        id: letter.id,
        entry: burial.map(|burial| burial.entry.to_string()),
        reason: burial.map(|burial| burial.reason.clone()),
        error: burial.map(|burial| burial.error.clone()),
        at_ms: burial.and_then(|burial| i64::try_from(burial.at_ms).ok()),
        requeued: letter.history.requeued,
        wanted: wanted(fields, &letter.entry()),
    }
}

/// A note of the journal, as the scripts write it.
#[derive(Deserialize)]
struct Note {
    action: String,
    change: Option<i64>,
    by: Option<String>,
    timestamp: Option<i64>,
}

fn journal(voucher: VoucherId, note: &[u8]) -> JournalFacts {
    match serde_json::from_slice::<Note>(note) {
        Ok(Note { action, change, by, timestamp }) => {
            JournalFacts { voucher, action, change, by, at_ms: timestamp }
        }
        Err(_) => JournalFacts { voucher, action: String::new(), change: None, by: None, at_ms: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_the_scripts_are_read_and_others_are_not_taken_for_admissions() {
        let voucher = VoucherId::try_from(7).unwrap();
        let admit = br#"{"action":"admit","from":5,"to":3,"change":-2,"by":"77","timestamp":1718000000000}"#;
        let read = journal(voucher, admit);
        assert!(read.is_admission() && !read.is_release());
        assert_eq!(
            (read.change, read.by.as_deref(), read.at_ms),
            (Some(-2), Some("77"), Some(1_718_000_000_000))
        );
        let release =
            br#"{"action":"release","from":null,"to":null,"change":0,"by":"worker:x","timestamp":1}"#;
        assert!(journal(voucher, release).is_release());
        let strange = journal(voucher, b"{");
        assert!(!strange.is_admission() && !strange.is_release());
    }
}
