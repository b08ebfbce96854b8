//! The state of a lane: the ids that it found, the entries that it has set aside, and the source that it reads next.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    schedule::{Load, Schedule, Source},
    set_aside::SetAside,
};
use crate::{
    causes::Causes,
    entry::{Claimed, Delivery, EntryId},
    exclusive::SharedGuard,
    lane::LaneSettings,
    observer::Origin,
    stream::MOST_FETCHED,
};

/// The state of a lane. After an error the lane may forget all of it, except the entries that are set aside; a
/// restarted process finds those again, too.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) schedule: Schedule,
    pub(crate) set_aside: SetAside,
    /// While the lane holds this guard, it may have entries in progress.
    pub(crate) shared: Option<SharedGuard>,
    /// The ids of its own pending entries that it must handle.
    found: VecDeque<EntryId>,
    found_by: FoundBy,
    /// The ids of the last claim, until crashes are counted for those that other consumers had in progress. An error
    /// does not change which consumers had them.
    claimed: Vec<EntryId>,
    /// The ids that were set aside when the walk through the own pending list began, ascending.
    known: Vec<EntryId>,
    /// Whether the first walk through the own pending list is not over. It counts crashes of the entries that the
    /// process before had in progress. No entry is handed over before its end, so no entry of this process is counted
    /// for the process before.
    counts_crashes: bool,
    /// Whether the last batch of new entries was full.
    pub(crate) has_more: bool,
    /// The batch that was read ahead for the next turn.
    ahead: Option<ReadAhead>,
}

/// The way in which ids were found.
#[derive(Debug, PartialEq, Eq)]
enum FoundBy {
    Walk,
    Claim,
    /// The ids came with a read of new entries, and its batch had no room for them.
    Read,
}

/// New entries that were read while the batch before them was settled. The next turn handles them.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    pub(super) source: Source,
    pub(super) delivery: Delivery,
    /// The time at which the read began: Redis handed over none of the entries before.
    pub(super) begun: Instant,
    /// The time at which the read ended.
    pub(super) came: Instant,
}

/// New entries that were read and not handled yet, at the beginning of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unhandled {
    Nothing,
    /// The lane has ids of entries for which the batch before had no room; no process has them in progress.
    OutOfHand,
    /// The lane has a batch that was read ahead; Redis handed over none of it before `since`.
    InProgress {
        since: Instant,
    },
}

impl Unhandled {
    pub(crate) fn read_since(self) -> Option<Instant> {
        if let Self::InProgress { since } = self { Some(since) } else { None }
    }
}

impl LaneState {
    pub(crate) fn new(settings: &LaneSettings, causes: Arc<Causes>, shared: Option<SharedGuard>) -> Self {
        Self {
            schedule: Schedule::new(settings, Instant::now()),
            set_aside: SetAside::new(settings.batch, settings.retry, causes),
            shared,
            found: VecDeque::new(),
            found_by: FoundBy::Walk,
            claimed: Vec::new(),
            known: Vec::new(),
            counts_crashes: true,
            has_more: false,
            ahead: None,
        }
    }

    pub(crate) fn next(&mut self, now: Instant, is_full: bool) -> Source {
        let load = self.load(now, is_full);
        self.schedule.next(now, load)
    }

    /// Like [`LaneState::next`], if the next source is new entries. None: it is another source, and nothing has
    /// changed.
    pub(crate) fn next_if_new(&mut self, now: Instant, is_full: bool) -> Option<Source> {
        let (load, mut schedule) = (self.load(now, is_full), self.schedule.clone());
        let source = schedule.next(now, load);
        matches!(source, Source::New { .. }).then(|| {
            self.schedule = schedule;
            source
        })
    }

    fn load(&mut self, now: Instant, is_full: bool) -> Load {
        let due = self.set_aside.next_due(now);
        Load { found: self.found.len(), due, is_full }
    }

    /// Starts over, because a store failed or the lane reconnected: entries in progress that are not settled are found
    /// again.
    pub(crate) fn start_over(&mut self) {
        self.ahead = None;
        self.found.clear();
        self.known.clear();
        // A single read shows whether reads work again.
        self.has_more = false;
        self.set_aside.undo_try(Instant::now());
        self.schedule.start_over();
    }

    /// Returns whether the pages of the own pending list are read to count crashes.
    pub(crate) fn counts_crashes(&self) -> bool {
        self.counts_crashes
    }

    /// Notes that the crashes of a page were counted, which ended with `last`. After all pages the list is read again.
    pub(crate) fn crashes_counted(&mut self, last: Option<EntryId>) {
        self.schedule.listed(last);
        if last.is_none() {
            self.counts_crashes = false;
            self.schedule.start_over();
        }
    }

    /// Adds a page of the own pending list, without the entries that are set aside.
    pub(crate) fn listed(&mut self, page: &[EntryId]) {
        if self.known.is_empty() && self.set_aside.len() > 0 {
            self.known = self.set_aside.ids();
        }
        self.found_by = FoundBy::Walk;
        self.found.extend(page.iter().filter(|id| self.known.binary_search(id).is_err()));
        self.schedule.listed(page.last().copied());
        if page.is_empty() {
            self.known = Vec::new();
        }
    }

    /// Adds new entries for which the batch of their read had no room.
    pub(crate) fn found_leftover(&mut self, ids: Vec<EntryId>) {
        if !ids.is_empty() {
            self.found_by = FoundBy::Read;
            self.found.extend(ids);
        }
    }

    /// Returns whether some of these entries are left.
    fn has_leftover(&self) -> bool {
        self.found_by == FoundBy::Read && !self.found.is_empty()
    }

    /// Keeps a batch that was read ahead for the next turn.
    pub(crate) fn put_ahead(&mut self, ahead: Option<ReadAhead>) {
        self.ahead = ahead;
    }

    pub(crate) fn take_ahead(&mut self) -> Option<ReadAhead> {
        self.ahead.take()
    }

    /// Returns which new entries the lane has read and not handled.
    pub(crate) fn unhandled(&self) -> Unhandled {
        match &self.ahead {
            Some(ahead) => Unhandled::InProgress { since: ahead.begun },
            None if self.has_leftover() => Unhandled::OutOfHand,
            None => Unhandled::Nothing,
        }
    }

    pub(crate) fn counted(&mut self, own: usize) {
        self.schedule.counted(own == self.set_aside.len());
    }

    /// Adds the ids that a scan has claimed, without the entries that are set aside. A lane also claims its own entries
    /// after a long pause, or when an operator has made them claimable. Returns the number of ids that were not set
    /// aside.
    pub(crate) fn claimed(&mut self, claimed: Claimed, now: Instant) -> usize {
        self.found_by = FoundBy::Claim;
        self.claimed = self.set_aside.unknown_of(claimed.ids);
        self.found.extend(&self.claimed);
        self.schedule.scanned(claimed.cursor, now);
        self.claimed.len()
    }

    /// Returns the claimed ids, until their crashes are counted.
    pub(crate) fn crashes_to_count(&self) -> &[EntryId] {
        &self.claimed
    }

    /// Notes that these crashes were counted.
    pub(crate) fn claimed_crashes_counted(&mut self) {
        self.claimed = Vec::new();
    }

    /// Returns the first ids that were found, as many as one call takes.
    pub(crate) fn found(&self, count: usize) -> Vec<EntryId> {
        self.found.iter().take(count.min(MOST_FETCHED)).copied().collect()
    }

    /// Removes the first `count` ids, which are in progress now.
    pub(crate) fn handled(&mut self, count: usize) {
        self.found.drain(..count.min(self.found.len()));
    }

    pub(crate) fn origin(&self) -> Origin {
        match self.found_by {
            FoundBy::Walk => Origin::Pending,
            FoundBy::Claim => Origin::Claimed,
            FoundBy::Read => Origin::New,
        }
    }

    /// Ends a turn of this lane. Other lanes may then handle an entry alone, unless this lane has entries that count as
    /// in progress or come next.
    pub(crate) fn end_turn(&mut self) {
        if !self.counts_crashes && self.unhandled() == Unhandled::Nothing {
            self.shared = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::handler::Cause;

    const BATCH: usize = 10;
    const MOST: usize = 40;
    const BLOCK: Duration = Duration::from_secs(2);
    const EVERY: Duration = Duration::from_secs(1000);
    const RETRY: Duration = Duration::from_millis(100);

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    /// The state of a lane, the pending list of its consumer, and a clock that a test moves.
    struct World {
        state: LaneState,
        causes: Arc<Causes>,
        now: Instant,
        own: BTreeSet<EntryId>,
        added: u64,
        /// The causes that are over.
        open: BTreeSet<u64>,
    }

    impl World {
        fn new() -> Self {
            let second = Duration::from_secs(1);
            let settings = LaneSettings {
                batch: BATCH,
                batch_bytes: 1 << 20,
                entry_max_bytes: 1 << 20,
                set_aside_max: MOST,
                block: BLOCK,
                retry: crate::RetryWait { first: RETRY, longest: crate::lane::settings::RETRY_MAX },
                claim_idle: second,
                claim_every: EVERY,
                backoff_min: second,
                backoff_max: second,
                failover: crate::Failover::Never,
                replicas: None,
            };
            let causes = Arc::new(Causes::default());
            let state = LaneState::new(&settings, Arc::clone(&causes), None);
            Self { state, causes, now: Instant::now(), own: BTreeSet::new(), added: 0, open: BTreeSet::new() }
        }

        /// Creates a world at rest: the own pending list and the first scan are finished.
        fn rested() -> Self {
            let mut world = Self::new();
            while !matches!(world.turn(0, false), Source::New { .. }) {}
            world
        }

        fn add(&mut self, count: usize) -> Vec<EntryId> {
            let first = self.added + 1;
            self.added += count as u64;
            (first..=self.added).map(id).inspect(|id| _ = self.own.insert(*id)).collect()
        }

        /// Runs the turn that is due; `come` entries of others can be read or claimed.
        fn turn(&mut self, come: usize, fails: bool) -> Source {
            let is_full = self.causes.entries() >= MOST;
            let source = self.state.next(self.now, is_full);
            let batch = match source {
                Source::Wait { time } => {
                    self.now += time;
                    return source;
                }
                Source::Own { after, count } => {
                    let page: Vec<EntryId> = self.own.range(after.next()..).take(count).copied().collect();
                    if self.state.counts_crashes() {
                        self.state.crashes_counted(page.last().copied());
                    } else {
                        self.state.listed(&page);
                    }
                    return source;
                }
                Source::OwnCount => {
                    self.state.counted(self.own.len());
                    return source;
                }
                Source::Claim { cursor, count } => {
                    // A claim includes its own entries, as if they had been idle for long.
                    let own = self.own.range(cursor.next()..).take(count / 2);
                    let mut ids: Vec<EntryId> = own.copied().collect();
                    ids.extend(self.add(come.min(count - ids.len())));
                    let cursor = ids.last().copied().unwrap_or_default();
                    self.state.claimed(Claimed { cursor, ids, gone: Vec::new() }, self.now);
                    return source;
                }
                Source::New { count, .. } => {
                    let mut ids = self.add(come.min(count));
                    // From time to time the batch has no room for half of them.
                    let leftover = ids.split_off(if come % 3 == 2 { ids.len() / 2 } else { ids.len() });
                    self.state.found_leftover(leftover);
                    ids
                }
                Source::Found { count } => {
                    let ids = self.state.found(count);
                    self.state.handled(ids.len());
                    ids
                }
                Source::SetAside => self.state.set_aside.take_due(self.now).ids,
            };
            assert!(batch.len() <= BATCH, "{source:?} brings {}", batch.len());
            if fails {
                self.state.start_over();
                return source;
            }
            for id in batch {
                let key = id.ms % 5;
                if self.open.contains(&key) {
                    assert!(self.own.remove(&id), "{id} is handled after it was settled");
                } else {
                    self.state.set_aside.put(id, Cause::new("test", key), self.now);
                }
            }
            if source == Source::SetAside {
                self.state.set_aside.end_try(&[], Duration::ZERO, self.now);
            }
            source
        }
    }

    #[test]
    fn new_entries_are_read_for_as_long_as_nothing_else_is_due() {
        let mut world = World::rested();
        world.open = (0..5).collect();
        for _ in 0..3 {
            assert_eq!(world.turn(10, false), Source::New { count: 10, block: BLOCK });
        }
        world.now += EVERY;
        assert!(matches!(world.turn(0, false), Source::Claim { count: 10, .. }));
    }

    #[test]
    fn a_long_scan_takes_turns_with_new_entries_and_keeps_its_cursor_through_errors() {
        let mut world = World::rested();
        world.open = (0..5).collect();
        world.now += EVERY;
        let mut cursor = EntryId::MIN;
        for _ in 0..4 {
            assert_eq!(world.turn(10, false), Source::Claim { cursor, count: 10 });
            cursor = id(world.added);
            assert_eq!(world.turn(0, false), Source::Found { count: 10 });
            assert_eq!(world.turn(3, false), Source::New { count: 10, block: Duration::ZERO });
        }
        world.state.start_over();
        while !matches!(world.turn(0, false), Source::Claim { cursor: at, .. } if at == cursor) {}
    }

    #[test]
    fn what_is_due_takes_turns_with_new_entries_and_takes_no_room_from_them() {
        let mut world = World::rested();
        for _ in 0..3 {
            world.turn(10, false);
        }
        for _ in 0..20 {
            world.now += Duration::from_secs(3);
            assert_eq!(world.turn(0, false), Source::SetAside);
            assert!(matches!(world.turn(0, false), Source::New { count: 10, .. }));
        }
    }

    #[test]
    fn tries_in_vain_take_few_entries_and_slow_down_and_go_fast_when_it_is_over() {
        let mut world = World::rested();
        for _ in 0..3 {
            world.turn(10, false);
        }
        let mut last = world.now;
        for round in 0..10 {
            let due = world.state.set_aside.next_due(world.now).unwrap();
            let wait = due.saturating_duration_since(last);
            assert!(wait <= crate::lane::settings::RETRY_MAX, "round {round}: {wait:?}");
            (world.now, last) = (due.max(world.now), due);
            let tried = world.state.set_aside.take_due(world.now).ids;
            assert_eq!(tried.len(), 1, "an eighth of a batch, and one at least");
            for id in tried {
                world.state.set_aside.put(id, Cause::new("test", id.ms % 5), world.now);
            }
            world.state.set_aside.end_try(&[], Duration::ZERO, world.now);
        }
        world.open = (0..5).collect();
        world.now += Duration::from_secs(3);
        let mut turns = 0;
        while !world.own.is_empty() {
            world.turn(0, false);
            turns += 1;
            assert!(turns < 60, "{} are left", world.own.len());
        }
        assert_eq!(world.causes.entries(), 0);
    }

    #[test]
    fn a_reply_that_was_too_late_is_asked_for_in_smaller_parts_until_it_comes() {
        let mut world = World::rested();
        for expected in [5, 2, 1, 1] {
            world.state.schedule.narrow();
            assert_eq!(world.state.schedule.share_of(1000), expected * 100);
        }
        for expected in [2, 4, 8, 10, 10] {
            world.state.schedule.widen();
            assert_eq!(world.state.schedule.share_of(1000), expected * 100);
        }
    }

    #[test]
    fn what_a_lane_claims_of_its_own_that_it_has_set_aside_stays_set_aside_once() {
        let mut world = World::rested();
        world.turn(7, false);
        let aside = world.state.set_aside.ids();
        let mut ids = aside.clone();
        let strangers = world.add(2);
        ids.extend(&strangers);
        assert_eq!(
            world.state.claimed(Claimed { cursor: EntryId::MIN, ids, gone: Vec::new() }, world.now),
            2
        );
        assert_eq!((aside.len(), world.state.crashes_to_count()), (7, &strangers[..]));
        world.state.start_over();
        assert_eq!(world.state.crashes_to_count(), strangers, "also after an error");
        world.turn(0, false);
        assert_eq!(world.state.found(BATCH), strangers);
    }

    /// The time until the next event; sometimes it is so long that a scan begins.
    fn time_ms() -> impl Strategy<Value = u64> {
        prop_oneof![9 => 0..3000_u64, 1 => Just(1_000_000)]
    }

    proptest! {
        #[test]
        fn whatever_happens_hands_and_what_is_set_aside_are_bounded_and_everything_is_tried_again(
            happenings in vec((0..=12_usize, 0..32_u8, time_ms(), prop::bool::weighted(0.1)), 0..200),
        ) {
            let mut world = World::new();
            for (come, open, ms, fails) in happenings {
                world.now += Duration::from_millis(ms);
                world.open = (0..5).filter(|key| open >> key & 1 == 1).collect();
                world.turn(come, fails);
                prop_assert!(world.state.set_aside.len() <= MOST + BATCH);
                prop_assert_eq!(world.state.set_aside.len(), world.causes.entries());
                let ids = world.state.set_aside.ids();
                prop_assert!(ids.iter().all(|id| world.own.contains(id)));
                prop_assert!(ids.is_sorted_by(|a, b| a < b), "twice: {ids:?}");
            }
            world.open = (0..5).collect();
            for _ in 0..200 {
                world.now += Duration::from_secs(3);
                world.turn(0, false);
            }
            prop_assert!(world.own.is_empty(), "{} were never tried again", world.own.len());
            prop_assert_eq!(world.causes.entries(), 0);
        }
    }
}
