//! Hands over the entries of a consumer to living workers: makes the entries claimable, and checks whether workers have
//! claimed them.

use std::time::Duration;

use anyhow::Context;
use tidegate_compare::Job;
use tidegate_orders::{RedisStore, keys::process_of};
use tidegate_stream::{Backoff, ClaimableStep, EntryId, Holder, MakeClaimable, PendingEntry, is_claimable};

use crate::settings::SystemSettings;

/// The first and the longest wait between two checks whether workers have claimed the entries.
const POLL_WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// The entries that are read at once.
const PAGE: u16 = 1_000;

/// The operation that makes pending entries of consumers claimable, so that other workers take them at once, and checks
/// whether workers have claimed the entries.
#[derive(Clone, Debug)]
pub struct Handover {
    make_claimable: MakeClaimable,
    redis: RedisStore,
    young_ms: u64,
}

/// Returns the waiting times between checks whether workers have claimed the entries.
#[must_use]
pub fn poll_waits() -> Backoff {
    Backoff::new(POLL_WAITS[0], POLL_WAITS[1])
}

/// The result of making the entries of one consumer claimable, so that any worker can take them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverEnd {
    /// Every entry of the consumer was checked.
    Complete,
    /// The consumer's process lives, so it keeps the remaining entries.
    ConsumerLives,
    /// The work stopped because of [`Job::is_stopped`].
    Stopped,
}

impl Handover {
    /// Creates the operation that hands pending entries to other workers, in the group of these settings.
    pub fn new(redis: &RedisStore, settings: &SystemSettings) -> Self {
        let names = redis.inspector().names();
        // Until the locks of an entry expire, a worker that claims it could only set it aside.
        let young = settings.fleet.lock_lease.as_millis();
        Self {
            make_claimable: MakeClaimable::new(redis, names.clone()),
            redis: redis.clone(),
            young_ms: u64::try_from(young).unwrap_or(u64::MAX),
        }
    }

    /// Makes all pending entries of the consumer claimable (free for any worker), unless the consumer's process is
    /// alive. If `forced`, includes consumers with a living process, and entries that were delivered a short time ago.
    /// Calls `on_step` with the result of each step.
    ///
    /// # Errors
    /// If Redis does not answer, or the stream or the group is missing.
    pub async fn make_claimable(
        &self,
        consumer: &str,
        forced: bool,
        job: &Job,
        mut on_step: impl FnMut(&ClaimableStep),
    ) -> anyhow::Result<HandoverEnd> {
        let holder = Holder {
            consumer: consumer.to_owned(),
            heartbeat: (!forced).then(|| self.redis.keys().fleet().heartbeat(process_of(consumer)).into()),
            young_ms: if forced { 0 } else { self.young_ms },
        };
        let mut after = EntryId::MIN;
        while !job.is_stopped() {
            let step = self.make_claimable.step(&holder, after).await;
            let step = step.with_context(|| format!("Failed to make the entries of {consumer} claimable"))?;
            let Some(step) = step else { return Ok(HandoverEnd::ConsumerLives) };
            on_step(&step);
            job.progress.add(step.offered + step.before + step.young + step.gone);
            let Some(last) = step.last else { return Ok(HandoverEnd::Complete) };
            after = last;
        }
        Ok(HandoverEnd::Stopped)
    }

    /// Returns whether `consumer` holds any pending entry.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn holds_anything(&self, consumer: &str) -> anyhow::Result<bool> {
        Ok(!self.page(consumer, EntryId::MIN, 1).await?.is_empty())
    }

    /// Searches the entries of `consumer` from the id `first`, and returns the first entry that is claimable (free for
    /// any worker), but that no worker has claimed yet.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn first_claimable(&self, consumer: &str, first: EntryId) -> anyhow::Result<Option<EntryId>> {
        // The first entry is usually still the same one, so one entry is read first.
        let (mut after, mut count) = (first.previous(), 1);
        loop {
            let page = self.page(consumer, after, count).await?;
            if let Some(offered) = page.iter().find(|pending| is_claimable(pending.idle_ms)) {
                return Ok(Some(offered.id));
            }
            match page.last() {
                Some(last) if page.len() == usize::from(count) => (after, count) = (last.id, PAGE),
                _ => return Ok(None),
            }
        }
    }

    /// Counts the entries of `consumer` that are claimable (free for any worker), but that no worker has claimed yet.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn claimable(&self, consumer: &str) -> anyhow::Result<u64> {
        let (group, all) = (self.redis.inspector().group(), (EntryId::MIN, EntryId::MAX));
        let (mut count, mut pages) = (0, group.pending_pages(all, PAGE, Some(consumer)));
        while let Some(page) = pages.next().await.context("Failed to read the pending entries list")? {
            count += page.iter().filter(|pending| is_claimable(pending.idle_ms)).count() as u64;
        }
        Ok(count)
    }

    async fn page(&self, consumer: &str, after: EntryId, count: u16) -> anyhow::Result<Vec<PendingEntry>> {
        let group = self.redis.inspector().group();
        let page = group.pending_entries((after, EntryId::MAX), count, Some(consumer)).await;
        page.context("Failed to read the pending entries list")
    }
}
