//! What an event waits for: an entry of its order that is older than it, and still pending somewhere.
//!
//! Lanes work side by side, so an older entry may be in the hands of another lane, or set aside. Pending entries are remembered
//! by their orders, not by their payloads: those of a batch in hand as it comes, others once they are read. So a long list of
//! entries that wait for something else is read once, not for every batch, and only an older entry of the same order is
//! waited for.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use tidegate_stream::{Entry, EntryId, Outage, Outcome, PendingEntry, StreamError, StreamInspector};
use tokio::time::sleep;

use crate::{
    order::OrderId,
    wire::{FieldNames, order_of_event},
};

/// How long an event waits for older entries of its order that others have in hand, before it is set aside.
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
    known: Mutex<Known>,
}

/// Pending entries of orders.
#[derive(Debug, Default)]
struct Known {
    /// All pending entries up to here are known, or were settled since they were looked for.
    up_to: EntryId,
    /// The oldest pending entry when it was last asked for. It only grows, unless the group was made again.
    oldest: EntryId,
    /// How often it was begun anew.
    begun: u64,
    orders: BTreeMap<EntryId, OrderId>,
    entries: BTreeSet<(OrderId, EntryId)>,
}

impl Known {
    /// Takes the oldest pending entry: what is older was settled.
    fn take_oldest(&mut self, oldest: EntryId) {
        if oldest < self.oldest {
            let (up_to, begun) = (EntryId::MIN, self.begun + 1);
            *self = Self { up_to, begun, orders: BTreeMap::new(), entries: BTreeSet::new(), oldest };
        } else if oldest > self.oldest {
            let left = self.orders.split_off(&oldest);
            for (id, order) in std::mem::replace(&mut self.orders, left) {
                self.entries.remove(&(order, id));
            }
        }
        self.oldest = oldest;
    }

    fn add(&mut self, id: EntryId, order: OrderId) {
        self.orders.insert(id, order);
        self.entries.insert((order, id));
    }

    fn remove(&mut self, id: EntryId) {
        if let Some(order) = self.orders.remove(&id) {
            self.entries.remove(&(order, id));
        }
    }

    fn older_than(&self, order: OrderId, id: EntryId) -> impl Iterator<Item = EntryId> {
        self.entries.range((order, EntryId::MIN)..(order, id)).map(|(_, older)| *older)
    }
}

impl EarlierEntries {
    pub(super) fn new(inspector: StreamInspector, fields: FieldNames) -> Self {
        Self { inspector, fields, known: Mutex::default() }
    }

    /// Key of the stream.
    pub(super) fn stream(&self) -> &str {
        &self.inspector.names().stream
    }

    /// Of the events of a batch in hand, each an order and the entry that brought it, those that have to wait: an older entry
    /// of their order is pending that is not in this batch. Whoever asks says afterwards what became of the batch, by
    /// [`EarlierEntries::settled`].
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) async fn waiting(
        &self,
        batch: &[Entry],
        events: &[(OrderId, EntryId)],
    ) -> Result<HashSet<EntryId>, Outage> {
        let Some(last) = events.iter().map(|(_, id)| *id).max() else { return Ok(HashSet::new()) };
        let own: HashSet<EntryId> = batch.iter().map(|entry| entry.id).collect();
        let first = own.iter().min().copied().unwrap_or(last);
        let oldest = self.inspector.first_pending((EntryId::MIN, last)).await.map_err(outage)?;
        let begun = {
            let mut known = self.known();
            known.take_oldest(oldest.unwrap_or(last));
            self.add(&mut known, batch);
            known.begun
        };
        let unknown = self.unknown(last, &own).await?;
        self.read(&unknown).await?;
        {
            let mut known = self.known();
            if known.begun == begun {
                // Entries of others may stand between those of this batch: they are looked for again.
                known.up_to = known.up_to.max(first.previous());
            }
        }
        self.wait_for_older(events, &own).await
    }

    /// Forgets the entries of a batch that are pending no more.
    pub(super) fn settled(&self, batch: &[Entry], outcomes: &[Outcome]) {
        let mut known = self.known();
        for (entry, outcome) in batch.iter().zip(outcomes) {
            if !matches!(outcome, Outcome::SetAside(_)) {
                known.remove(entry.id);
            }
        }
    }

    fn add<'a>(&self, known: &mut Known, entries: impl IntoIterator<Item = &'a Entry>) {
        for entry in entries {
            if let Some(order) = order_of_event(entry).or_else(|| self.fields.glimpse(entry).id) {
                known.add(entry.id, order);
            }
        }
    }

    /// The pending entries up to `last` of which nothing is known yet.
    async fn unknown(&self, last: EntryId, own: &HashSet<EntryId>) -> Result<Vec<EntryId>, Outage> {
        let after = {
            let known = self.known();
            known.up_to.max(known.oldest.previous())
        };
        let (mut unknown, mut pages) = (Vec::new(), self.inspector.pending_pages((after, last), PAGE, None));
        while let Some(page) = pages.next().await.map_err(outage)? {
            let known = self.known();
            let ids = page.into_iter().map(|pending| pending.id);
            unknown.extend(ids.filter(|id| !own.contains(id) && !known.orders.contains_key(id)));
        }
        Ok(unknown)
    }

    async fn read(&self, ids: &[EntryId]) -> Result<(), Outage> {
        let stream = &self.inspector.names().stream;
        for ids in ids.chunks(READ) {
            let entries = self.inspector.entries(stream, ids).await.map_err(outage)?;
            self.add(&mut self.known(), entries.iter().flatten());
        }
        Ok(())
    }

    /// The events whose orders have older entries that stay pending, although others are given a moment for those that they
    /// have in hand.
    async fn wait_for_older(
        &self,
        events: &[(OrderId, EntryId)],
        own: &HashSet<EntryId>,
    ) -> Result<HashSet<EntryId>, Outage> {
        let began = Instant::now();
        loop {
            let older = self.older(events, own);
            if older.is_empty() {
                return Ok(HashSet::new());
            }
            let pending = self.still_pending(&older).await?;
            let in_hand = pending.iter().any(|pending| pending.deliveries > 0);
            if pending.is_empty() || !in_hand || began.elapsed() > MOMENT {
                let pending: HashSet<EntryId> = pending.into_iter().map(|pending| pending.id).collect();
                return Ok(waiting(events, older.into_iter().filter(|(_, id)| pending.contains(id))));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn older(&self, events: &[(OrderId, EntryId)], own: &HashSet<EntryId>) -> BTreeSet<(OrderId, EntryId)> {
        let known = self.known();
        let older =
            events.iter().flat_map(|(order, id)| known.older_than(*order, *id).map(|older| (*order, older)));
        older.filter(|(_, older)| !own.contains(older)).collect()
    }

    /// Forgets those that were settled since they were looked for, and answers with the others.
    async fn still_pending(
        &self,
        entries: &BTreeSet<(OrderId, EntryId)>,
    ) -> Result<Vec<PendingEntry>, Outage> {
        let pending = entries.iter().map(|(_, id)| self.inspector.pending_entry(*id));
        let pending = try_join_all(pending).await.map_err(outage)?;
        let mut known = self.known();
        for ((_, id), pending) in entries.iter().zip(&pending) {
            if pending.is_none() {
                known.remove(*id);
            }
        }
        Ok(pending.into_iter().flatten().collect())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events behind any of these entries of their orders.
fn waiting(
    events: &[(OrderId, EntryId)],
    pending: impl Iterator<Item = (OrderId, EntryId)>,
) -> HashSet<EntryId> {
    let mut oldest: HashMap<OrderId, EntryId> = HashMap::new();
    for (order, id) in pending {
        let oldest = oldest.entry(order).or_insert(id);
        *oldest = id.min(*oldest);
    }
    let waits = |(order, id): &&(OrderId, EntryId)| oldest.get(order).is_some_and(|oldest| oldest < id);
    events.iter().filter(waits).map(|(_, id)| *id).collect()
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
        let mut known = Known { up_to: id(50), ..Known::default() };
        for (entry, of) in [(10, 1), (30, 1), (20, 2)] {
            known.add(id(entry), order(of));
        }
        assert_eq!(known.older_than(order(1), id(30)).collect::<Vec<_>>(), [id(10)]);
        known.take_oldest(id(20));
        assert_eq!(known.older_than(order(1), id(90)).collect::<Vec<_>>(), [id(30)]);
        known.remove(id(20));
        assert_eq!((known.entries.len(), known.orders.len()), (1, 1));
        known.take_oldest(id(5));
        assert_eq!((known.up_to, known.entries.len(), known.orders.len()), (EntryId::MIN, 0, 0));
    }

    #[test]
    fn an_event_waits_for_whatever_is_older_of_its_order_and_for_nothing_else() {
        let events = [(order(1), id(10)), (order(1), id(30)), (order(2), id(20))];
        let pending = [(order(1), id(25)), (order(1), id(15)), (order(2), id(40)), (order(3), id(1))];
        assert_eq!(waiting(&events, pending.into_iter()), HashSet::from([id(30)]));
    }
}
