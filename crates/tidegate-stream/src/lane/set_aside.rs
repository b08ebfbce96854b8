//! The entries that a lane has set aside: their ids and causes, never payloads.

mod trials;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use super::settings::{RETRY_MAX, RetryWait};
use crate::{
    backoff,
    causes::Causes,
    entry::EntryId,
    handler::{Cause, RetryOrder},
    lane_wakes::LaneWakes,
    stream::MOST_FETCHED,
};
use trials::Trials;

/// The number of entries of a cause that are tried while it is not known to be over.
const TRIAL_ENTRIES: usize = 4;

/// The number of causes of a kind that a lane keeps apart; entries with further causes wait together with others of
/// their kind.
const MOST_CAUSES: usize = 4096;

/// Entries that wait in order are mostly woken. The more causes of a kind there are, the more slowly each is tried
/// without a wake-up. For each further number of this many causes the wait grows by [`RETRY_MAX`], up to
/// [`RETRY_MAX_IN_ORDER`].
const SLOWER_BY: usize = 64;
const RETRY_MAX_IN_ORDER: Duration = Duration::from_secs(30);

/// The part of the time of the whole process that entries which are handled alone and come back may take: about 1 in
/// this many. All lanes of the process wait in that time.
const SHARE_OF_TIME_ALONE: u32 = 16;

/// The delay by which the lane that was alone last comes later after such a rest, so that other lanes come first.
const GIVE_WAY: Duration = Duration::from_millis(200);

/// The cause of entries that crashed processes: each is handled alone.
pub(crate) const KILLED_WORKER: &str = "killed_worker";

const ALONE: Cause = Cause::new(KILLED_WORKER, 0);

/// The entries that a lane has set aside, by their causes.
#[derive(Debug)]
pub(crate) struct SetAside {
    batch: usize,
    retry: RetryWait,
    causes: Arc<Causes>,
    wakes: Arc<LaneWakes>,
    waiting: BTreeMap<Cause, Waiting>,
    /// The number of different causes of each kind.
    of_kind: BTreeMap<&'static str, usize>,
    /// The trials of causes whose entries can be done in any order.
    trials: Trials,
    /// The trials of causes whose entries wait in order. There may be thousands of them, so they must not take time or
    /// room from the others.
    trials_in_order: Trials,
    /// Causes that were over when they were last tried: their other entries are handled at full speed, in turns.
    over: VecDeque<Cause>,
    entries: usize,
    tried: BTreeMap<Cause, Try>,
    /// The number of rests of the whole process that this lane had to wait for since it was last alone.
    put_off: u32,
}

#[derive(Debug)]
struct Waiting {
    /// The ids, in the order in which they are tried.
    ids: VecDeque<EntryId>,
    /// If different causes share this queue: the id at which the next try begins, or the oldest one if all ids come
    /// before it.
    next: EntryId,
    /// The time of the next trial of a few entries. None: they are being tried, or the cause was over when they were
    /// last tried.
    due: Option<Instant>,
    /// The number of consecutive failed tries.
    failures: u32,
    /// The number of entries of the next try at most.
    share: usize,
}

#[derive(Debug, Default)]
struct Try {
    /// The ids that are being tried, without those that were set aside again.
    ids: VecDeque<EntryId>,
    came_back: usize,
    /// The number of entries that were set aside for another cause.
    moved: usize,
}

/// The entries to try now, in stream order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) ids: Vec<EntryId>,
    /// Whether the entries are handled one after the other, with nothing else in progress.
    pub(crate) alone: bool,
}

impl SetAside {
    pub(crate) fn new(batch: usize, retry: RetryWait, causes: Arc<Causes>) -> Self {
        let wakes = causes.add_lane();
        Self {
            batch,
            retry,
            causes,
            wakes,
            waiting: BTreeMap::new(),
            of_kind: BTreeMap::new(),
            trials: Trials::default(),
            trials_in_order: Trials::default(),
            over: VecDeque::new(),
            entries: 0,
            tried: BTreeMap::new(),
            put_off: 0,
        }
    }

    /// Returns the number of entries that are set aside; entries that are being tried count until the try has ended.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Returns all ids of the lane, ascending.
    pub(crate) fn ids(&self) -> Vec<EntryId> {
        let mut ids: Vec<EntryId> = self.all().collect();
        ids.sort_unstable();
        ids
    }

    fn all(&self) -> impl Iterator<Item = EntryId> {
        let tried = self.tried.values().flat_map(|tried| &tried.ids);
        self.waiting.values().flat_map(|waiting| &waiting.ids).chain(tried).copied()
    }

    /// Returns those of these ids that are not set aside, ascending.
    pub(crate) fn unknown_of(&self, mut ids: Vec<EntryId>) -> Vec<EntryId> {
        if !ids.is_empty() && self.entries > 0 {
            ids.sort_unstable();
            let known: BTreeSet<EntryId> = self.all().filter(|id| ids.binary_search(id).is_ok()).collect();
            ids.retain(|id| !known.contains(id));
        }
        ids
    }

    /// Sets an entry aside, or sets it aside again.
    pub(crate) fn put(&mut self, id: EntryId, cause: Cause, now: Instant) {
        let (awaited, cause) = (cause, self.kept_under(cause));
        if let Some(before) = self.take_tried(id, cause) {
            self.causes.moved(before, cause);
        } else {
            self.entries += 1;
            self.causes.add(cause);
        }
        let is_new = !self.waiting.contains_key(&cause);
        let waiting = self.waiting.entry(cause).or_insert_with(|| Waiting {
            ids: VecDeque::new(),
            next: EntryId::MIN,
            due: None,
            failures: 1,
            share: match cause {
                Cause::UNKNOWN | Cause { first: RetryOrder::Oldest, .. } => self.batch.max(TRIAL_ENTRIES),
                _ => trial_size(cause),
            },
        });
        if waiting.ids.is_empty() {
            // Most causes have one entry: the default room for four would be most of their memory.
            waiting.ids.reserve_exact(1);
        }
        match cause.first {
            RetryOrder::LongestUntried => waiting.ids.push_back(id),
            RetryOrder::Oldest => waiting.insert(id),
        }
        self.wakes.await_cause(awaited, cause, id);
        if is_new {
            *self.of_kind.entry(cause.kind).or_default() += 1;
            self.try_later(cause, 0, now);
        }
    }

    /// Takes an entry out of its try: it is set aside for `cause`. Returns the cause for which it was being tried.
    fn take_tried(&mut self, id: EntryId, cause: Cause) -> Option<Cause> {
        // Most entries come back for the same cause, in the order in which they were taken. So this search is short.
        if let Some(tried) = self.tried.get_mut(&cause)
            && tried.take(id)
        {
            tried.came_back += 1;
            return Some(cause);
        }
        let (before, tried) =
            self.tried.iter_mut().find_map(|(cause, tried)| tried.take(id).then_some((cause, tried)))?;
        tried.moved += 1;
        Some(*before)
    }

    /// Returns whether the try of this entry is still running: it has not come back.
    pub(crate) fn is_tried(&self, id: EntryId) -> bool {
        self.tried.values().any(|tried| tried.ids.contains(&id))
    }

    /// Schedules a trial of a few entries of a cause after the wait for this number of failures.
    fn try_later(&mut self, cause: Cause, failures: u32, now: Instant) {
        let RetryWait { first, longest } = self.retry;
        let most = match cause.first {
            RetryOrder::LongestUntried => longest,
            RetryOrder::Oldest => {
                let others = u32::try_from(self.causes_of(cause.kind) / SLOWER_BY).unwrap_or(u32::MAX);
                RETRY_MAX.saturating_mul(others.saturating_add(1)).min(RETRY_MAX_IN_ORDER)
            }
        };
        self.try_at(cause, now + backoff::wait(first, most.max(first), failures));
    }

    fn try_at(&mut self, cause: Cause, due: Instant) {
        if let Some(waiting) = self.waiting.get_mut(&cause) {
            waiting.due = Some(due);
        }
        self.trials_of(cause).add(due, cause);
    }

    fn trials_of(&mut self, cause: Cause) -> &mut Trials {
        match cause.first {
            RetryOrder::LongestUntried => &mut self.trials,
            RetryOrder::Oldest => &mut self.trials_in_order,
        }
    }

    fn causes_of(&self, kind: &'static str) -> usize {
        self.of_kind.get(kind).copied().unwrap_or(0)
    }

    /// Like [`SetAside::put`], for an entry that must be handled alone.
    pub(crate) fn put_alone(&mut self, id: EntryId, now: Instant) {
        self.put(id, ALONE, now);
    }

    fn kept_under(&self, cause: Cause) -> Cause {
        if self.causes_of(cause.kind) < MOST_CAUSES || self.waiting.contains_key(&cause) {
            return cause;
        }
        cause.shared()
    }

    /// Returns the wake-up, which ends the wait of the lane when a cause is settled that its entries wait for.
    pub(crate) fn wakes(&self) -> Arc<LaneWakes> {
        Arc::clone(&self.wakes)
    }

    /// Treats woken causes as over; the next try shows whether they are. If causes share a queue, it is unknown which
    /// of them was settled. If another program ends a cause, it may begin again at once. So these are only tried as soon
    /// as possible, with no more entries than otherwise.
    fn take_woken(&mut self, now: Instant) {
        for cause in self.wakes.take() {
            let Some(waiting) = self.waiting.get_mut(&cause) else { continue };
            if let Some(due) = waiting.due.take() {
                self.trials_of(cause).remove(due, cause);
                match cause.first {
                    RetryOrder::Oldest if !cause.is_shared() => self.over.push_back(cause),
                    _ => self.try_at(cause, due.min(now)),
                }
            }
        }
    }

    /// Returns the time of the next try; None: nothing is set aside.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        self.take_woken(now);
        if !self.over.is_empty() {
            return Some(now);
        }
        self.trials.next().into_iter().chain(self.trials_in_order.next()).min()
    }

    /// Takes the entries that are due now. They count as tried until [`SetAside::end_try`] or [`SetAside::undo_try`].
    pub(crate) fn take_due(&mut self, now: Instant) -> Due {
        let mut room = self.batch.min(MOST_FETCHED);
        let all = room;
        self.put_off_alone(now);
        // A trial takes only a part of a batch, because most of its entries come back.
        let mut trial_room = (self.batch / 8).max(1);
        let mut alone = false;
        while trial_room > 0
            && let Some((due, cause)) = self.trials.first(now)
        {
            if cause == ALONE && room < all {
                break;
            }
            self.trials.remove(due, cause);
            let taken = self.take(cause, if cause == ALONE { 1 } else { trial_room });
            trial_room -= taken;
            room -= taken;
            if cause == ALONE {
                alone = true;
                room = 0;
                break;
            }
        }
        room -= self.take_in_order(room, now);
        for _ in 0..self.over.len() {
            let Some(cause) = self.over.front().copied().filter(|cause| room > 0 && *cause != ALONE) else {
                break;
            };
            self.over.pop_front();
            room -= self.take(cause, room);
        }
        if room == all && self.over.front() == Some(&ALONE) {
            self.over.pop_front();
            alone = true;
            self.take(ALONE, TRIAL_ENTRIES);
        }
        let mut ids: Vec<EntryId> = self.tried.values().flat_map(|tried| &tried.ids).copied().collect();
        ids.sort_unstable();
        Due { ids, alone }
    }

    /// Takes a few entries that wait in order and were not woken. Returns their number.
    fn take_in_order(&mut self, room: usize, now: Instant) -> usize {
        let all = room.min((self.batch / 8).max(TRIAL_ENTRIES));
        let mut left = all;
        while left > 0
            && let Some((due, cause)) = self.trials_in_order.first(now)
        {
            self.trials_in_order.remove(due, cause);
            let room_of = if cause.is_shared() { left } else { left.min(TRIAL_ENTRIES) };
            left -= self.take(cause, room_of);
        }
        all - left
    }

    /// Returns whether no entry may be handled alone yet, in the whole process.
    pub(crate) fn is_exclusive_forbidden(&self, now: Instant) -> bool {
        self.causes.no_exclusive_before(now).is_some()
    }

    fn put_off_alone(&mut self, now: Instant) {
        let Some(then) = self.causes.no_exclusive_before(now) else { return };
        let is_alone = |cause: &Cause| *cause == ALONE;
        let due = self.trials.due_of(ALONE, now);
        let over = self.over.iter().position(is_alone);
        due.map(|due| self.trials.remove(due, ALONE));
        over.map(|at| self.over.remove(at));
        if due.is_some() || over.is_some() {
            self.put_off = self.put_off.saturating_add(1);
            // The longer a lane has waited, the sooner it comes. Otherwise the same lane would come first each time.
            self.try_at(ALONE, then + GIVE_WAY / self.put_off);
        }
    }

    fn take(&mut self, cause: Cause, room: usize) -> usize {
        let Some(waiting) = self.waiting.get_mut(&cause) else { return 0 };
        waiting.due = None;
        let ids = waiting.take(waiting.share.min(room), cause);
        // For ordered causes, settling these entries wakes the lane that has the next one.
        self.wakes.set_oldest(cause, waiting.ids.front().copied());
        let count = ids.len();
        self.tried.entry(cause).or_default().ids.extend(ids);
        count
    }

    /// Ends a try, after the entries that could not be done were put back. The entries in `left` were not tried. The
    /// try took `time`; if entries were handled alone, that is the time of those that came back.
    pub(crate) fn end_try(&mut self, left: &[EntryId], time: Duration, now: Instant) {
        // Of thousands of causes in order, some fail each time. Only if most fail, a rest does not delay the others.
        let (mut in_vain, mut in_vain_in_order, mut tried_in_order) = (false, 0, 0);
        for (cause, mut tried) in std::mem::take(&mut self.tried) {
            let is_left = |id: &EntryId| left.binary_search(id).is_ok();
            let (left, done): (Vec<EntryId>, Vec<EntryId>) = tried.ids.drain(..).partition(is_left);
            self.entries -= done.len();
            self.causes.remove(cause, done.len());
            let looked_at = done.len() + tried.moved + tried.came_back;
            let was_in_vain = self.judge(cause, &left, looked_at, tried.came_back, now);
            match cause.first {
                RetryOrder::LongestUntried => in_vain |= was_in_vain,
                RetryOrder::Oldest => {
                    tried_in_order += 1;
                    in_vain_in_order += usize::from(was_in_vain);
                }
            }
            if cause == ALONE && looked_at > 0 {
                self.put_off = 0;
            }
            if cause == ALONE && tried.came_back > 0 {
                self.causes.forbid_exclusive_before(now + time * (SHARE_OF_TIME_ALONE - 1));
            }
        }
        self.trials.end_try(in_vain, time, now);
        self.trials_in_order.end_try(in_vain_in_order * 2 > tried_in_order, time, now);
    }

    /// Updates a cause after a try. Returns whether all entries that were tried came back.
    fn judge(
        &mut self,
        cause: Cause,
        left: &[EntryId],
        looked_at: usize,
        came_back: usize,
        now: Instant,
    ) -> bool {
        let Some(waiting) = self.waiting.get_mut(&cause) else { return false };
        waiting.put_back(left, cause);
        // The entries that were done, or set aside for another cause.
        let went_well = looked_at - came_back;
        let failures = waiting.failures;
        if looked_at == 0 {
            // There was no room for any of them: that says nothing about the cause.
        } else if cause.first == RetryOrder::Oldest {
            waiting.judge_in_order(looked_at, went_well, self.batch);
        } else if went_well * 2 >= looked_at {
            waiting.failures = 0;
            // All lanes wait for the entries that are handled alone.
            let most = if cause == ALONE { TRIAL_ENTRIES } else { self.batch.max(TRIAL_ENTRIES) };
            waiting.share = (waiting.share * 2).min(most);
        } else if went_well == 0 {
            waiting.failures = failures.saturating_add(1);
            waiting.share = trial_size(cause);
        } else {
            // Some entries do not wait any more, others do: keep this pace.
            waiting.failures = 1;
        }
        let is_over = waiting.failures == 0;
        self.wakes.set_oldest(cause, waiting.ids.front().copied());
        if waiting.ids.is_empty() {
            self.waiting.remove(&cause);
            self.forget_one_of(cause.kind);
        } else if is_over {
            self.over.push_back(cause);
        } else {
            let mut failures = waiting.failures.saturating_sub(1);
            if cause == ALONE {
                // Each of these entries has its own cause: only when all of them came back, all are tried more slowly.
                failures /= u32::try_from(waiting.ids.len()).unwrap_or(u32::MAX);
            }
            self.try_later(cause, failures, now);
        }
        if went_well == 0 && looked_at > 0 {
            self.causes.tried_in_vain(cause);
        }
        went_well == 0 && looked_at > 0
    }

    fn forget_one_of(&mut self, kind: &'static str) {
        if let Some(causes) = self.of_kind.get_mut(kind) {
            *causes -= 1;
            if *causes == 0 {
                self.of_kind.remove(kind);
            }
        }
    }

    /// Undoes a try during which a store failed: the outcome of its entries is unknown, except for those that have come
    /// back already.
    pub(crate) fn undo_try(&mut self, now: Instant) {
        for (cause, tried) in std::mem::take(&mut self.tried) {
            let ids = Vec::from(tried.ids);
            if let Some(waiting) = self.waiting.get_mut(&cause) {
                waiting.put_back(&ids, cause);
                if let Some(first) = ids.first() {
                    self.wakes.await_cause(cause, cause, *first);
                }
                self.try_later(cause, 0, now);
            }
        }
    }
}

impl Try {
    /// Removes an id, and returns whether it was there.
    fn take(&mut self, id: EntryId) -> bool {
        let at = self.ids.iter().position(|tried| *tried == id);
        at.and_then(|at| self.ids.remove(at)).is_some()
    }
}

impl Waiting {
    /// Updates the pace of entries that must be done in order. Those that went well came first. The others wait for
    /// another cause, and the lane that settles it wakes them. Next time about as many may go well.
    fn judge_in_order(&mut self, looked_at: usize, went_well: usize, batch: usize) {
        if went_well == looked_at {
            (self.failures, self.share) = (0, batch.max(TRIAL_ENTRIES));
        } else if went_well > 0 {
            (self.failures, self.share) = (1, (went_well * 2).max(TRIAL_ENTRIES));
        } else {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Takes ids to try. If different causes share this queue, the failed ones are skipped until all were tried.
    fn take(&mut self, most: usize, cause: Cause) -> Vec<EntryId> {
        if !cause.is_shared() {
            return self.ids.drain(..most.min(self.ids.len())).collect();
        }
        let from = self.ids.partition_point(|id| *id < self.next);
        let from = if from < self.ids.len() { from } else { 0 };
        let ids = self.ids.drain(from..(from + most).min(self.ids.len())).collect();
        self.next = self.ids.get(from).copied().unwrap_or(EntryId::MIN);
        ids
    }

    /// Inserts an id at its position in stream order.
    fn insert(&mut self, id: EntryId) {
        let at = self.ids.partition_point(|other| *other < id);
        self.ids.insert(at, id);
    }

    /// Puts ids back that were taken and not tried: they come before those that were not taken.
    fn put_back(&mut self, ids: &[EntryId], cause: Cause) {
        self.next = ids.first().map_or(self.next, |id| self.next.min(*id));
        for id in ids.iter().rev() {
            match cause.first {
                RetryOrder::LongestUntried => self.ids.push_front(*id),
                RetryOrder::Oldest => self.insert(*id),
            }
        }
    }
}

/// Returns the number of entries of a cause that are tried while it is not known to be over.
fn trial_size(cause: Cause) -> usize {
    if cause == ALONE { 1 } else { TRIAL_ENTRIES }
}

#[cfg(test)]
mod tests;
