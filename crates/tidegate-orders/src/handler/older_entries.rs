//! What an event waits for: an entry of its order that is older than it, and still pending somewhere.
//!
//! Lanes work side by side, so an older entry may be in the hands of another lane, or set aside. Pending entries are remembered
//! by their orders, not by their payloads: those of a batch in progress as it comes, others once their fields are read. So a long list
//! of entries that wait for something else is read once, not for every batch, and only an older entry of the same order is
//! waited for. When it is settled, the lanes of this process hear of it; those of other processes try again from time to time.

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

/// What events wait for behind an entry of their order.
const KIND: &str = "earlier_entry";

/// How long an event waits for older entries of its order that others have in progress, before it is set aside.
const OLDER_ENTRY_WAIT: Duration = Duration::from_millis(100);
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How long after a batch with events others are expected.
const EXPECTED_FOR: Duration = Duration::from_millis(100);

const PAGE: u16 = 2_000;
/// Entries that are known, about, before those that are settled are looked for: some ten million bytes.
const MOST_KNOWN: usize = 100_000;
/// Older entries of an order that are looked for in one go, at most, where those before them turned out to be settled.
const MOST_ASKED: usize = 64;

/// Waits for an older entry of this order, in the order of the stream.
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
    /// What the lanes of this process have set aside. None: there are no lanes.
    set_aside: Option<Arc<Causes>>,
    known: Mutex<Known>,
    /// Batches with events that look at this moment whether older entries are settled.
    looking: AtomicUsize,
}

/// One that looks, until it is dropped.
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

/// A batch in progress, until it is dropped.
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

/// Pending entries of orders.
#[derive(Debug, Default)]
struct Known {
    /// All pending entries up to here are known, or were settled since they were looked for.
    up_to: EntryId,
    /// The oldest pending entry when it was last asked for. It only grows, unless the group was made again.
    oldest: EntryId,
    /// When entries were last made pending again: there may be unknown ones among the oldest, whatever was known before.
    made_pending: Option<String>,
    /// How often `up_to` was taken back.
    begun: u64,
    /// All are looked for again where more are known.
    limit: usize,
    orders: BTreeMap<EntryId, OrderId>,
    entries: BTreeSet<(OrderId, EntryId)>,
    /// Events that were set aside here: others in this process are at work for them, and end their wait.
    set_aside: HashSet<EntryId>,
    /// Of these entries, those that lanes of this process have read and are not done with. A hint: where it decides something, Redis
    /// is asked.
    in_progress: HashSet<EntryId>,
    /// When a batch with events was last taken.
    last_events: Option<Instant>,
}

/// What was known when something was asked for.
#[derive(Clone, Copy)]
struct Asked {
    begun: u64,
    oldest: EntryId,
}

impl Known {
    /// Takes the oldest pending entry: what is older was settled. If an older one was known to be settled, the group was made again:
    /// all are looked for again, and what is known stays known, for another lane may be about to use it.
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

    /// All pending entries are looked for again. Those that are known need not be read again.
    fn look_again(&mut self) {
        self.up_to = EntryId::MIN;
        self.begun += 1;
    }

    /// Whether an answer may be older than what another lane has found since it was asked for: the oldest pending entry.
    fn is_late(&self, oldest: EntryId, asked: Asked) -> bool {
        self.begun != asked.begun || (oldest < self.oldest && self.oldest != asked.oldest)
    }

    /// Takes the time at which entries were made pending again. If that is another one, old entries that nobody knows here may be
    /// pending.
    fn take_made_pending(&mut self, made_pending: Option<String>) {
        if made_pending != self.made_pending {
            self.look_again();
            self.oldest = EntryId::MIN;
            self.made_pending = made_pending;
        }
    }

    /// Where too many are known, all are looked for again, so that what is pending no more is forgotten: others may have settled it,
    /// and an old entry that stays pending keeps it from being forgotten by its age.
    fn bound(&mut self) {
        if self.orders.len() > self.limit.max(MOST_KNOWN) {
            self.look_again();
            self.limit = usize::MAX;
        }
    }

    /// Of what is known after the one and up to the other, keeps what is pending and what is in the own batch.
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
        // Its order may be unknown here: the group was made again since it was set aside.
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

    /// The same, for the lanes that have set this aside.
    pub(super) fn for_lanes(&self, set_aside: Arc<Causes>) -> Self {
        let set_aside = Some(set_aside);
        Self { set_aside, ..Self::new(self.inspector.clone(), self.fields.clone()) }
    }

    /// What the entry `id` says of its order, without the rest of it; nothing where Redis does not let it be read.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(super) async fn peek(&self, id: EntryId) -> Result<Entry, Outage> {
        let (stream, names) = (&self.inspector.names().stream, self.fields.telling());
        let read = match self.inspector.read(stream, &[id], Read::Fields(&names)).await {
            Err(StreamError::Redis(error)) if error.is_refusal() => Vec::new(),
            read => read.map_err(outage)?,
        };
        Ok(read.into_iter().flatten().next().unwrap_or(Entry { id, fields: Vec::new() }))
    }

    /// Remembers entries that a lane has just read, if events are expected: a batch with newer events need not read them again.
    pub(super) fn received(&self, entries: &[Entry]) {
        let mut known = self.known();
        if known.expects_events() {
            self.add_in_progress(&mut known, entries);
        }
    }

    /// Takes a batch in progress, before anything is asked for it. If it has events, its entries are remembered. Newer events wait for them
    /// without asking Redis, until the answer of this call is dropped.
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

    /// Of the events of a batch that was taken, each an order and the entry that brought it, those that have to wait: an older
    /// entry of their order is pending that is not in this batch. Whoever asks says afterwards what became of the batch, by
    /// [`OlderPendingEntries::settled`].
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
        let _looking = Looking::begin(&self.looking);
        // Once more where all have to be looked for again since: an entry may have been made pending behind this look.
        while !self.look(batch, &own, last).await? {}
        self.wait_for_older(events, &own).await
    }

    /// Learns which entries are pending up to the last event of a batch. Answers whether all of them are known now: not if other lanes
    /// have learned meanwhile that it has to be looked again.
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
            // Late answers to other lanes may have made them forgotten.
            self.add_in_progress(&mut known, batch);
            known.begun
        };
        let unknown = self.unknown(last, begun, own).await?;
        self.read(&unknown).await?;
        let mut known = self.known();
        let are_all_known = known.begun == begun;
        // Without lanes, entries are run that the group has not read: those before them may become pending later.
        if are_all_known && self.set_aside.is_some() {
            // The group has handed over all entries before one that is in progress. Where it was set back, `take_oldest` finds it.
            known.up_to = known.up_to.max(last);
        }
        if are_all_known && known.limit == usize::MAX {
            known.limit = 2 * known.orders.len();
        }
        Ok(are_all_known)
    }

    /// Whether an event of this process waits for an older entry. Costs a batch of plain orders next to nothing.
    pub(super) fn are_awaited(&self) -> bool {
        let Some(set_aside) = &self.set_aside else { return false };
        // An event may look for the last time, or have been told to wait, and not be set aside yet.
        self.looking.load(SeqCst) > 0 || !self.known().set_aside.is_empty() || set_aside.has(KIND)
    }

    /// Forgets the entries of a batch that are pending no more, where nothing waits behind them. Costs nothing without events.
    pub(super) fn forget(&self, batch: &[Entry], outcomes: &[Outcome]) {
        let mut known = self.known();
        if !known.in_progress.is_empty() {
            for entry in settled(batch, outcomes) {
                known.remove(entry.id);
            }
        }
    }

    /// Forgets the entries of a batch that are pending no more, and lets lanes try what waits behind them.
    pub(super) fn settled(&self, batch: &[Entry], outcomes: &[Outcome]) {
        let are_awaited = self.are_awaited();
        let mut orders = BTreeSet::new();
        {
            let mut known = self.known();
            for entry in settled(batch, outcomes) {
                let order = known.remove(entry.id);
                if are_awaited {
                    // Nobody may know of it: its batch had no event.
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

    /// Whether the order of an entry is known from now on.
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

    /// The pending entries up to `last` of which nothing is known yet. What is known there and is pending no more is forgotten,
    /// unless all is looked for again since `begun`.
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

    /// Reads whose they are, and nothing else: they may be many, and large.
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

    /// The events whose orders have older entries that stay pending, although others are given a moment for those that they
    /// have in progress. Only once: what was set aside before is tried again when these are done.
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
            // While they wait for other lanes of this process, Redis need not be asked. It is before one is set aside or let through.
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

    /// Of each of these orders, the oldest known entry that is older than this one and not in the batch, where another lane of this
    /// process has it in progress.
    fn oldest_in_progress(
        &self,
        last: &BTreeMap<OrderId, EntryId>,
        own: &HashSet<EntryId>,
    ) -> HashMap<OrderId, EntryId> {
        let oldest = self.older(last.iter().map(|(order, id)| (*order, *id)), own, 1);
        let known = self.known();
        oldest.into_iter().filter(|(_, id)| known.in_progress.contains(id)).collect()
    }

    /// Of each of these orders, the oldest entry that is pending, older than this one, and not in the batch. A single one tells that all
    /// events behind it wait, however many there are.
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
                        // It may have been made pending again since it was asked for.
                        if known.begun == begun {
                            known.remove(id);
                        }
                        *settled.entry(order).or_default() += 1;
                    }
                }
            }
            // Others have settled all that was asked for: there may be more behind it.
            open.retain(|(order, _)| !found.contains_key(order) && settled.get(order) == Some(&most));
            most = (most * 4).min(MOST_ASKED);
        }
        Ok(found)
    }

    /// Up to `most` older entries of each of these orders, the oldest first.
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

/// The entries of a batch that are pending no more, once it is acknowledged.
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
        // Whoever has found this one is about to wait for it.
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
        assert_eq!(known.begun, 2, "whoever has begun to look before does not say that all is known");
    }

    #[test]
    fn an_answer_that_may_be_older_than_what_another_lane_has_found_is_asked_for_again() {
        let mut known = Known::default();
        known.take_oldest(id(40));
        let asked = Asked { begun: known.begun, oldest: known.oldest };
        assert!(
            !known.is_late(id(50), asked) && !known.is_late(id(10), asked),
            "nothing was heard meanwhile"
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
