//! Where a lane reads next: a pure decision.

use std::time::{Duration, Instant};

use crate::{
    backoff::Backoff,
    entry::EntryId,
    lane::{BatchReport, LaneSettings},
};

/// Retries of entries that could not be done slow down to this.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// Where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The own pending list, after this id.
    Pending { after: EntryId },
    /// What dead consumers hold, scanning from this cursor.
    Claim { cursor: EntryId, count: usize },
    /// New entries.
    New { count: usize, block: Duration },
    /// Nowhere yet: the hands are full of entries that wait for another try.
    Wait { time: Duration },
}

/// What a lane has to remember between reads. All of it can be forgotten: [`Schedule::start_over`].
#[derive(Debug)]
pub(crate) struct Schedule {
    batch: usize,
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

    pub(crate) fn next(&mut self, now: Instant) -> Source {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.start_over();
        }
        if let Some(after) = self.pending_after {
            return Source::Pending { after };
        }
        let room = self.batch.saturating_sub(self.left);
        let until_retry = self.retry_at.map(|at| at.saturating_duration_since(now));
        if room == 0 {
            return Source::Wait { time: until_retry.unwrap_or_default() };
        }
        let scanning = self.claim_cursor != EntryId::MIN;
        // A long scan takes turns with new entries: neither waits for the other to end.
        if self.claim_at <= now && !std::mem::take(&mut self.claimed_last) {
            return Source::Claim { cursor: self.claim_cursor, count: room };
        }
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
        if let Source::Pending { .. } = source {
            self.pending_after = if read == 0 { None } else { last_id };
        }
        self.left += report.left;
        if report.done + report.buried > 0 {
            self.retry.reset();
        }
        if self.left > 0 && self.retry_at.is_none() {
            self.retry_at = Some(now + self.retry.next_wait());
        }
    }
}
