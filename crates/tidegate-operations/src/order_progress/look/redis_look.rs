//! Reads what Redis holds of orders that MySQL does not know: the journal's note, the entry, the dead letter.
//!
//! Streams are read forwards from the place where the last read ended, and all orders of a read share the entries.

use std::collections::HashMap;

use futures_util::future::try_join_all;
use tidegate_orders::{
    OrderId, VoucherId,
    records::{DeadLetterRecord, EntryContent},
    wire::EVENT,
};
use tidegate_stream::{Backlog, Entry, EntryId, Letter, StreamError};

use super::{VOUCHERS, WatchedOrder};
use crate::{
    order_progress::{QueueEstimate, report::Found},
    order_show::{EntryLocation, EntryRecord, JournalRecord, RedisOrders},
};

/// The entries of a stream that one read covers at most.
const ENTRIES: u64 = 500;
/// The entries of a page.
const PAGE: u16 = 500;
/// The age of the oldest dead letters that are searched for an order if only its id is known, in
/// milliseconds.
const LETTERS_SINCE_MS: u64 = 15 * 60 * 1_000;

/// A watched order, and what was found of it.
pub(super) type Open<'a> = (&'a mut WatchedOrder, &'a mut Found);

/// A read of Redis for several orders.
#[derive(Debug)]
pub(super) struct RedisLook<'a> {
    pub redis: &'a RedisOrders<'a>,
    pub backlog: &'a Backlog,
    /// The vouchers with the highest ids, whose journals (the Redis hashes of admitted orders) are searched. If the
    /// list has one voucher more than a search covers, vouchers were left out.
    pub on_sale: &'a [VoucherId],
    pub read_per_s: Option<f64>,
    pub is_paused: bool,
}

impl RedisLook<'_> {
    /// Searches Redis for the stream entries of these orders, and for their notes in the journals (Redis hashes of
    /// admitted orders).
    pub async fn follow(&self, open: &mut [Open<'_>]) -> Result<(), StreamError> {
        try_join_all(open.iter_mut().map(|(watched, found)| self.read_journal(watched, found))).await?;
        self.search_undelivered(open).await?;
        try_join_all(open.iter_mut().map(|(watched, found)| self.read_entry(watched, found))).await?;
        self.search_letters(open).await?;
        for (watched, found) in open {
            found.is_cut_off |= [watched.stream, watched.dead].into_iter().flatten().any(|(_, all)| !all);
            found.records.letters.extend(watched.letter.clone());
            found.estimate = found
                .records
                .open_entry()
                .and_then(|entry| QueueEstimate::of(entry, self.backlog, self.read_per_s, self.is_paused));
        }
        Ok(())
    }

    /// Reads the note of the journal, and the entry that was added together with it.
    async fn read_journal(&self, watched: &mut WatchedOrder, found: &mut Found) -> Result<(), StreamError> {
        let vouchers = match &watched.voucher {
            Some(voucher) => std::slice::from_ref(voucher),
            None => &self.on_sale[..self.on_sale.len().min(VOUCHERS)],
        };
        found.records.journal = self.redis.journals(vouchers, watched.order).await?;
        match found.records.journal.first() {
            Some(note) => watched.voucher = Some(note.voucher),
            None => found.is_cut_off = watched.voucher.is_none() && self.on_sale.len() > VOUCHERS,
        }
        let Some(admitted) = admitted_at(&found.records.journal) else { return Ok(()) };
        if watched.entry.is_none() && !watched.is_searched_beside_journal {
            watched.is_searched_beside_journal = true;
            // The script read the clock shortly before it added the entry.
            let beside = (before(admitted.ms), EntryId { ms: admitted.ms + 1, seq: u64::MAX });
            let mut places = self.places(&[watched.order]);
            let stream = &self.redis.store.inspector().names().stream;
            self.scan(stream, beside, |entry| {
                if self.take(&mut places, entry).is_some() {
                    watched.entry =
                        Some((entry.id, EntryContent::of(self.redis.store.keys().fields(), entry)));
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Searches the undelivered entries for orders whose entry no journal gives.
    async fn search_undelivered(&self, open: &mut [Open<'_>]) -> Result<(), StreamError> {
        let mut sought: Vec<&mut WatchedOrder> = open
            .iter_mut()
            .map(|(watched, _)| &mut **watched)
            .filter(|watched| watched.entry.is_none())
            .collect();
        let begin = |watched: &WatchedOrder| {
            watched.stream.map_or(self.backlog.last_delivered, |(searched, _)| searched)
        };
        let Some(first) = sought.iter().map(|watched| begin(watched)).min() else { return Ok(()) };
        let mut places = self.places(&sought.iter().map(|watched| watched.order).collect::<Vec<_>>());
        let stream = &self.redis.store.inspector().names().stream;
        let (until, is_all) = self
            .scan(stream, (first, EntryId::MAX), |entry| {
                for at in self.take(&mut places, entry).into_iter().flatten() {
                    sought[at].entry =
                        Some((entry.id, EntryContent::of(self.redis.store.keys().fields(), entry)));
                }
            })
            .await?;
        for watched in sought {
            watched.stream = Some((begin(watched).max(until), is_all));
        }
        Ok(())
    }

    /// Reads the state of the order's entry.
    async fn read_entry(&self, watched: &WatchedOrder, found: &mut Found) -> Result<(), StreamError> {
        let unread = |id, content| EntryRecord { id, content, state: EntryLocation::Undelivered };
        let record = match &watched.entry {
            Some((id, _)) if self.backlog.is_delivered(*id) => self.redis.entry(*id).await?,
            Some((id, content)) => Some(unread(*id, Some(content.clone()))),
            // The order was admitted after the last delivered entry, so its entry is undelivered, too.
            None => admitted_at(&found.records.journal)
                .filter(|id| !self.backlog.is_delivered(*id))
                .map(|id| unread(id, None)),
        };
        found.records.entries.extend(record);
        Ok(())
    }

    /// Searches the dead letters for orders that no worker will handle, because they may have been buried.
    async fn search_letters(&self, open: &mut [Open<'_>]) -> Result<(), StreamError> {
        let mut sought: Vec<(&mut WatchedOrder, EntryId)> = Vec::new();
        for (watched, found) in open.iter_mut() {
            if found.records.open_entry().is_none() && watched.letter.is_none() {
                // A letter always has a later id than its entry.
                let added = watched.entry.as_ref().map(|(id, _)| *id);
                let added = added.or(admitted_at(&found.records.journal)).map(|id| before(id.ms));
                let long_ago = before(self.backlog.now_ms.saturating_sub(LETTERS_SINCE_MS));
                let searched = watched.dead.map(|(searched, _)| searched);
                let first = searched.or(added).unwrap_or(long_ago);
                sought.push((watched, first));
            }
        }
        let Some(first) = sought.iter().map(|(_, first)| *first).min() else { return Ok(()) };
        let orders: Vec<OrderId> = sought.iter().map(|(watched, _)| watched.order).collect();
        let (mut places, fields) = (self.places(&orders), self.redis.store.keys().fields());
        let dead = &self.redis.store.inspector().names().dead;
        let (until, is_all) = self
            .scan(dead, (first, EntryId::MAX), |entry| {
                let read = Letter::parse(entry.clone());
                for at in self.take(&mut places, &read.entry()).into_iter().flatten() {
                    sought[at].0.letter = Some(DeadLetterRecord::of(fields, &read));
                }
            })
            .await?;
        for (watched, first) in sought {
            watched.dead = Some((first.max(until), is_all));
        }
        Ok(())
    }

    /// Maps the text of each order id to its positions in the list.
    fn places(&self, orders: &[OrderId]) -> HashMap<Vec<u8>, Vec<usize>> {
        let mut places: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for (at, order) in orders.iter().enumerate() {
            places.entry(order.to_string().into_bytes()).or_default().push(at);
        }
        places
    }

    /// Returns the positions of the orders that this entry holds, and removes them from the search.
    fn take(&self, places: &mut HashMap<Vec<u8>, Vec<usize>>, entry: &Entry) -> Option<Vec<usize>> {
        // An event is about an order, but does not hold one.
        let is_event = entry.fields.iter().any(|(name, _)| name == EVENT);
        let id = self.redis.store.keys().fields().id_text(entry).filter(|_| !is_event)?;
        places.remove(id)
    }

    /// Passes the entries after `first` to `see`, up to the number that a read covers. It returns the last id that was
    /// read, and whether the search reached the end.
    async fn scan(
        &self,
        key: &str,
        range: (EntryId, EntryId),
        mut see: impl FnMut(&Entry),
    ) -> Result<(EntryId, bool), StreamError> {
        let mut pages = self.redis.store.inspector().entry_pages(key, range, PAGE);
        let mut left = ENTRIES;
        while left > 0 {
            let Some(page) = pages.next(left).await? else { return Ok((pages.after(), true)) };
            left -= (page.len() as u64).min(left);
            page.iter().for_each(&mut see);
        }
        Ok((pages.after(), false))
    }
}

/// Returns the time of the admission as an id of the stream.
fn admitted_at(journal: &[JournalRecord]) -> Option<EntryId> {
    let note = journal.iter().find(|note| note.is_admission())?;
    Some(EntryId { ms: u64::try_from(note.at_ms?).ok()?, seq: 0 })
}

/// Returns the last id before this millisecond.
fn before(ms: u64) -> EntryId {
    ms.checked_sub(1).map_or(EntryId::MIN, |ms| EntryId { ms, seq: u64::MAX })
}
