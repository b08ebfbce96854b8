//! Hands what consumers hold over to the workers that live, at once.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, ClaimableStep};
use tokio::time::{Instant, sleep};

use crate::{
    change::{End, Ending, Next, Plan, Report},
    consumers::{Consumer, ConsumerChoice, Consumers},
    handover::{Handover, HandoverEnd, poll_waits},
    settings::SystemSettings,
};

/// Whose pending entries are to be offered to all workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Whose.
    pub consumers: ConsumerChoice,
    /// Even of a consumer whose process lives, and what was delivered a moment ago.
    pub force: bool,
    /// How long to wait until workers have taken them. None: no wait.
    pub wait: Option<Duration>,
}

/// What would be offered.
#[derive(Clone, Debug, Serialize)]
pub struct ClaimPlan {
    /// Whose entries.
    pub consumers: Vec<Consumer>,
    /// Names that the group does not have.
    pub unknown: Vec<String>,
    /// Entries that the consumers hold.
    pub pending: u64,
    /// Consumers that hold entries and whose process lives: refused, unless it is forced.
    pub living: Vec<String>,
    /// As requested.
    pub forced: bool,
    /// A process lives that could take them.
    pub workers_live: bool,
    /// How long it may take until a worker looks.
    pub taken_within_s: f64,
}

impl Plan for ClaimPlan {
    fn next(&self) -> Next {
        if !self.unknown.is_empty() || self.is_refused() {
            return Next::Refused;
        }
        match self.pending {
            0 => Next::NothingToDo,
            pending => Next::Ask(format!("Offer {} to all workers?", counted(pending, "entry"))),
        }
    }
}

impl ClaimPlan {
    /// Whether a consumer that lives stands in the way.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.living.is_empty() && !self.forced
    }
}

/// What was offered.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClaimReport {
    /// By consumer.
    pub consumers: Vec<ClaimableEntries>,
    /// Entries offered.
    pub offered: u64,
    /// Entries delivered a moment ago, and left.
    pub young: u64,
    /// Entries without payload, and left.
    pub gone: u64,
    /// Entries still claimable at the end. None: nobody waited for that.
    pub left: Option<u64>,
    /// A process lives that could take them.
    pub workers_live: bool,
    /// How long it may take until a worker looks.
    #[serde(skip)]
    pub taken_within_s: f64,
    /// For how long after its delivery an entry is left.
    #[serde(skip)]
    pub young_for_s: f64,
}

/// What became of the entries of one consumer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClaimableEntries {
    /// Whose.
    pub consumer: String,
    /// Offered now.
    pub offered: u64,
    /// Offered before, and not taken yet.
    pub before: u64,
    /// Left, because they were delivered only a moment ago.
    pub young: u64,
    /// Left, because their payload is gone; a worker's scan acknowledges them.
    pub gone: u64,
    /// Its process lives, so the rest was left.
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

/// Offers the entries of consumers to all workers. To continue one that was stopped, run the same request again.
#[derive(Clone, Debug)]
pub struct PendingClaim<'a> {
    redis: &'a RedisStore,
    settings: &'a SystemSettings,
    request: ClaimRequest,
    handover: Handover,
}

impl<'a> PendingClaim<'a> {
    /// For the group of these settings.
    #[must_use]
    pub fn new(redis: &'a RedisStore, settings: &'a SystemSettings, request: ClaimRequest) -> Self {
        Self { redis, settings, request, handover: Handover::new(redis, settings) }
    }

    /// Reads whose entries are meant.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
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

    /// A report of nothing yet.
    #[must_use]
    pub fn report(&self, plan: &ClaimPlan) -> ClaimReport {
        ClaimReport {
            workers_live: plan.workers_live,
            taken_within_s: plan.taken_within_s,
            young_for_s: self.settings.fleet.lock_lease.as_secs_f64(),
            ..ClaimReport::default()
        }
    }

    /// Offers the entries, and waits until workers have taken them, if that was requested.
    ///
    /// # Errors
    /// When Redis does not answer, or stream or group are missing.
    pub async fn run(&self, plan: &ClaimPlan, report: &mut ClaimReport, job: &Job) -> anyhow::Result<End> {
        job.progress.expect(plan.pending, "entries");
        for Consumer { name, .. } in &plan.consumers {
            report.consumers.push(ClaimableEntries { consumer: name.clone(), ..ClaimableEntries::default() });
            match self.handover.make_claimable(name, self.request.force, job, |step| report.add(step)).await? {
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

    /// Waits until nothing of theirs is claimable, or the time is over, or the job is stopped.
    async fn wait_until_taken(
        &self,
        consumers: &[Consumer],
        wait: Duration,
        job: &Job,
    ) -> anyhow::Result<()> {
        let (end, mut waits) = (Instant::now() + wait, poll_waits());
        for consumer in consumers {
            // Workers take the oldest first: what was taken need not be looked at again.
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
