//! Makes the entries of consumers claimable at once, so that living workers claim them.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::RedisStore;
use tidegate_stream::{ClaimableStep, EntryId};
use tokio::time::{Instant, sleep};

use crate::{
    change::{End, Ending, Next, Plan, Report},
    consumers::{Consumer, ConsumerChoice, Consumers},
    handover::{Handover, HandoverEnd, poll_waits},
    settings::SystemSettings,
};

/// The request to make pending entries claimable, so that any worker can take them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The consumers whose entries are made claimable (free for any worker).
    pub consumers: ConsumerChoice,
    /// Whether to include consumers whose process is alive, and entries that were delivered a short time ago.
    pub force: bool,
    /// The longest time to wait until workers have claimed the entries; None: the command does not wait.
    pub wait: Option<Duration>,
}

/// The plan to make pending entries claimable, so that any worker can take them at once.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimPlan {
    /// The consumers whose pending entries would be made claimable (free for any worker).
    pub consumers: Vec<Consumer>,
    /// The requested names for which the group has no consumer.
    pub unknown: Vec<String>,
    /// The number of pending entries that the consumers hold.
    pub pending: u64,
    /// The consumers that hold entries and whose process is alive. If there are any, the command refuses the request,
    /// unless the request has `force`.
    pub living: Vec<String>,
    /// Whether the request also applies to consumers whose process is alive.
    pub forced: bool,
    /// Whether any living worker could claim the entries.
    pub workers_live: bool,
    /// The longest time in seconds until a worker looks for claimable entries, which any worker can take.
    pub taken_within_s: f64,
}

impl Plan for ClaimPlan {
    fn next(&self) -> Next {
        if !self.unknown.is_empty() || self.is_refused() {
            return Next::Refused;
        }
        match self.pending {
            0 => Next::NothingToDo,
            pending => Next::Ask(format!("Make {} claimable for all workers?", counted(pending, "entry"))),
        }
    }
}

impl ClaimPlan {
    /// Returns whether the request is refused, because a consumer's process is alive.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.living.is_empty() && !self.forced
    }
}

/// The results of making pending entries claimable, so that any worker can take them at once.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClaimReport {
    /// The results for the entries of each consumer.
    pub consumers: Vec<ClaimableEntries>,
    /// The number of entries that the command made claimable, so that any worker can take them at once.
    pub offered: u64,
    /// The number of entries that other workers cannot take yet, because the entries were delivered a short time ago.
    pub young: u64,
    /// The number of entries that were not offered to other workers, because their content was deleted.
    pub gone: u64,
    /// The number of entries that were offered to all workers, but that no worker has claimed at the end; None: the
    /// command did not wait.
    pub left: Option<u64>,
    /// Whether any living worker could claim the entries.
    pub workers_live: bool,
    /// The longest time in seconds until a worker looks for claimable entries, which any worker can take.
    #[serde(skip)]
    pub taken_within_s: f64,
    /// The seconds after a delivery during which the command does not offer the entry to other workers.
    #[serde(skip)]
    pub young_for_s: f64,
}

/// The results of making the pending entries of one consumer claimable (free for any worker).
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClaimableEntries {
    /// The name of the consumer.
    pub consumer: String,
    /// The number of the consumer's entries that this command offered to all workers.
    pub offered: u64,
    /// The number of the consumer's entries that were offered to all workers before this command, and that no worker
    /// has claimed yet.
    pub before: u64,
    /// The number of the consumer's entries that other workers cannot take yet, because the entries were delivered a
    /// short time ago.
    pub young: u64,
    /// The number of the consumer's entries that were not offered to other workers, because their content was deleted.
    /// A worker will acknowledge such entries.
    pub gone: u64,
    /// Whether the consumer's process is alive. A living consumer keeps the entries that were not offered to other
    /// workers.
    pub lives: bool,
}

impl ClaimReport {
    fn add(&mut self, step: &ClaimableStep) {
        self.offered += step.offered;
        self.young += step.young;
        self.gone += step.gone;
        if let Some(current) = self.consumers.last_mut() {
            current.offered += step.offered;
            current.before += step.before;
            current.young += step.young;
            current.gone += step.gone;
        }
    }
}

impl Report for ClaimReport {
    fn counts(&self) -> Json {
        json!({ "offered": self.offered, "young": self.young, "gone": self.gone })
    }

    fn ending(&self) -> Ending {
        let is_any_left = self.young > 0 || self.left.is_some_and(|left| left > 0);
        match (is_any_left, self.consumers.iter().any(|consumer| consumer.lives)) {
            (true, _) => Ending::Left,
            (false, true) => Ending::Refused,
            (false, false) => Ending::Done,
        }
    }
}

/// The operation that makes pending entries of consumers claimable, so that any worker can take them at once. If the
/// operation was stopped, run the same request again to continue.
#[derive(Clone, Debug)]
pub struct PendingClaim<'a> {
    redis: &'a RedisStore,
    settings: &'a SystemSettings,
    request: ClaimRequest,
    handover: Handover,
}

impl<'a> PendingClaim<'a> {
    /// Creates the operation that makes entries claimable (free for any worker) in the group of these settings.
    #[must_use]
    pub fn new(redis: &'a RedisStore, settings: &'a SystemSettings, request: ClaimRequest) -> Self {
        Self { redis, settings, request, handover: Handover::new(redis, settings) }
    }

    /// Reads the consumers whose pending entries the request would offer to all workers.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn plan(&self) -> anyhow::Result<ClaimPlan> {
        let consumers = Consumers::read(self.redis).await?;
        let chosen = consumers.choose(&self.request.consumers);
        let living = chosen.known.iter().filter(|consumer| consumer.alive && consumer.pending > 0);
        let fleet = &self.settings.fleet;
        Ok(ClaimPlan {
            unknown: chosen.unknown,
            pending: chosen.known.iter().map(|consumer| consumer.pending).sum(),
            living: living.map(|consumer| consumer.name.clone()).collect(),
            forced: self.request.force,
            workers_live: consumers.has_life(),
            taken_within_s: (fleet.claim_every + fleet.block).as_secs_f64(),
            consumers: chosen.known,
        })
    }

    /// Creates a report in which no entry is offered to other workers yet.
    #[must_use]
    pub fn report(&self, plan: &ClaimPlan) -> ClaimReport {
        ClaimReport {
            workers_live: plan.workers_live,
            taken_within_s: plan.taken_within_s,
            young_for_s: self.settings.fleet.lock_lease.as_secs_f64(),
            ..ClaimReport::default()
        }
    }

    /// Offers the pending entries to all workers. If the request asks for it, also waits until workers have claimed the
    /// entries.
    ///
    /// # Errors
    /// If Redis does not answer, or the stream or the group is missing.
    pub async fn run(&self, plan: &ClaimPlan, report: &mut ClaimReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.pending, "entries");
        for Consumer { name, .. } in &plan.consumers {
            report.consumers.push(ClaimableEntries { consumer: name.clone(), ..ClaimableEntries::default() });
            match self.handover.make_claimable(name, self.request.force, job, |step| report.add(step)).await?
            {
                HandoverEnd::Complete => {}
                HandoverEnd::ConsumerLives => {
                    report.consumers.last_mut().into_iter().for_each(|current| current.lives = true);
                }
                HandoverEnd::Stopped => return Ok(End::Stopped),
            }
        }
        let Some(wait) = self.request.wait else { return Ok(End::Whole) };
        self.wait_until_taken(&plan.consumers, wait, job).await?;
        let mut left = 0;
        for consumer in &plan.consumers {
            left += self.handover.claimable(&consumer.name).await?;
        }
        report.left = Some(left);
        Ok(if left > 0 && job.is_stopped() { End::Stopped } else { End::Whole })
    }

    /// Waits until these consumers hold no claimable entry, the time is over, or the job is stopped.
    async fn wait_until_taken(
        &self,
        consumers: &[Consumer],
        wait: Duration,
        job: &Job,
    ) -> anyhow::Result<()> {
        let (end, mut waits) = (Instant::now() + wait, poll_waits());
        for consumer in consumers {
            // Workers claim the oldest entries first, so claimed entries need not be read again.
            let mut first = EntryId::MIN;
            while let Some(offered) = self.handover.first_claimable(&consumer.name, first).await? {
                first = offered;
                if job.is_stopped() || Instant::now() >= end {
                    return Ok(());
                }
                job.stop.run_until_cancelled(sleep(waits.next_wait())).await;
            }
        }
        Ok(())
    }
}
