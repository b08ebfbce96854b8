//! Handing what a consumer holds over to the workers that live.

use std::time::Duration;

use anyhow::Context;
use fred::clients::Pool;
use serde::Serialize;
use tidegate_orders::{Keys, keys::process_of};
use tidegate_stream::{EntryId, Holder, Offerer, Survey, is_offered};

use crate::{config::Settings, operator::Job};

/// Between two looks whether entries were taken.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

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
    /// moment ago, too. Ends early when the job is stopped.
    pub async fn offer(&self, consumer: &str, forced: bool, job: &Job) -> anyhow::Result<Offered> {
        let holder = Holder {
            consumer: consumer.to_owned(),
            heartbeat: (!forced).then(|| self.keys.heartbeat(process_of(consumer))),
            young_ms: if forced { 0 } else { self.young_ms },
        };
        let mut all = Offered { consumer: consumer.to_owned(), ..Offered::default() };
        let mut after = EntryId::MIN;
        while !job.is_stopped() {
            let step = self.offerer.step(&holder, after).await;
            let Some(step) = step.with_context(|| format!("Failed to offer the entries of {consumer}"))?
            else {
                all.lives = true;
                break;
            };
            all.offered += step.offered;
            all.before += step.before;
            all.young += step.young;
            all.gone += step.gone;
            job.progress.add(step.offered + step.before + step.young + step.gone);
            let Some(last) = step.last else { break };
            after = last;
        }
        Ok(all)
    }

    /// How many entries of `consumer` are on offer and not taken.
    pub async fn on_offer(&self, consumer: &str) -> anyhow::Result<u64> {
        let (mut count, mut after) = (0, EntryId::MIN);
        loop {
            let page = self.survey.pending_entries((after, EntryId::MAX), PAGE, Some(consumer)).await;
            let page = page.context("Failed to read the pending list")?;
            count += page.iter().filter(|pending| is_offered(pending.idle_ms)).count() as u64;
            match page.last() {
                Some(last) if page.len() == usize::from(PAGE) => after = last.id,
                _ => return Ok(count),
            }
        }
    }
}
