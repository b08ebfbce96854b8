//! Handing what a consumer holds over to the workers that live.

use std::time::Duration;

use anyhow::Context;
use fred::clients::Pool;
use serde::Serialize;
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::{Backoff, EntryId, Holder, Offer, Offerer, PendingEntry, Survey, is_offered};

use crate::{config::Settings, operator::Job};

/// Between two looks whether entries were taken: at first, and later.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];

/// Entries that are read at once.
const PAGE: u16 = 1_000;

/// Offers the entries of consumers, and looks whether they were taken.
#[derive(Clone, Debug)]
pub struct Handover {
    offerer: Offerer,
    survey: Survey,
    keys: Keys,
    young_ms: u64,
}

/// The waits between looks whether entries were taken.
pub fn looks() -> Backoff {
    Backoff::new(LOOK_EVERY[0], LOOK_EVERY[1])
}

/// How offering ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offering {
    /// All was looked at.
    Whole,
    /// Its process lives, so the rest was left.
    Lives,
    /// The job was stopped.
    Stopped,
}

/// What became of one consumer's entries.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Offered {
    /// Whose.
    pub consumer: String,
    /// Offered now.
    pub offered: u64,
    /// Offered before, and not taken yet.
    pub before: u64,
    /// Left, because they were delivered only lately.
    pub young: u64,
    /// Left, because their payload is gone; a worker's scan acknowledges them.
    pub gone: u64,
    /// Its process lives, so the rest was left.
    pub lives: bool,
}

impl Handover {
    /// For the group of these settings.
    pub fn new(redis: &Pool, settings: &Settings) -> Self {
        let names = settings.stream_names();
        // Whoever claims them sooner finds their users locked, and its hands full of what has to wait.
        let young = settings.worker.lock_lease.as_millis();
        Self {
            offerer: Offerer::new(redis.clone(), names.clone()),
            survey: Survey::new(redis.clone(), names),
            keys: Keys::new(settings.keys.clone()),
            young_ms: u64::try_from(young).unwrap_or(u64::MAX),
        }
    }

    /// Offers all that `consumer` holds, unless its process lives; with `forced` even then, and what was delivered a
    /// moment ago, too. Tells each step to `told`.
    ///
    /// # Errors
    /// When Redis does not answer, or stream or group are missing.
    pub async fn offer(
        &self,
        consumer: &str,
        forced: bool,
        job: &Job,
        mut told: impl FnMut(&Offer),
    ) -> anyhow::Result<Offering> {
        let holder = Holder {
            consumer: consumer.to_owned(),
            heartbeat: (!forced).then(|| self.keys.heartbeat(process_of(consumer))),
            young_ms: if forced { 0 } else { self.young_ms },
        };
        let mut after = EntryId::MIN;
        while !job.is_stopped() {
            let step = self.offerer.step(&holder, after).await;
            let step = step.with_context(|| format!("Failed to offer the entries of {consumer}"))?;
            let Some(step) = step else { return Ok(Offering::Lives) };
            told(&step);
            job.progress.add(step.offered + step.before + step.young + step.gone);
            let Some(last) = step.last else { return Ok(Offering::Whole) };
            after = last;
        }
        Ok(Offering::Stopped)
    }

    /// Whether `consumer` holds anything.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn holds_anything(&self, consumer: &str) -> anyhow::Result<bool> {
        Ok(!self.page(consumer, EntryId::MIN, 1).await?.is_empty())
    }

    /// The first entry of `consumer` from `first` on that is on offer and not taken.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn first_on_offer(&self, consumer: &str, first: EntryId) -> anyhow::Result<Option<EntryId>> {
        // Mostly it is still the same.
        let (mut after, mut count) = (first.previous(), 1);
        loop {
            let page = self.page(consumer, after, count).await?;
            if let Some(offered) = page.iter().find(|pending| is_offered(pending.idle_ms)) {
                return Ok(Some(offered.id));
            }
            match page.last() {
                Some(last) if page.len() == usize::from(count) => (after, count) = (last.id, PAGE),
                _ => return Ok(None),
            }
        }
    }

    /// How many entries of `consumer` are on offer and not taken.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn on_offer(&self, consumer: &str) -> anyhow::Result<u64> {
        let (mut count, mut after) = (0, EntryId::MIN);
        loop {
            let page = self.page(consumer, after, PAGE).await?;
            count += page.iter().filter(|pending| is_offered(pending.idle_ms)).count() as u64;
            match page.last() {
                Some(last) if page.len() == usize::from(PAGE) => after = last.id,
                _ => return Ok(count),
            }
        }
    }

    async fn page(&self, consumer: &str, after: EntryId, count: u16) -> anyhow::Result<Vec<PendingEntry>> {
        let page = self.survey.pending_entries((after, EntryId::MAX), count, Some(consumer)).await;
        page.context("Failed to read the pending list")
    }
}
