//! Where a lane reads next: a pure decision.

use std::time::{Duration, Instant};

use crate::{entry::EntryId, lane::LaneSettings};

/// Ids of the own pending list that are looked at in one go: they weigh little, and most are known.
const OWN_PAGE: usize = 1000;

/// Where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Ids of the own pending list, after this one.
    Own { after: EntryId, count: usize },
    /// Whether the own pending list holds no more than is set aside.
    OwnCount,
    /// Ids of what dead consumers hold, scanning from this cursor.
    Claim { cursor: EntryId, count: usize },
    /// Payloads of ids that were found.
    Found { count: usize },
    /// Payloads of what is set aside and due.
    SetAside,
    /// New entries.
    New { count: usize, block: Duration },
    /// Nowhere yet: as much is set aside as may be.
    Wait { time: Duration },
}

/// What the lane has on its state when it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Ids that were found, and not handled yet.
    pub(crate) found: usize,
    /// When something that is set aside is to be tried.
    pub(crate) due: Option<Instant>,
    /// No more may be set aside.
    pub(crate) is_full: bool,
}

/// What a lane has to remember between reads. All of it can be forgotten: [`Schedule::start_over`].
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    batch: usize,
    /// Entries in one batch: fewer than all after a reply that did not come in time, as large entries do not over
    /// a slow connection.
    limit: usize,
    block: Duration,
    claim_every: Duration,
    /// Reading the own pending list, and up to where that has come.
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

    /// Own pending list first, from its start.
    pub(crate) fn start_over(&mut self) {
        self.own_after = Some(EntryId::MIN);
        self.own_count = false;
    }

    /// A reply did not come in time: the next one shall be smaller.
    pub(crate) fn narrow(&mut self) {
        self.limit = (self.limit / 2).max(1);
    }

    /// A reply came in time.
    pub(crate) fn widen(&mut self) {
        self.limit = (self.limit * 2).min(self.batch);
    }

    /// Of so many bytes for a full batch, those for one of the size that comes in time.
    pub(crate) fn share_of(&self, bytes: usize) -> usize {
        (bytes / self.batch).saturating_mul(self.limit).clamp(1, bytes)
    }

    pub(crate) fn next(&mut self, now: Instant, load: Load) -> Source {
        let until_due = load.due.map(|due| due.saturating_duration_since(now));
        let is_due = until_due == Some(Duration::ZERO);
        if load.found > 0 {
            return Source::Found { count: self.limit };
        }
        // Also where no more may be set aside: this adds nothing to the own pending list, and what is in it may be free.
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
        // Whatever waits takes turns with new entries, and so does a long scan: none waits for the other to end.
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

    /// A page of the own pending list came, up to `last`; None: there is no more of it.
    pub(crate) fn listed(&mut self, last: Option<EntryId>) {
        self.own_after = last;
    }

    /// Own pending entries were counted.
    pub(crate) fn counted(&mut self, are_all_known: bool) {
        self.own_count = false;
        if !are_all_known {
            self.start_over();
        }
    }

    /// A claim was made; `cursor` is where the next scan begins.
    pub(crate) fn scanned(&mut self, cursor: EntryId, now: Instant) {
        self.claim_cursor = cursor;
        self.claimed_last = true;
        if cursor == EntryId::MIN {
            self.claim_at = now + self.claim_every;
            // What was claimed or handed over unseen, stands in the own pending list.
            self.own_count = true;
        }
    }
}
