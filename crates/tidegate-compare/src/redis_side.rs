//! The state of the orders in Redis: journals, buyers, dead letters, and the entries of the stream.

use std::collections::{HashMap, HashSet};

use crate::{Pace, in_flight::VoucherIndex, table::hash_of_id};
use bytes::Bytes;
use fred::interfaces::{HashesInterface, KeysInterface, SetsInterface};
use tidegate_orders::{
    JournalField, JournalNote, RedisStore, UserId, VoucherId,
    keys::naming,
    order_status::LetterFact,
    records::journal::{COMPLETE, PURGED, Purged},
    scripts::{ScanPages, ScriptError},
    wire::Message,
};
use tidegate_stream::{Entry, EntryId, EntryPages, Letter, StreamError};

/// The number of fields, members and entries in a page.
const PAGE: u16 = 1_000;
/// The milliseconds by which an entry may be later than its note in the journal.
const ENTRY_LATER_MS: u64 = 50;
/// The name of the author in journal notes (fields of the Redis hash of orders) that a rebuild writes.
pub const BY_REBUILD: &str = "rebuild";

/// The reader of orders, dead letters and journals (Redis hashes of orders) in Redis.
#[derive(Debug)]
pub struct RedisSide<'a> {
    redis: &'a RedisStore,
}

/// The command that made a journal (the Redis hash of orders) complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedBy {
    /// The journal is not complete.
    Nobody,
    /// A load of the voucher made the journal complete. The operator knew which programs sell the voucher.
    Load,
    /// A rebuild made the journal complete, without knowing which programs sell the voucher.
    Rebuild,
}

impl CompletedBy {
    /// Reads the command from the note that makes the journal complete.
    fn of(note: &[u8]) -> Self {
        match JournalNote::parse(note) {
            Some(note) if is_of_rebuild(&note) => Self::Rebuild,
            _ => Self::Load,
        }
    }
}

fn is_of_rebuild(note: &JournalNote) -> bool {
    note.by.as_deref() == Some(BY_REBUILD)
}

/// A dead letter that holds an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadOrder {
    /// The position of the order's voucher in the `VoucherIndex` of the comparison.
    pub place: u32,
    /// The id of the order.
    pub order: i64,
    /// The user of the order.
    pub user: i64,
    /// The units of the order.
    pub quantity: i64,
    /// The fact about the order that follows from the reason of the dead letter.
    pub fact: LetterFact,
    /// The id of the stream entry that became a dead letter.
    pub entry: EntryId,
}

/// The content of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeadLetter {
    Order(DeadOrder),
    /// An event, with an entry that it had.
    Event(EntryId),
    /// An order of a voucher that is not compared.
    Elsewhere(VoucherId),
    /// An unreadable entry, with all entries that it had; the one that became a dead letter is the last.
    Unreadable(Vec<EntryId>),
}

/// An order as its entry in the stream has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entered {
    pub(crate) entry: EntryId,
    pub(crate) user: i64,
    pub(crate) quantity: i64,
}

impl<'a> RedisSide<'a> {
    /// Creates a reader of the orders in the given Redis.
    #[must_use]
    pub const fn of(redis: &'a RedisStore) -> Self {
        Self { redis }
    }

    /// Reads all fields of a journal (the Redis hash of a voucher's orders), page by page.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn read_journal(
        &self,
        voucher: VoucherId,
        pace: Pace,
        mut seen: impl FnMut(JournalField<'_>, &JournalNote),
        mut page_read: impl FnMut(u64),
    ) -> Result<(), ScriptError> {
        let mut pages = ScanPages::of_journal(self.redis, voucher);
        while let Some(fields) = pace.step(pages.next()).await? {
            for (name, note) in &fields {
                let Ok(name) = str::from_utf8(name) else { continue };
                seen(JournalField::parse(name), &JournalNote::parse(note).unwrap_or_default());
            }
            page_read(fields.len() as u64);
        }
        Ok(())
    }

    /// Reads all members of a set of buyers, page by page.
    pub(crate) async fn read_buyers(
        &self,
        voucher: VoucherId,
        pace: Pace,
        mut seen: impl FnMut(i64),
    ) -> Result<(), ScriptError> {
        let mut pages = ScanPages::of_buyers(self.redis, voucher);
        while let Some(members) = pace.step(pages.next()).await? {
            // A member that is no user id bars no user.
            members.iter().filter_map(|member| UserId::parse(member).ok()).for_each(|user| seen(user.get()));
        }
        Ok(())
    }

    /// Reads all dead letters, page by page.
    pub(crate) async fn read_dead(
        &self,
        index: &VoucherIndex,
        pace: Pace,
        mut seen: impl FnMut(DeadLetter),
    ) -> Result<(), StreamError> {
        let dead = self.redis.inspector().names().dead.clone();
        let last = self.redis.inspector().last_id(&dead).await?;
        let mut pages = self.redis.inspector().entry_pages(&dead, (EntryId::MIN, last), PAGE);
        while let Some(page) = pace.step(pages.next(u64::MAX)).await? {
            page.into_iter().flat_map(|entry| self.dead_letters(entry, index)).for_each(&mut seen);
        }
        Ok(())
    }

    fn dead_letters(&self, entry: Entry, index: &VoucherIndex) -> Vec<DeadLetter> {
        let letter = Letter::parse(entry);
        // A letter without a burial note comes from another program.
        let Some(burial) = &letter.burial else { return Vec::new() };
        let order = match self.redis.keys().fields().decode_message(&letter.entry()) {
            Ok(Message::Order(order)) => order,
            Ok(Message::Event(_)) => return letter.entries().map(DeadLetter::Event).collect(),
            Err(_) => return vec![DeadLetter::Unreadable(letter.entries().collect())],
        };
        let Some(place) = index.of(order.voucher) else { return vec![DeadLetter::Elsewhere(order.voucher)] };
        let (user, quantity) = (order.user.get(), order.quantity.get());
        let (fact, entry) = (LetterFact::of_reason(&burial.reason), burial.entry);
        vec![DeadLetter::Order(DeadOrder { place, order: order.id.get(), user, quantity, fact, entry })]
    }

    /// The id of the first entry in the stream. None: the stream is empty.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn first_entry(&self) -> Result<Option<EntryId>, StreamError> {
        let stream = &self.redis.inspector().names().stream;
        let page = self.redis.inspector().page(stream, (EntryId::MIN, EntryId::MAX), 1).await?;
        Ok(page.first().map(|entry| entry.id))
    }

    /// The entries of the stream in a range, page by page, without the first bound.
    pub(crate) fn stream_pages(&self, range: (EntryId, EntryId)) -> EntryPages {
        self.redis.inspector().entry_pages(&self.redis.inspector().names().stream, range, PAGE)
    }

    /// Reads the notes of these orders, byte for byte, together with the note about compaction.
    pub(crate) async fn notes(
        &self,
        voucher: VoucherId,
        orders: &[i64],
    ) -> Result<(Vec<Option<Bytes>>, Option<Purged>), StreamError> {
        let names = orders.iter().map(i64::to_string).chain([PURGED.to_owned()]);
        let key = self.redis.keys().journal(voucher);
        let notes = self.redis.pool().hmget(&key, names.collect::<Vec<_>>()).await;
        let mut notes: Vec<Option<Bytes>> = notes.map_err(|error| naming(&key, error))?;
        let purged = notes.pop().flatten().and_then(|note| Purged::parse(&note));
        Ok((notes, purged))
    }

    /// The fault of a voucher's stock, with limits or without; None: it is a number, or there is none.
    pub(crate) async fn wrong_stock(&self, voucher: VoucherId) -> Result<Option<String>, StreamError> {
        for key in [self.redis.keys().stock(voucher), self.redis.keys().limited(voucher)] {
            let stock: Option<String> =
                self.redis.pool().get(&key).await.map_err(|error| naming(&key, error))?;
            if let Some(text) = stock.filter(|text| text.parse::<i64>().is_err()) {
                return Ok(Some(format!("{} holds {text:?}, which is not a number", key.as_str_lossy())));
            }
        }
        Ok(None)
    }

    /// Whether each of these users is in the set of buyers.
    pub(crate) async fn are_buyers(
        &self,
        voucher: VoucherId,
        users: &[i64],
    ) -> Result<Vec<bool>, StreamError> {
        let key = self.redis.keys().buyers(voucher);
        let names: Vec<String> = users.iter().map(i64::to_string).collect();
        Ok(self.redis.pool().smismember(&key, names).await.map_err(|error| naming(&key, error))?)
    }

    /// The time since which the journal (the Redis hash of orders) contains all orders, in Unix milliseconds. 0: the
    /// journal is not known to be complete.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn complete_since(&self, voucher: VoucherId) -> Result<i64, StreamError> {
        let note = self.complete_note(voucher).await?.and_then(|note| JournalNote::parse(&note));
        Ok(note.filter(|note| !is_of_rebuild(note)).and_then(|note| note.at_ms).unwrap_or(0))
    }

    /// The command that made the voucher's journal (the Redis hash of orders) complete.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn completed_by(&self, voucher: VoucherId) -> Result<CompletedBy, StreamError> {
        let note = self.complete_note(voucher).await?;
        Ok(note.map_or(CompletedBy::Nobody, |note| CompletedBy::of(&note)))
    }

    async fn complete_note(&self, voucher: VoucherId) -> Result<Option<Bytes>, StreamError> {
        let key = self.redis.keys().journal(voucher);
        Ok(self.redis.pool().hget(&key, COMPLETE).await.map_err(|error| naming(&key, error))?)
    }

    /// Finds the entry with which this order was admitted at that time; None: the stream does not hold it. On a busy
    /// machine, the entry's id may be some milliseconds later than the journal's time.
    pub(crate) async fn entry_of(&self, order: i64, at_ms: i64) -> Result<Option<EntryId>, StreamError> {
        let Ok(ms) = u64::try_from(at_ms) else { return Ok(None) };
        let before = ms.checked_sub(1).map_or(EntryId::MIN, |ms| EntryId { ms, seq: u64::MAX });
        let last = EntryId { ms: ms.saturating_add(ENTRY_LATER_MS), seq: u64::MAX };
        let is_its =
            |entry: &&Entry| self.redis.keys().fields().decode(entry).is_ok_and(|it| it.id.get() == order);
        let mut pages = self.stream_pages((before, last));
        while let Some(page) = pages.next(u64::MAX).await? {
            if let Some(entry) = page.iter().find(is_its) {
                return Ok(Some(entry.id));
            }
        }
        Ok(None)
    }
}

/// The dead letters, which can be found by order id. If an order has several dead letters, the latest counts.
#[derive(Debug, Default)]
pub struct DeadOrders {
    orders: HashMap<(u32, i64), DeadOrder>,
    users: HashMap<u64, i64>,
    owners: HashSet<(u32, i64, i64)>,
    events: HashSet<EntryId>,
}

impl DeadOrders {
    pub(crate) fn add(&mut self, dead: DeadLetter) {
        match dead {
            DeadLetter::Order(dead) => {
                self.users.insert(hash_of_id(dead.place, dead.user), dead.order);
                self.owners.insert((dead.place, dead.order, dead.user));
                self.orders.insert((dead.place, dead.order), dead);
            }
            DeadLetter::Event(entry) => _ = self.events.insert(entry),
            DeadLetter::Elsewhere(_) | DeadLetter::Unreadable(_) => {}
        }
    }

    /// Whether the entry was an event that is a dead letter now.
    pub(crate) fn has_event(&self, entry: EntryId) -> bool {
        self.events.contains(&entry)
    }

    /// The dead letter of an order. None: the order has no dead letter.
    #[must_use]
    pub fn of(&self, place: u32, order: i64) -> Option<&DeadOrder> {
        self.orders.get(&(place, order))
    }

    /// Whether there is a dead letter of this user's order.
    pub(crate) fn has(&self, place: u32, order: i64, user: i64) -> bool {
        self.owners.contains(&(place, order, user))
    }

    /// The id of a dead order of this user.
    pub(crate) fn order_of_user(&self, place: u32, user: i64) -> Option<i64> {
        self.users.get(&hash_of_id(place, user)).copied()
    }
}
