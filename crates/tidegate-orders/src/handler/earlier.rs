//! What an event waits for: an entry of its order that is older than it, and still pending somewhere.
//!
//! Lanes work side by side, so an older entry may be in the hands of another lane, or set aside. Those in hand are most often
//! done in a moment. Whatever stays is remembered by its order, not by its payload, so that a long list of entries that wait
//! for something else is read once, not for every batch.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use tidegate_stream::{EntryId, Outage, PendingEntry, StreamError, StreamInspector};
use tokio::time::sleep;

use crate::{
    order::OrderId,
    wire::{FieldNames, order_of_event},
};

/// How long a batch with events waits for older batches that others have in hand.
const MOMENT: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(3);

const PAGE: u16 = 2_000;
/// Entries that are read in one go.
const READ: usize = 500;

/// Finds the older pending entries of orders. All lanes of a process share it.
#[derive(Debug)]
pub(super) struct EarlierEntries {
    inspector: StreamInspector,
    fields: FieldNames,
    found: Mutex<Found>,
}

/// Pending entries of orders.
#[derive(Debug, Default)]
struct Found {
    /// All pending entries up to here are in `entries`, or were settled since they were looked for.
    up_to: EntryId,
    /// The oldest pending entry when it was last asked for. It only grows, unless the group was made again.
    oldest: EntryId,
    /// How often it was begun anew.
    begun: u64,
    entries: BTreeSet<(OrderId, EntryId)>,
}

impl Found {
    /// Takes the oldest pending entry: what is older was settled.
    fn take_oldest(&mut self, oldest: EntryId) {
        if oldest < self.oldest {
            *self = Self { begun: self.begun + 1, ..Self::default() };
        } else if oldest > self.oldest {
            self.entries.retain(|(_, id)| *id >= oldest);
        }
        self.oldest = oldest;
    }

    fn older_than(&self, order: OrderId, id: EntryId) -> impl Iterator<Item = EntryId> {
        self.entries.range((order, EntryId::MIN)..(order, id)).map(|(_, older)| *older)
    }
}

impl EarlierEntries {
    pub(super) fn new(inspector: StreamInspector, fields: FieldNames) -> Self {
        Self { inspector, fields, found: Mutex::default() }
    }

    /// Of these events, each an order and the entry that brought it, those that have to wait: an older entry of their order
    /// is pending that is none of `own`, the batch in hand.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) async fn waiting(
        &self,
        events: &[(OrderId, EntryId)],
        own: &HashSet<EntryId>,
    ) -> Result<HashSet<EntryId>, Outage> {
        let Some(last) = events.iter().map(|(_, id)| *id).max() else { return Ok(HashSet::new()) };
        let first = own.iter().min().copied().unwrap_or(last);
        let oldest = self.inspector.first_pending((EntryId::MIN, last)).await.map_err(outage)?;
        let begun = {
            let mut found = self.found();
            found.take_oldest(oldest.unwrap_or(last));
            found.begun
        };
        // Those between the batch's own entries may be older than some of its events.
        let others = self.others_in_a_moment(last, own).await?;
        self.remember(&others).await?;
        {
            let mut found = self.found();
            if found.begun == begun {
                found.up_to = found.up_to.max(first.previous());
            }
        }
        self.still_pending(events, own).await
    }

    /// The pending entries up to `last` that are not known yet, and that stay although others are given a moment for those
    /// they have in hand.
    async fn others_in_a_moment(
        &self,
        last: EntryId,
        own: &HashSet<EntryId>,
    ) -> Result<Vec<EntryId>, Outage> {
        let began = Instant::now();
        loop {
            let others = self.others(last, own).await?;
            let in_hand = others.iter().any(|pending| pending.deliveries > 0);
            if !in_hand || began.elapsed() > MOMENT {
                return Ok(others.into_iter().map(|pending| pending.id).collect());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn others(&self, last: EntryId, own: &HashSet<EntryId>) -> Result<Vec<PendingEntry>, Outage> {
        let mut after = {
            let found = self.found();
            found.up_to.max(found.oldest.previous())
        };
        let mut others = Vec::new();
        loop {
            let page = self.inspector.pending_entries((after, last), PAGE, None).await.map_err(outage)?;
            let Some(end) = page.last() else { return Ok(others) };
            after = end.id;
            let is_whole = page.len() < usize::from(PAGE);
            others.extend(page.into_iter().filter(|pending| !own.contains(&pending.id)));
            if is_whole {
                return Ok(others);
            }
        }
    }

    async fn remember(&self, ids: &[EntryId]) -> Result<(), Outage> {
        let stream = &self.inspector.names().stream;
        for ids in ids.chunks(READ) {
            let entries = self.inspector.entries(stream, ids).await.map_err(outage)?;
            let mut found = self.found();
            for entry in entries.iter().flatten() {
                let order = order_of_event(entry).or_else(|| self.fields.glimpse(entry).id);
                found.entries.extend(order.map(|order| (order, entry.id)));
            }
        }
        Ok(())
    }

    /// What was pending when it was looked for may be settled by now.
    async fn still_pending(
        &self,
        events: &[(OrderId, EntryId)],
        own: &HashSet<EntryId>,
    ) -> Result<HashSet<EntryId>, Outage> {
        let suspects: Vec<(OrderId, EntryId)> = {
            let found = self.found();
            let older = events
                .iter()
                .flat_map(|(order, id)| found.older_than(*order, *id).map(|older| (*order, older)));
            let older: BTreeSet<_> = older.filter(|(_, older)| !own.contains(older)).collect();
            older.into_iter().collect()
        };
        let pending = suspects.iter().map(|(_, id)| self.inspector.pending_entry(*id));
        let pending = try_join_all(pending).await.map_err(outage)?;
        let mut found = self.found();
        let mut oldest: HashMap<OrderId, EntryId> = HashMap::new();
        for ((order, id), pending) in suspects.into_iter().zip(pending) {
            if pending.is_some() {
                oldest.entry(order).or_insert(id);
            } else {
                found.entries.remove(&(order, id));
            }
        }
        let waits = |(order, id): &&(OrderId, EntryId)| oldest.get(order).is_some_and(|oldest| oldest < id);
        Ok(events.iter().filter(waits).map(|(_, id)| *id).collect())
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn outage(error: StreamError) -> Outage {
    Outage::new("Redis", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    fn order(id: i64) -> OrderId {
        id.try_into().unwrap()
    }

    #[test]
    fn what_is_older_than_all_that_is_pending_is_forgotten_and_a_group_made_again_begins_anew() {
        let mut found = Found { up_to: id(50), ..Found::default() };
        found.entries.extend([(order(1), id(10)), (order(1), id(30)), (order(2), id(20))]);
        assert_eq!(found.older_than(order(1), id(30)).collect::<Vec<_>>(), [id(10)]);
        found.take_oldest(id(20));
        assert_eq!(found.older_than(order(1), id(90)).collect::<Vec<_>>(), [id(30)]);
        assert_eq!(found.entries.len(), 2);
        found.take_oldest(id(5));
        assert_eq!((found.up_to, found.entries.len()), (EntryId::MIN, 0));
    }
}
