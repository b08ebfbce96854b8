//! Removes consumers, after workers have taken what they hold.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{RedisStore, keys::process_of};
use tidegate_stream::{ConsumerRemover, ClaimableStep};
use tokio::time::{Instant, sleep};

use super::{Consumer, ConsumerChoice, Consumers};
use crate::{
    change::{End, Ending, Next, Plan, Report},
    handover::{Handover, HandoverEnd, poll_waits},
    settings::SystemSettings,
};

/// Which consumers are to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRemovalRequest {
    /// Which.
    pub consumers: ConsumerChoice,
    /// How long to wait until workers have taken what they hold.
    pub wait: Duration,
}

/// Which consumers would be removed.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerRemovalPlan {
    /// Name of the group.
    pub group: String,
    /// Which.
    pub consumers: Vec<Consumer>,
    /// Names that the group does not have.
    pub unknown: Vec<String>,
    /// Those of the consumers whose process lives: refused.
    pub living: Vec<String>,
    /// Entries that they hold.
    pub pending: u64,
    /// A process lives that could take the entries.
    pub workers_live: bool,
}

impl Plan for ConsumerRemovalPlan {
    fn next(&self) -> Next {
        if !self.unknown.is_empty() || !self.living.is_empty() || self.has_no_taker() {
            return Next::Refused;
        }
        if self.consumers.is_empty() {
            return Next::NothingToDo;
        }
        let first = match self.pending {
            0 => String::new(),
            pending => format!(", after workers have taken {}", counted(pending, "entry")),
        };
        let consumers = counted(self.consumers.len() as u64, "consumer");
        Next::Ask(format!("Remove {consumers} of group {}{first}?", self.group))
    }
}

impl ConsumerRemovalPlan {
    /// Whether there are entries that no process could take.
    #[must_use]
    pub fn has_no_taker(&self) -> bool {
        self.pending > 0 && !self.workers_live
    }
}

/// Which consumers were removed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConsumerRemovalReport {
    /// Their names.
    pub removed: Vec<String>,
    /// Those that could not be removed.
    pub kept: Vec<KeptConsumer>,
    /// Entries that were offered to workers.
    pub handed_over: u64,
}

/// A consumer that could not be removed.
#[derive(Clone, Debug, Serialize)]
pub struct KeptConsumer {
    /// Its name.
    pub consumer: String,
    /// Entries that it holds.
    pub pending: u64,
    /// Its process lives.
    pub alive: bool,
}

impl Report for ConsumerRemovalReport {
    fn counts(&self) -> Json {
        json!({
            "removed": self.removed.len(),
            "kept": self.kept.len(),
            "handed_over": self.handed_over,
        })
    }

    fn ending(&self) -> Ending {
        match (self.kept.is_empty(), self.kept.iter().all(|kept| kept.alive)) {
            (true, _) => Ending::Done,
            (false, true) => Ending::Refused,
            (false, false) => Ending::Left,
        }
    }
}

/// Removes consumers. To continue one that was stopped, run the same request again.
#[derive(Debug)]
pub struct ConsumerRemoval<'a> {
    redis: &'a RedisStore,
    settings: &'a SystemSettings,
    request: ConsumerRemovalRequest,
    handover: Handover,
    remover: ConsumerRemover,
}

/// A consumer whose entries are handed over.
struct Draining<'a> {
    consumer: &'a str,
    /// Entries that were too young to be offered, when it was looked at last.
    young: u64,
    lives: bool,
}

impl<'a> ConsumerRemoval<'a> {
    /// For the group of these settings.
    #[must_use]
    pub fn new(redis: &'a RedisStore, settings: &'a SystemSettings, request: ConsumerRemovalRequest) -> Self {
        Self {
            redis,
            settings,
            request,
            handover: Handover::new(redis, settings),
            // Whoever asks for it does not want to wait until it has been idle for an hour.
            remover: ConsumerRemover::new(redis, redis.inspector().names().clone(), Duration::ZERO),
        }
    }

    /// Reads which consumers are meant.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn plan(&self) -> anyhow::Result<ConsumerRemovalPlan> {
        let consumers = self.consumers().await?;
        let chosen = consumers.choose(&self.request.consumers);
        let living = chosen.known.iter().filter(|consumer| consumer.alive);
        Ok(ConsumerRemovalPlan {
            group: self.settings.stream.group.clone(),
            unknown: chosen.unknown,
            living: living.map(|consumer| consumer.name.clone()).collect(),
            pending: chosen.known.iter().map(|consumer| consumer.pending).sum(),
            workers_live: consumers.has_life(),
            consumers: chosen.known,
        })
    }

    /// Offers what all of them hold, then waits for each until it is empty, and removes it.
    ///
    /// # Errors
    /// When Redis does not answer, or stream or group are missing.
    pub async fn run(
        &self,
        plan: &ConsumerRemovalPlan,
        report: &mut ConsumerRemovalReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        job.progress.expect(plan.pending, "entries");
        let end = Instant::now() + self.request.wait;
        let mut consumers = Vec::new();
        for consumer in &plan.consumers {
            let mut draining = Draining { consumer: &consumer.name, young: 0, lives: false };
            self.offer(&mut draining, report, job).await?;
            consumers.push(draining);
        }
        for draining in &mut consumers {
            self.wait_until_empty(draining, end, report, job).await?;
            if !job.is_stopped() && self.remove(draining.consumer).await? {
                report.removed.push(draining.consumer.to_owned());
                continue;
            }
            match self.consumers().await?.find(draining.consumer) {
                Some(Consumer { name, pending, alive, .. }) => {
                    let (consumer, pending, alive) = (name.clone(), *pending, *alive);
                    report.kept.push(KeptConsumer { consumer, pending, alive });
                }
                // Somebody else has removed it meanwhile.
                None => report.removed.push(draining.consumer.to_owned()),
            }
        }
        Ok(if job.is_stopped() && !report.kept.is_empty() { End::Stopped } else { End::Whole })
    }

    async fn consumers(&self) -> anyhow::Result<Consumers> {
        Consumers::read(self.redis).await
    }

    /// Offers what the consumer holds.
    async fn offer(
        &self,
        draining: &mut Draining<'_>,
        report: &mut ConsumerRemovalReport,
        job: &Job,
    ) -> anyhow::Result<()> {
        draining.young = 0;
        let on_step = |step: &ClaimableStep| {
            draining.young += step.young;
            report.handed_over += step.offered;
        };
        let end = self.handover.make_claimable(draining.consumer, false, job, on_step).await?;
        draining.lives = end == HandoverEnd::ConsumerLives;
        Ok(())
    }

    /// Waits until the consumer holds nothing, or the time is over. Offers what was too young before.
    async fn wait_until_empty(
        &self,
        draining: &mut Draining<'_>,
        end: Instant,
        report: &mut ConsumerRemovalReport,
        job: &Job,
    ) -> anyhow::Result<()> {
        let mut waits = poll_waits();
        while self.handover.holds_anything(draining.consumer).await? {
            if draining.lives || job.is_stopped() || Instant::now() >= end {
                break;
            }
            if draining.young > 0 {
                self.offer(draining, report, job).await?;
            }
            job.stop.run_until_cancelled(sleep(waits.next_wait())).await;
        }
        Ok(())
    }

    /// False: it lives, holds something, or is not there.
    async fn remove(&self, consumer: &str) -> anyhow::Result<bool> {
        let heartbeat = self.redis.keys().fleet().heartbeat(process_of(consumer));
        let removed = self.remover.remove(consumer, heartbeat).await;
        removed.with_context(|| format!("Failed to remove {consumer}"))
    }
}
