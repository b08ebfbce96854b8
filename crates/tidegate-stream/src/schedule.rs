//! Where a lane reads next: a pure decision.

use std::time::{Duration, Instant};

use crate::{
    backoff::Backoff,
    entry::EntryId,
    lane::{BatchReport, LaneSettings},
    observer::Origin,
};

/// Retries of entries that could not be done slow down to this.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The own pending list, after this id.
    Pending { after: EntryId, count: usize },
    /// What dead consumers hold, scanning from this cursor.
    Claim { cursor: EntryId, count: usize },
    /// New entries.
    New { count: usize, block: Duration },
    /// Nowhere yet: the hands are full of entries that wait for another try.
    Wait { time: Duration },
}

impl Source {
    /// How entries that were read from here came to this consumer.
    pub(crate) fn origin(self) -> Origin {
        match self {
            Self::Pending { .. } => Origin::Pending,
            Self::Claim { .. } => Origin::Claimed,
            Self::New { .. } | Self::Wait { .. } => Origin::New,
        }
    }
}

/// What a lane has to remember between reads. All of it can be forgotten: [`Schedule::start_over`].
#[derive(Debug)]
pub(crate) struct Schedule {
    batch: usize,
    /// Entries in one reply: fewer than a batch after a reply that did not come in time, as large entries do not over
    /// a slow connection.
    limit: usize,
    block: Duration,
    claim_every: Duration,
    /// Reading the own pending list, and up to where that has come.
    pending_after: Option<EntryId>,
    /// Own pending entries that wait for another try.
    left: usize,
    retry_at: Option<Instant>,
    retry: Backoff,
    claim_cursor: EntryId,
    claim_at: Instant,
    claimed_last: bool,
}

impl Schedule {
    pub(crate) fn new(settings: &LaneSettings, now: Instant) -> Self {
        Self {
            batch: settings.batch,
            limit: settings.batch,
            block: settings.block,
            claim_every: settings.claim_every,
            pending_after: Some(EntryId::MIN),
            left: 0,
            retry_at: None,
            retry: Backoff::new(settings.retry, RETRY_MAX.max(settings.retry)),
            claim_cursor: EntryId::MIN,
            claim_at: now,
            claimed_last: false,
        }
    }

    /// Own pending list first, from its start.
    pub(crate) fn start_over(&mut self) {
        self.pending_after = Some(EntryId::MIN);
        self.left = 0;
        self.retry_at = None;
    }

    /// A reply did not come in time: the next one shall be smaller.
    pub(crate) fn narrow(&mut self) {
        self.limit = (self.limit / 2).max(1);
    }

    pub(crate) fn next(&mut self, now: Instant) -> Source {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.start_over();
        }
        if let Some(after) = self.pending_after {
            return Source::Pending { after, count: self.limit };
        }
        let room = self.batch.saturating_sub(self.left).min(self.limit);
        let until_retry = self.retry_at.map(|at| at.saturating_duration_since(now));
        if room == 0 {
            return Source::Wait { time: until_retry.unwrap_or_default() };
        }
        let scanning = self.claim_cursor != EntryId::MIN;
        // A long scan takes turns with new entries: neither waits for the other to end.
        if self.claim_at <= now && !self.claimed_last {
            return Source::Claim { cursor: self.claim_cursor, count: room };
        }
        self.claimed_last = false;
        let block = if scanning { Duration::ZERO } else { until_retry.unwrap_or(self.block).min(self.block) };
        Source::New { count: room, block }
    }

    /// A claim was made; `cursor` is where the next scan begins.
    pub(crate) fn scanned(&mut self, cursor: EntryId, now: Instant) {
        self.claim_cursor = cursor;
        self.claimed_last = true;
        if cursor == EntryId::MIN {
            self.claim_at = now + self.claim_every;
        }
    }

    /// A delivery of `read` entries up to `last_id` came from `source` and was handled.
    pub(crate) fn handled(
        &mut self,
        source: Source,
        read: usize,
        last_id: Option<EntryId>,
        report: BatchReport,
        now: Instant,
    ) {
        self.left += report.left;
        self.limit = (self.limit * 2).min(self.batch);
        match source {
            Source::Pending { .. } => {
                self.pending_after = if read == 0 { None } else { last_id };
                // New entries that go well say nothing of those that wait.
                if report.done + report.buried > 0 || (read == 0 && self.left == 0) {
                    self.retry.reset();
                }
            }
            // A scan is over. What it claimed without showing it (Redis 6.2 hides deleted entries), and whatever
            // else may have been handed over unseen, stands in the own pending list.
            Source::Claim { .. } if self.claim_cursor == EntryId::MIN => return self.start_over(),
            Source::Claim { .. } | Source::New { .. } | Source::Wait { .. } => {}
        }
        if self.left > 0 && self.retry_at.is_none() {
            self.retry_at = Some(now + self.retry.next_wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    const EVERY: Duration = Duration::from_secs(1000);
    const BLOCK: Duration = Duration::from_secs(2);
    const RETRY: Duration = Duration::from_millis(100);
    const END: EntryId = EntryId::MIN;

    /// A schedule, and a clock that a test moves.
    struct Desk {
        schedule: Schedule,
        now: Instant,
    }

    impl Desk {
        fn new() -> Self {
            let second = Duration::from_secs(1);
            let settings = LaneSettings {
                batch: 10,
                block: BLOCK,
                retry: RETRY,
                claim_idle: second,
                claim_every: EVERY,
                backoff_min: second,
                backoff_max: second,
            };
            let now = Instant::now();
            Self { schedule: Schedule::new(&settings, now), now }
        }

        /// At rest: the own pending list and the first scan are over.
        fn rested() -> Self {
            let mut desk = Self::new();
            desk.read(0, 0);
            desk.scan(END, 0);
            desk.read(0, 0);
            desk.read(0, 0);
            desk
        }

        fn next(&mut self) -> Source {
            self.schedule.next(self.now)
        }

        /// Does what is due: entries up to the id `read` come, of which `left` stay pending.
        fn read(&mut self, read: usize, left: usize) -> Source {
            let source = self.next();
            let last_id = (read > 0).then(|| id(read as u64));
            let report = BatchReport { done: read - left, left, ..BatchReport::default() };
            self.schedule.handled(source, read, last_id, report, self.now);
            source
        }

        /// Does what is due, which is a claim, and comes to `cursor`.
        fn scan(&mut self, cursor: EntryId, left: usize) {
            let source = self.next();
            assert!(matches!(source, Source::Claim { .. }), "{source:?}");
            self.schedule.scanned(cursor, self.now);
            let report = BatchReport { left, ..BatchReport::default() };
            self.schedule.handled(source, left, None, report, self.now);
        }
    }

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    #[test]
    fn a_reply_that_was_too_late_is_asked_for_in_smaller_parts_until_it_comes() {
        let mut desk = Desk::rested();
        for expected in [5, 2, 1, 1] {
            desk.schedule.start_over();
            desk.schedule.narrow();
            assert_eq!(desk.next(), Source::Pending { after: END, count: expected });
        }
        for expected in [1, 2, 4, 8, 10] {
            let Source::Pending { count, .. } = desk.read(1, 0) else {
                panic!("the own pending list is not over")
            };
            assert_eq!(count, expected);
        }
    }

    #[test]
    fn the_own_pending_list_is_read_to_its_end_first() {
        let mut desk = Desk::new();
        assert_eq!(desk.read(10, 0), Source::Pending { after: END, count: 10 });
        assert_eq!(desk.read(3, 0), Source::Pending { after: id(10), count: 10 });
        assert_eq!(desk.read(0, 0), Source::Pending { after: id(3), count: 10 });
        assert_eq!(desk.next(), Source::Claim { cursor: END, count: 10 });
    }

    #[test]
    fn new_entries_are_read_for_as_long_as_nothing_else_is_due() {
        let mut desk = Desk::rested();
        for _ in 0..3 {
            assert_eq!(desk.read(10, 0), Source::New { count: 10, block: BLOCK });
        }
        desk.now += EVERY;
        assert_eq!(desk.next(), Source::Claim { cursor: END, count: 10 });
    }

    #[test]
    fn a_long_scan_takes_turns_with_new_entries_and_keeps_its_cursor() {
        let mut desk = Desk::rested();
        desk.now += EVERY;
        for at in 1..5 {
            desk.scan(id(at), 0);
            assert_eq!(desk.read(0, 0), Source::New { count: 10, block: Duration::ZERO });
            assert_eq!(desk.next(), Source::Claim { cursor: id(at), count: 10 });
        }
        desk.schedule.start_over();
        desk.read(0, 0);
        assert_eq!(
            desk.next(),
            Source::Claim { cursor: id(4), count: 10 },
            "an error does not begin the scan anew"
        );
    }

    #[test]
    fn the_end_of_a_scan_looks_at_the_own_pending_list_once() {
        let mut desk = Desk::rested();
        desk.now += EVERY;
        desk.scan(END, 0);
        assert_eq!(desk.read(0, 0), Source::Pending { after: END, count: 10 });
        assert_eq!(desk.read(0, 0), Source::New { count: 10, block: BLOCK });
    }

    #[test]
    fn entries_that_wait_take_room_and_shorten_the_block() {
        let mut desk = Desk::rested();
        desk.read(10, 4);
        let Source::New { count: 6, block } = desk.next() else { panic!("{:?}", desk.next()) };
        assert!(block >= RETRY / 2 && block <= RETRY);
        desk.now += RETRY;
        assert_eq!(desk.read(4, 0), Source::Pending { after: END, count: 10 });
        desk.read(0, 0);
        assert_eq!(desk.next(), Source::New { count: 10, block: BLOCK });
    }

    #[test]
    fn full_hands_wait_and_wait_longer_each_time() {
        let mut desk = Desk::rested();
        desk.read(10, 10);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let Source::Wait { time } = desk.next() else { panic!("{:?}", desk.next()) };
            waits.push(time);
            desk.now += time;
            assert_eq!(desk.read(10, 10), Source::Pending { after: END, count: 10 });
            desk.read(0, 0);
        }
        assert!(waits[0] <= RETRY);
        assert!(waits[7] >= RETRY_MAX / 2 && waits[7] <= RETRY_MAX);
    }

    #[test]
    fn waits_are_short_again_once_nothing_waits() {
        let mut desk = Desk::rested();
        desk.read(10, 10);
        for _ in 0..8 {
            desk.now += RETRY_MAX;
            desk.read(10, 10);
            desk.read(0, 0);
        }
        desk.now += RETRY_MAX;
        desk.read(10, 0);
        desk.read(0, 0);
        desk.read(10, 10);
        let Source::Wait { time } = desk.next() else { panic!("{:?}", desk.next()) };
        assert!(time <= RETRY);
    }

    #[test]
    fn new_entries_that_go_well_do_not_hurry_those_that_wait() {
        let mut desk = Desk::rested();
        desk.read(10, 1);
        for _ in 0..8 {
            desk.now += RETRY_MAX;
            desk.read(1, 1);
            desk.read(0, 0);
            desk.read(9, 0);
        }
        let Source::New { count: 9, block } = desk.next() else { panic!("{:?}", desk.next()) };
        assert!(block >= RETRY_MAX / 2);
    }

    /// One thing that happens: how many entries come, which of them stay pending, and how much time passes.
    fn happening() -> impl Strategy<Value = (usize, u16, u64, bool)> {
        (0..=10_usize, any::<u16>(), 0..3000_u64, any::<bool>())
    }

    proptest! {
        #[test]
        fn whatever_comes_no_more_than_a_batch_is_ever_pending(happenings in vec(happening(), 0..300)) {
            let mut desk = Desk::new();
            let (mut pending, mut last) = (BTreeSet::new(), 0);
            for (come, staying, ms, is_end) in happenings {
                desk.now += Duration::from_millis(ms);
                let source = desk.next();
                let read: Vec<u64> = match source {
                    Source::Pending { after, count } => pending.range(after.ms + 1..).take(count).copied().collect(),
                    Source::New { count, .. } | Source::Claim { count, .. } => {
                        prop_assert!(pending.len() + count <= 10, "{source:?} with {}", pending.len());
                        (last + 1..).take(come.min(count)).collect()
                    }
                    Source::Wait { time } => {
                        prop_assert!(pending.len() == 10 && time <= RETRY_MAX);
                        continue;
                    }
                };
                if let Source::Claim { .. } = source {
                    let cursor = if is_end { END } else { id(last + 1) };
                    desk.schedule.scanned(cursor, desk.now);
                }
                last = last.max(read.last().copied().unwrap_or(0));
                let mut report = BatchReport::default();
                for (at, id) in read.iter().enumerate() {
                    if staying >> at & 1 == 1 {
                        pending.insert(*id);
                        report.left += 1;
                    } else {
                        pending.remove(id);
                        report.done += 1;
                    }
                }
                let last_id = read.last().map(|ms| id(*ms));
                desk.schedule.handled(source, read.len(), last_id, report, desk.now);
            }
        }
    }
}
