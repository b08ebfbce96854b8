//! The schedule of a lane: a pure decision on what it reads next.

use std::time::{Duration, Instant};

use crate::{entry::EntryId, lane::LaneSettings};

/// The number of ids of the own pending list that one call reads: they are small, and most are known.
const OWN_PAGE: usize = 1000;

/// The source of the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The ids of the own pending list that come after this one.
    Own { after: EntryId, count: usize },
    /// The length of the own pending list, to check that it holds no more than is set aside.
    OwnCount,
    /// The ids of entries that dead consumers hold, in a scan from this cursor.
    Claim { cursor: EntryId, count: usize },
    /// The payloads of ids that were found.
    Found { count: usize },
    /// The payloads of entries that are set aside and due.
    SetAside,
    /// New entries, which no consumer has read.
    New { count: usize, block: Duration },
    /// No source yet: no more entries may be set aside.
    Wait { time: Duration },
}

/// The part of a lane's state that the schedule needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The number of ids that were found, and not handled yet.
    pub(crate) found: usize,
    /// The time at which an entry that is set aside is due.
    pub(crate) due: Option<Instant>,
    /// Whether no more entries may be set aside.
    pub(crate) is_full: bool,
}

/// The state that a lane keeps between reads. It can forget all of it: [`Schedule::start_over`].
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    batch: usize,
    /// The number of entries in one batch. It is below `batch` after a reply that did not come in time, which happens
    /// with large entries over a slow connection.
    limit: usize,
    block: Duration,
    claim_every: Duration,
    /// The position in the own pending list, while the lane reads it; otherwise None.
    own_after: Option<EntryId>,
    own_count: bool,
    claim_cursor: EntryId,
    claim_at: Instant,
    claimed_last: bool,
    tried_last: bool,
}

impl Schedule {
    pub(crate) fn new(settings: &LaneSettings, now: Instant) -> Self {
        Self {
            batch: settings.batch,
            limit: settings.batch,
            block: settings.block,
            claim_every: settings.claim_every,
            own_after: Some(EntryId::MIN),
            own_count: false,
            claim_cursor: EntryId::MIN,
            claim_at: now,
            claimed_last: false,
            tried_last: false,
        }
    }

    /// Starts over with the own pending list, from its start.
    pub(crate) fn start_over(&mut self) {
        self.own_after = Some(EntryId::MIN);
        self.own_count = false;
    }

    /// Halves the batch, because a reply did not come in time.
    pub(crate) fn narrow(&mut self) {
        self.limit = (self.limit / 2).max(1);
    }

    /// Doubles the batch up to its limit, because a reply came in time.
    pub(crate) fn widen(&mut self) {
        self.limit = (self.limit * 2).min(self.batch);
    }

    /// Returns the share of `bytes`, the bytes of a full batch, for a batch of the present size.
    pub(crate) fn share_of(&self, bytes: usize) -> usize {
        (bytes / self.batch).saturating_mul(self.limit).clamp(1, bytes)
    }

    pub(crate) fn next(&mut self, now: Instant, load: Load) -> Source {
        let until_due = load.due.map(|due| due.saturating_duration_since(now));
        let is_due = until_due == Some(Duration::ZERO);
        if load.found > 0 {
            return Source::Found { count: self.limit };
        }
        // This comes also if no more entries may be set aside: it adds nothing to the own pending list, and entries in
        // it may be ready.
        if let Some(after) = self.own_after {
            return Source::Own { after, count: OWN_PAGE };
        }
        if self.own_count {
            return Source::OwnCount;
        }
        if load.is_full {
            let time = until_due.unwrap_or(self.block).min(self.block);
            return if is_due { Source::SetAside } else { Source::Wait { time } };
        }
        // Entries that are due take turns with new entries, and so does a long scan: none waits for the other to end.
        if is_due && !self.tried_last {
            self.tried_last = true;
            return Source::SetAside;
        }
        if self.claim_at <= now && !self.claimed_last {
            return Source::Claim { cursor: self.claim_cursor, count: self.limit };
        }
        let scanning = self.claim_cursor != EntryId::MIN;
        let block = if scanning { Duration::ZERO } else { until_due.unwrap_or(self.block).min(self.block) };
        (self.tried_last, self.claimed_last) = (false, false);
        Source::New { count: self.limit, block }
    }

    /// Notes that a page of the own pending list came, up to `last`; None: the list has no more entries.
    pub(crate) fn listed(&mut self, last: Option<EntryId>) {
        self.own_after = last;
    }

    /// Notes that this lane's own pending entries were counted.
    pub(crate) fn counted(&mut self, are_all_known: bool) {
        self.own_count = false;
        if !are_all_known {
            self.start_over();
        }
    }

    /// Notes that a claim was made; `cursor` is where the next scan begins.
    pub(crate) fn scanned(&mut self, cursor: EntryId, now: Instant) {
        self.claim_cursor = cursor;
        self.claimed_last = true;
        if cursor == EntryId::MIN {
            self.claim_at = now + self.claim_every;
            // Entries that were claimed or handed over unseen are in the own pending list.
            self.own_count = true;
        }
    }
}
