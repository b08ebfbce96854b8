//! Hands what a consumer holds over to the workers that live: offers it, and looks whether they have taken it.

use std::time::Duration;

use anyhow::Context;
use tidegate_compare::Job;
use tidegate_orders::{RedisStore, keys::process_of};
use tidegate_stream::{Backoff, EntryId, Holder, ClaimableStep, MakeClaimable, PendingEntry, is_claimable};

use crate::settings::SystemSettings;

/// The first wait between two polls whether entries were taken, and the longest.
const POLL_WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Entries that are read at once.
const PAGE: u16 = 1_000;

/// Offers the entries of consumers, and looks whether they were taken.
#[derive(Clone, Debug)]
pub struct Handover {
    make_claimable: MakeClaimable,
    redis: RedisStore,
    young_ms: u64,
}

/// The waits between polls whether entries were taken.
#[must_use]
pub fn poll_waits() -> Backoff {
    Backoff::new(POLL_WAITS[0], POLL_WAITS[1])
}

/// How the offer of one consumer's entries ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverEnd {
    /// Every entry was looked at.
    Complete,
    /// Its process lives, so the rest was left to it.
    ConsumerLives,
    /// [`Job::is_stopped`] was obeyed.
    Stopped,
}

impl Handover {
    /// For the group of these settings.
    pub fn new(redis: &RedisStore, settings: &SystemSettings) -> Self {
        let names = redis.inspector().names();
        // Until their locks expire, whoever claims them could only set them aside.
        let young = settings.fleet.lock_lease.as_millis();
        Self {
            make_claimable: MakeClaimable::new(redis, names.clone()),
            redis: redis.clone(),
            young_ms: u64::try_from(young).unwrap_or(u64::MAX),
        }
    }

    /// Offers all that `consumer` holds, unless its process lives. With `forced`, offers it even then, and also what was
    /// delivered a moment ago. Calls `on_step` with what each step did.
    ///
    /// # Errors
    /// When Redis does not answer, or stream or group are missing.
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
            let step = step.with_context(|| format!("Failed to offer the entries of {consumer}"))?;
            let Some(step) = step else { return Ok(HandoverEnd::ConsumerLives) };
            on_step(&step);
            job.progress.add(step.offered + step.before + step.young + step.gone);
            let Some(last) = step.last else { return Ok(HandoverEnd::Complete) };
            after = last;
        }
        Ok(HandoverEnd::Stopped)
    }

    /// Whether `consumer` holds anything.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn holds_anything(&self, consumer: &str) -> anyhow::Result<bool> {
        Ok(!self.page(consumer, EntryId::MIN, 1).await?.is_empty())
    }

    /// The first entry of `consumer` from `first` on that is claimable and not taken.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn first_claimable(&self, consumer: &str, first: EntryId) -> anyhow::Result<Option<EntryId>> {
        // Mostly it is still the same.
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

    /// How many entries of `consumer` are claimable and not taken.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn claimable(&self, consumer: &str) -> anyhow::Result<u64> {
        let (group, all) = (self.redis.inspector().group(), (EntryId::MIN, EntryId::MAX));
        let (mut count, mut pages) = (0, group.pending_pages(all, PAGE, Some(consumer)));
        while let Some(page) = pages.next().await.context("Failed to read the pending list")? {
            count += page.iter().filter(|pending| is_claimable(pending.idle_ms)).count() as u64;
        }
        Ok(count)
    }

    async fn page(&self, consumer: &str, after: EntryId, count: u16) -> anyhow::Result<Vec<PendingEntry>> {
        let group = self.redis.inspector().group();
        let page = group.pending_entries((after, EntryId::MAX), count, Some(consumer)).await;
        page.context("Failed to read the pending list")
    }
}
