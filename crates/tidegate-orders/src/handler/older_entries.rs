//! Finds what an event must wait for: an older entry of its order that is still pending.
//!
//! Lanes work side by side, so another lane may have an older entry in progress, or it may be set aside. This module
//! remembers pending entries by their orders, not by their payloads. It learns the entries of a batch in progress from
//! the batch; it learns others by reading a few of their fields. So a long list of entries that wait for something else
//! is read once, and not for every batch. An event waits only for an older entry of the same order. When that entry is
//! settled, the lanes of this process are woken; the lanes of other processes retry from time to time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::{Bound, Not},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use tidegate_stream::{
    Cause, Causes, Entry, EntryId, Outage, Outcome, PendingEntry, Read, StreamError, StreamInspector,
};
use tokio::time::sleep;

use crate::{
    order::OrderId,
    wire::{FieldNames, order_of_event},
};

/// The kind of cause for events that wait behind an entry of their order.
const KIND: &str = "earlier_entry";

/// How long an event waits for older entries of its order that other lanes have in progress, before it is set aside.
const OLDER_ENTRY_WAIT: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How long after a batch with events more events are expected.
const EXPECTED_FOR: Duration = Duration::from_millis(100);

const PAGE: u16 = 2_000;
/// About how many entries may be known before all pending entries are read again, to forget settled ones: some ten
/// million bytes.
const MOST_KNOWN: usize = 100_000;
/// The maximum number of older entries of an order that are checked in one go, if the entries before them were settled.
const MOST_ASKED: usize = 64;

/// The outcome of an entry that waits for an older entry of this order, in the order of the stream.
pub(super) fn waits_for_older_entries(order: OrderId) -> Outcome {
    Outcome::SetAside(earlier_of(order))
}

fn earlier_of(order: OrderId) -> Cause {
    Cause::in_order(KIND, order.get().unsigned_abs())
}

/// Finds the older pending entries of orders. All lanes of a process share it.
#[derive(Debug)]
pub(super) struct OlderPendingEntries {
    inspector: StreamInspector,
    fields: FieldNames,
    /// The causes for which the lanes of this process have set entries aside. `None` if there are no lanes.
    set_aside: Option<Arc<Causes>>,
    known: Mutex<Known>,
    /// The number of batches with events that now check whether older entries are settled.
    looking: AtomicUsize,
}

/// Counts a batch as checking, until it is dropped.
struct Looking<'a>(&'a AtomicUsize);

impl<'a> Looking<'a> {
    fn begin(looking: &'a AtomicUsize) -> Self {
        looking.fetch_add(1, SeqCst);
        Self(looking)
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A batch that is in progress, until this is dropped.
pub(super) struct InProgress<'a> {
    older_entries: &'a OlderPendingEntries,
    batch: &'a [Entry],
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let in_progress = &mut self.older_entries.known().in_progress;
        if !in_progress.is_empty() {
            for entry in self.batch {
                in_progress.remove(&entry.id);
            }
        }
    }
}

/// The known pending entries and their orders.
#[derive(Debug, Default)]
struct Known {
    /// All pending entries up to this one are known, or were settled since they were read.
    up_to: EntryId,
    /// The oldest pending entry at the last query. It only grows, unless the group was made again.
    oldest: EntryId,
    /// The time at which entries were last made pending again. Then there may be unknown pending entries among the
    /// oldest, whatever was known before.
    made_pending: Option<String>,
    /// How often `up_to` was reset, so that all pending entries are read again.
    begun: u64,
    /// If more entries than this are known, all pending entries are read again.
    limit: usize,
    orders: BTreeMap<EntryId, OrderId>,
    entries: BTreeSet<(OrderId, EntryId)>,
    /// The events that were set aside here. They do not wait in place again: this process wakes them when their older
    /// entries are settled.
    set_aside: HashSet<EntryId>,
    /// Those of the known entries that lanes of this process have read and not finished. It is only a hint: before it
    /// decides anything, Redis is asked.
    in_progress: HashSet<EntryId>,
    /// The time of the last batch with events.
    last_events: Option<Instant>,
}

/// The state of [`Known`] at the time of a query.
#[derive(Clone, Copy)]
struct Asked {
    begun: u64,
    oldest: EntryId,
}

impl Known {
    /// Takes the oldest pending entry: older entries were settled. If an older entry is pending again, the group was
    /// made again, so all pending entries are read again. Known entries stay known, because another lane may be about
    /// to use them.
    fn take_oldest(&mut self, oldest: EntryId) {
        if oldest < self.oldest {
            self.look_again();
        } else if oldest > self.oldest {
            let left = self.orders.split_off(&oldest);
            for (id, order) in std::mem::replace(&mut self.orders, left) {
                self.entries.remove(&(order, id));
            }
            self.set_aside.retain(|id| *id >= oldest);
            self.in_progress.retain(|id| *id >= oldest);
        }
        self.oldest = oldest;
    }

    /// Lets all pending entries be read again. Known entries need not be read.
    fn look_again(&mut self) {
        self.up_to = EntryId::MIN;
        self.begun += 1;
    }

    /// Whether an answer with this oldest pending entry may be older than what another lane has found since the query.
    fn is_late(&self, oldest: EntryId, asked: Asked) -> bool {
        self.begun != asked.begun || (oldest < self.oldest && self.oldest != asked.oldest)
    }

    /// Takes the time at which entries were made pending again. If it has changed, old entries that are unknown here
    /// may be pending.
    fn take_made_pending(&mut self, made_pending: Option<String>) {
        if made_pending != self.made_pending {
            self.look_again();
            self.oldest = EntryId::MIN;
            self.made_pending = made_pending;
        }
    }

    /// If too many entries are known, lets all pending entries be read again, so that settled ones are forgotten. Other
    /// processes may have settled them, and one old pending entry keeps them from being forgotten by their age.
    fn bound(&mut self) {
        if self.orders.len() > self.limit.max(MOST_KNOWN) {
            self.look_again();
            self.limit = usize::MAX;
        }
    }

    /// Of the known entries after `after` and up to `last`, keeps those that are pending or in the own batch.
    fn keep_only(
        &mut self,
        pending: &BTreeSet<EntryId>,
        own: &HashSet<EntryId>,
        (after, last): (EntryId, EntryId),
    ) {
        let range = self.orders.range((Bound::Excluded(after), Bound::Included(last)));
        let is_settled = |id: &EntryId| !pending.contains(id) && !own.contains(id);
        let settled: Vec<EntryId> = range.map(|(id, _)| *id).filter(is_settled).collect();
        for id in settled {
            self.remove(id);
        }
    }

    fn add(&mut self, id: EntryId, order: OrderId) {
        self.orders.insert(id, order);
        self.entries.insert((order, id));
    }

    fn expects_events(&self) -> bool {
        self.last_events.is_some_and(|last| last.elapsed() < EXPECTED_FOR)
    }

    fn remove(&mut self, id: EntryId) -> Option<OrderId> {
        // The order may be unknown here, because the group was made again since the entry was set aside.
        self.set_aside.remove(&id);
        self.in_progress.remove(&id);
        let order = self.orders.remove(&id)?;
        self.entries.remove(&(order, id));
        Some(order)
    }

    fn older_than(&self, order: OrderId, id: EntryId) -> impl Iterator<Item = EntryId> {
        self.entries.range((order, EntryId::MIN)..(order, id)).map(|(_, older)| *older)
    }
}

impl OlderPendingEntries {
    pub(super) fn new(inspector: StreamInspector, fields: FieldNames) -> Self {
        Self { inspector, fields, set_aside: None, known: Mutex::default(), looking: AtomicUsize::new(0) }
    }

    /// The same, for the lanes that share `set_aside`.
    pub(super) fn for_lanes(&self, set_aside: Arc<Causes>) -> Self {
        let set_aside = Some(set_aside);
        Self { set_aside, ..Self::new(self.inspector.clone(), self.fields.clone()) }
    }

    /// Reads the fields of the entry `id` that say what it is about, without the rest of the entry. If Redis does not
    /// allow that, the returned entry has no fields.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub(super) async fn peek(&self, id: EntryId) -> Result<Entry, Outage> {
        let (stream, names) = (&self.inspector.names().stream, self.fields.identifying_names());
        let read = match self.inspector.read(stream, &[id], Read::Fields(&names)).await {
            Err(StreamError::Redis(error)) if error.is_refusal() => Vec::new(),
            read => read.map_err(outage)?,
        };
        Ok(read.into_iter().flatten().next().unwrap_or(Entry { id, fields: Vec::new() }))
    }

    /// Remembers entries that a lane has just read, if events are expected. A batch with newer events then need not
    /// read them again.
    pub(super) fn received(&self, entries: &[Entry]) {
        let mut known = self.known();
        if known.expects_events() {
            self.add_in_progress(&mut known, entries);
        }
    }

    /// Notes a batch as in progress, before any query for it. If it has events, its entries are remembered. Newer
    /// events wait for them without asking Redis, until the returned value is dropped.
    pub(super) fn track_batch<'a>(&'a self, batch: &'a [Entry], has_events: bool) -> InProgress<'a> {
        if has_events {
            let mut known = self.known();
            known.last_events = Some(Instant::now());
            self.add_in_progress(&mut known, batch);
        }
        InProgress { older_entries: self, batch }
    }

    fn add_in_progress(&self, known: &mut Known, entries: &[Entry]) {
        for entry in entries {
            if self.add(known, entry) {
                known.in_progress.insert(entry.id);
            }
        }
    }

    /// The events of a tracked batch that must wait, because an older entry of their order is pending and not in this
    /// batch. `events` has the order and the entry of each event. Afterwards the caller must report the outcomes of the
    /// batch with [`OlderPendingEntries::settled`].
    ///
    /// # Errors
    /// If Redis does not answer.
    pub(super) async fn waiting(
        &self,
        batch: &[Entry],
        events: &[(OrderId, EntryId)],
    ) -> Result<HashSet<EntryId>, Outage> {
        let Some(last) = events.iter().map(|(_, id)| *id).max() else { return Ok(HashSet::new()) };
        let own: HashSet<EntryId> = batch.iter().map(|entry| entry.id).collect();
        let _looking = Looking::begin(&self.looking);
        // Repeated if all pending entries must be read again: an entry may have been made pending behind this read.
        while !self.look(batch, &own, last).await? {}
        self.wait_for_older(events, &own).await
    }

    /// Learns which entries are pending up to the last event of a batch. Returns whether all of them are known now.
    /// They are not if other lanes have learned meanwhile that all must be read again.
    async fn look(&self, batch: &[Entry], own: &HashSet<EntryId>, last: EntryId) -> Result<bool, Outage> {
        let asked = {
            let known = self.known();
            Asked { begun: known.begun, oldest: known.oldest }
        };
        let (oldest, made_pending) = tokio::try_join!(
            self.inspector.group().first_pending((EntryId::MIN, last)),
            self.inspector.group().made_pending(),
        )
        .map_err(outage)?;
        let begun = {
            let mut known = self.known();
            let oldest = oldest.unwrap_or_else(|| known.oldest.max(last));
            if known.is_late(oldest, asked) {
                return Ok(false);
            }
            known.take_made_pending(made_pending);
            known.take_oldest(oldest);
            known.bound();
            // A late answer to another lane may have removed these entries.
            self.add_in_progress(&mut known, batch);
            known.begun
        };
        let unknown = self.unknown(last, begun, own).await?;
        self.read(&unknown).await?;
        let mut known = self.known();
        let are_all_known = known.begun == begun;
        // Without lanes, the batch may hold entries that the group has not read: entries before them may become pending
        // later.
        if are_all_known && self.set_aside.is_some() {
            // The group has delivered all entries before one in progress. If the group was set back, `take_oldest`
            // notices it.
            known.up_to = known.up_to.max(last);
        }
        if are_all_known && known.limit == usize::MAX {
            known.limit = 2 * known.orders.len();
        }
        Ok(are_all_known)
    }

    /// Whether an event of this process waits for an older entry. For a batch of plain orders, this check costs next to
    /// nothing.
    pub(super) fn are_awaited(&self) -> bool {
        let Some(set_aside) = &self.set_aside else { return false };
        // An event may be in its last check, or it must wait and is not set aside yet.
        self.looking.load(SeqCst) > 0 || !self.known().set_aside.is_empty() || set_aside.has(KIND)
    }

    /// Forgets the entries of a batch that are no longer pending, if no event waits behind them. Without events, it
    /// costs nothing.
    pub(super) fn forget(&self, batch: &[Entry], outcomes: &[Outcome]) {
        let mut known = self.known();
        if !known.in_progress.is_empty() {
            for entry in settled(batch, outcomes) {
                known.remove(entry.id);
            }
        }
    }

    /// Forgets the entries of a batch that are no longer pending, and lets lanes retry the events that wait behind
    /// them.
    pub(super) fn settled(&self, batch: &[Entry], outcomes: &[Outcome]) {
        let are_awaited = self.are_awaited();
        let mut orders = BTreeSet::new();
        {
            let mut known = self.known();
            for entry in settled(batch, outcomes) {
                let order = known.remove(entry.id);
                if are_awaited {
                    // The entry may be unknown here, because its batch had no event.
                    orders.extend(order.or_else(|| self.order_of(entry)));
                }
            }
        }
        if let Some(set_aside) = self.set_aside.as_ref().filter(|_| are_awaited) {
            set_aside.wake(orders.into_iter().map(earlier_of));
        }
    }

    pub(super) fn order_of(&self, entry: &Entry) -> Option<OrderId> {
        order_of_event(entry).or_else(|| self.fields.peek(entry).id)
    }

    /// Remembers an entry with its order. Returns whether the order is known.
    fn add(&self, known: &mut Known, entry: &Entry) -> bool {
        if known.orders.contains_key(&entry.id) {
            return true;
        }
        let order = self.order_of(entry);
        if let Some(order) = order {
            known.add(entry.id, order);
        }
        order.is_some()
    }

    /// The pending entries up to `last` that are unknown. Known entries in that range that are no longer pending are
    /// forgotten, unless the entries were reset since `begun`.
    async fn unknown(
        &self,
        last: EntryId,
        begun: u64,
        own: &HashSet<EntryId>,
    ) -> Result<Vec<EntryId>, Outage> {
        let mut after = {
            let known = self.known();
            known.up_to.max(known.oldest.previous())
        };
        let mut pages = self.inspector.group().pending_pages((after, last), PAGE, None);
        let mut unknown = Vec::new();
        while let Some(page) = pages.next().await.map_err(outage)? {
            let Some(page_last) = page.last().map(|pending| pending.id) else { continue };
            let ids: BTreeSet<EntryId> = page.into_iter().map(|pending| pending.id).collect();
            let mut known = self.known();
            if known.begun == begun {
                known.keep_only(&ids, own, (after, page_last));
            }
            after = page_last;
            unknown.extend(ids.into_iter().filter(|id| !own.contains(id) && !known.orders.contains_key(id)));
        }
        Ok(unknown)
    }

    /// Reads only the orders of these entries, because the entries may be many and large.
    async fn read(&self, ids: &[EntryId]) -> Result<(), Outage> {
        let names = self.fields.naming_order();
        let mut pages = self.inspector.entries(&self.inspector.names().stream, ids, Read::Fields(&names));
        while let Some(page) = pages.next().await.map_err(outage)? {
            let mut known = self.known();
            for entry in page.iter().flatten() {
                self.add(&mut known, entry);
            }
        }
        Ok(())
    }

    /// The events whose orders have older entries that stay pending. It first waits a moment for entries that other
    /// lanes have in progress, but only once: an event that was set aside before is retried when they are done.
    async fn wait_for_older(
        &self,
        events: &[(OrderId, EntryId)],
        own: &HashSet<EntryId>,
    ) -> Result<HashSet<EntryId>, Outage> {
        let began = Instant::now();
        let mut last: BTreeMap<OrderId, EntryId> = BTreeMap::new();
        for (order, id) in events {
            let last = last.entry(*order).or_insert(*id);
            *last = (*last).max(*id);
        }
        let may_wait = || began.elapsed() <= OLDER_ENTRY_WAIT;
        let are_new = |waiting: &HashSet<EntryId>| self.known().set_aside.is_superset(waiting).not();
        loop {
            let in_progress = self.oldest_in_progress(&last, own);
            let behind_own_lanes = waiting(events, |order| in_progress.get(&order).copied());
            // While events wait for other lanes of this process, no query to Redis is needed. Redis is asked before an
            // event is set aside or let through.
            if !may_wait() || !are_new(&behind_own_lanes) {
                let older = self.oldest_pending(&last, own).await?;
                let waiting = waiting(events, |order| older.get(&order).map(|pending| pending.id));
                let is_in_progress = older.values().any(|pending| pending.deliveries > 0);
                if !is_in_progress || !are_new(&waiting) || !may_wait() {
                    self.known().set_aside.extend(&waiting);
                    return Ok(waiting);
                }
                last.retain(|order, _| older.contains_key(order));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// For each of these orders, its oldest known entry before this one and outside the batch, if another lane of this
    /// process has that entry in progress.
    fn oldest_in_progress(
        &self,
        last: &BTreeMap<OrderId, EntryId>,
        own: &HashSet<EntryId>,
    ) -> HashMap<OrderId, EntryId> {
        let oldest = self.older(last.iter().map(|(order, id)| (*order, *id)), own, 1);
        let known = self.known();
        oldest.into_iter().filter(|(_, id)| known.in_progress.contains(id)).collect()
    }

    /// For each of these orders, its oldest pending entry before this one and outside the batch. One such entry is
    /// enough: all events behind it wait, however many there are.
    async fn oldest_pending(
        &self,
        last: &BTreeMap<OrderId, EntryId>,
        own: &HashSet<EntryId>,
    ) -> Result<HashMap<OrderId, PendingEntry>, Outage> {
        let (mut found, mut most) = (HashMap::new(), 1);
        let mut open: Vec<(OrderId, EntryId)> = last.iter().map(|(order, id)| (*order, *id)).collect();
        while !open.is_empty() {
            let begun = self.known().begun;
            let asked = self.older(open.iter().copied(), own, most);
            let pending = asked.iter().map(|(_, id)| self.inspector.group().pending_entry(*id));
            let pending = try_join_all(pending).await.map_err(outage)?;
            let mut settled: HashMap<OrderId, usize> = HashMap::new();
            let mut known = self.known();
            for ((order, id), pending) in asked.into_iter().zip(pending) {
                match pending {
                    Some(pending) => {
                        if pending.deliveries == 0 {
                            known.in_progress.remove(&id);
                        }
                        found.entry(order).or_insert(pending);
                    }
                    None => {
                        // The entry may have been made pending again since the query.
                        if known.begun == begun {
                            known.remove(id);
                        }
                        *settled.entry(order).or_default() += 1;
                    }
                }
            }
            // All entries of this query are settled: there may be more entries behind them.
            open.retain(|(order, _)| !found.contains_key(order) && settled.get(order) == Some(&most));
            most = (most * 4).min(MOST_ASKED);
        }
        Ok(found)
    }

    /// Up to `most` older entries of each of these orders, oldest first.
    fn older(
        &self,
        orders: impl Iterator<Item = (OrderId, EntryId)>,
        own: &HashSet<EntryId>,
        most: usize,
    ) -> Vec<(OrderId, EntryId)> {
        let known = self.known();
        let older = orders.flat_map(|(order, last)| {
            let older = known.older_than(order, last).filter(|older| !own.contains(older));
            older.take(most).map(move |older| (order, older))
        });
        older.collect()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entries of a batch that are no longer pending, once the batch is acknowledged.
fn settled<'a>(batch: &'a [Entry], outcomes: &'a [Outcome]) -> impl Iterator<Item = &'a Entry> {
    let settled = batch.iter().zip(outcomes);
    settled.filter(|(_, outcome)| !matches!(outcome, Outcome::SetAside(_))).map(|(entry, _)| entry)
}

/// The events behind the oldest of these entries of their orders.
fn waiting(events: &[(OrderId, EntryId)], oldest: impl Fn(OrderId) -> Option<EntryId>) -> HashSet<EntryId> {
    let waits = |(order, id): &&(OrderId, EntryId)| oldest(*order).is_some_and(|oldest| oldest < *id);
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
    fn what_is_older_than_all_that_is_pending_is_forgotten_and_in_a_group_made_again_all_are_looked_for() {
        let mut known = Known { up_to: id(50), ..Known::default() };
        for (entry, of) in [(10, 1), (30, 1), (20, 2)] {
            known.add(id(entry), order(of));
            known.in_progress.insert(id(entry));
        }
        assert_eq!(known.older_than(order(1), id(30)).collect::<Vec<_>>(), [id(10)]);
        known.take_oldest(id(20));
        assert_eq!(known.older_than(order(1), id(90)).collect::<Vec<_>>(), [id(30)]);
        known.remove(id(20));
        assert_eq!((known.entries.len(), known.orders.len()), (1, 1));
        assert_eq!(known.in_progress, HashSet::from([id(30)]));
        // The group was made again.
        known.take_oldest(id(5));
        assert_eq!((known.up_to, known.oldest, known.begun), (EntryId::MIN, id(5), 1));
        // A lane that has found this entry is about to wait for it.
        assert_eq!(known.older_than(order(1), id(90)).collect::<Vec<_>>(), [id(30)]);
    }

    #[test]
    fn an_event_that_was_set_aside_is_awaited_no_more_when_it_is_settled_also_if_its_order_is_not_known() {
        let mut known = Known::default();
        known.add(id(10), order(1));
        known.set_aside.extend([id(10), id(20)]);
        assert_eq!((known.remove(id(10)), known.remove(id(20))), (Some(order(1)), None));
        assert!(known.set_aside.is_empty());
    }

    #[test]
    fn after_entries_were_made_pending_again_all_are_looked_for_again_and_what_is_known_stays_known() {
        let mut known = Known::default();
        known.take_oldest(id(10));
        known.add(id(10), order(1));
        known.add(id(60), order(2));
        known.up_to = id(50);
        known.take_made_pending(None);
        assert_eq!((known.up_to, known.begun), (id(50), 0));
        for time in ["7.1", "7.2"] {
            known.up_to = id(50);
            known.take_made_pending(Some(time.to_owned()));
            known.take_oldest(id(10));
            assert_eq!((known.up_to, known.oldest, known.entries.len()), (EntryId::MIN, id(10), 2));
        }
        assert_eq!(known.begun, 2, "a read that began before does not report that all is known");
    }

    #[test]
    fn an_answer_that_may_be_older_than_what_another_lane_has_found_is_asked_for_again() {
        let mut known = Known::default();
        known.take_oldest(id(40));
        let asked = Asked { begun: known.begun, oldest: known.oldest };
        assert!(
            !known.is_late(id(50), asked) && !known.is_late(id(10), asked),
            "nothing was learned meanwhile"
        );
        known.take_oldest(id(45));
        assert!(known.is_late(id(40), asked), "40 was settled meanwhile");
        assert!(!known.is_late(id(50), asked), "all before 50 were settled");
        known.take_made_pending(Some("7.1".to_owned()));
        known.take_oldest(id(10));
        assert!(known.is_late(id(50), asked), "10 was made pending meanwhile");
    }

    #[test]
    fn what_others_have_settled_is_forgotten_when_many_are_known() {
        let mut known = Known { up_to: id(50), ..Known::default() };
        for ms in 1..=MOST_KNOWN as u64 {
            known.add(id(ms), order(1));
        }
        known.bound();
        assert_eq!((known.up_to, known.begun), (id(50), 0));
        known.add(id(1_000_000), order(2));
        known.bound();
        assert_eq!((known.up_to, known.begun, known.orders.len()), (EntryId::MIN, 1, MOST_KNOWN + 1));
        known.keep_only(&BTreeSet::from([id(3), id(9)]), &HashSet::from([id(5)]), (EntryId::MIN, id(10)));
        assert_eq!(known.older_than(order(1), id(12)).collect::<Vec<_>>(), [3, 5, 9, 11].map(id));
        assert_eq!(known.orders.len(), MOST_KNOWN + 1 - 7);
    }

    #[test]
    fn an_event_waits_for_whatever_is_older_of_its_order_and_for_nothing_else() {
        let events = [(order(1), id(10)), (order(1), id(30)), (order(2), id(20))];
        let older = HashMap::from([(order(1), id(15)), (order(2), id(40)), (order(3), id(1))]);
        assert_eq!(waiting(&events, |order| older.get(&order).copied()), HashSet::from([id(30)]));
    }
}
