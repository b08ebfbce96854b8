//! Removes consumers after workers have claimed the pending entries of these consumers.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{RedisStore, keys::process_of};
use tidegate_stream::{ClaimableStep, ConsumerRemover};
use tokio::time::{Instant, sleep};

use super::{Consumer, ConsumerChoice, Consumers};
use crate::{
    change::{End, Ending, Next, Plan, Report},
    handover::{Handover, HandoverEnd, poll_waits},
    settings::SystemSettings,
};

/// The request of an operator to remove consumers from the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerRemovalRequest {
    /// The consumers to remove from the group.
    pub consumers: ConsumerChoice,
    /// The longest time to wait until workers have claimed the entries of the consumers.
    pub wait: Duration,
}

/// The plan to remove consumers from the group.
#[derive(Clone, Debug, Serialize)]
pub struct ConsumerRemovalPlan {
    /// The name of the consumer group.
    pub group: String,
    /// The consumers that would be removed.
    pub consumers: Vec<Consumer>,
    /// The requested names for which the group has no consumer.
    pub unknown: Vec<String>,
    /// The consumers whose process is alive. If there are any, the removal is refused.
    pub living: Vec<String>,
    /// The number of pending entries that the consumers to remove hold.
    pub pending: u64,
    /// Whether any living worker could claim the entries.
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
            pending => format!(", after workers have claimed {}", counted(pending, "entry")),
        };
        let consumers = counted(self.consumers.len() as u64, "consumer");
        Next::Ask(format!("Remove {consumers} of group {}{first}?", self.group))
    }
}

impl ConsumerRemovalPlan {
    /// Returns whether the consumers to remove hold pending entries, but no living worker could claim these entries.
    #[must_use]
    pub fn has_no_taker(&self) -> bool {
        self.pending > 0 && !self.workers_live
    }
}

/// The report of a removal of consumers from the group.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConsumerRemovalReport {
    /// The names of the removed consumers.
    pub removed: Vec<String>,
    /// The consumers that could not be removed.
    pub kept: Vec<RetainedConsumer>,
    /// The number of pending entries that the removal made claimable, so that a worker takes them at once.
    pub handed_over: u64,
}

/// A consumer that could not be removed from the group.
#[derive(Clone, Debug, Serialize)]
pub struct RetainedConsumer {
    /// The name of the consumer.
    pub consumer: String,
    /// The number of pending entries that the consumer still holds.
    pub pending: u64,
    /// Whether the worker process of the consumer is alive.
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

/// The operation that removes consumers from the group. If the removal was stopped, run the same request again to
/// continue.
#[derive(Debug)]
pub struct ConsumerRemoval<'a> {
    redis: &'a RedisStore,
    settings: &'a SystemSettings,
    request: ConsumerRemovalRequest,
    handover: Handover,
    remover: ConsumerRemover,
}

/// A consumer whose entries are being handed over.
struct Draining<'a> {
    consumer: &'a str,
    /// The entries that were too young to be made claimable at the last attempt.
    young: u64,
    lives: bool,
}

impl<'a> ConsumerRemoval<'a> {
    /// Creates a removal of consumers from the group of these settings.
    #[must_use]
    pub fn new(redis: &'a RedisStore, settings: &'a SystemSettings, request: ConsumerRemovalRequest) -> Self {
        Self {
            redis,
            settings,
            request,
            handover: Handover::new(redis, settings),
            // An operator who removes a consumer does not want to wait until it has been idle for an hour.
            remover: ConsumerRemover::new(redis, redis.inspector().names().clone(), Duration::ZERO),
        }
    }

    /// Reads the consumers that the request names, and plans their removal.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
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

    /// Makes the pending entries of all chosen consumers claimable (free for any worker), waits until workers have
    /// claimed the entries, and removes the consumers.
    ///
    /// # Errors
    /// If Redis does not answer, or the stream or the group is missing.
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
                    report.kept.push(RetainedConsumer { consumer, pending, alive });
                }
                // Another program has removed the consumer in the meantime.
                None => report.removed.push(draining.consumer.to_owned()),
            }
        }
        Ok(if job.is_stopped() && !report.kept.is_empty() { End::Stopped } else { End::Whole })
    }

    async fn consumers(&self) -> anyhow::Result<Consumers> {
        Consumers::read(self.redis).await
    }

    /// Makes the entries of the consumer claimable.
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

    /// Waits until the consumer holds nothing or the time is over. It also makes entries claimable that were too young
    /// before.
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

    /// Removes the consumer from the group. False: its process lives, it holds entries, or it does not exist.
    async fn remove(&self, consumer: &str) -> anyhow::Result<bool> {
        let heartbeat = self.redis.keys().fleet().heartbeat(process_of(consumer));
        let removed = self.remover.remove(consumer, heartbeat).await;
        removed.with_context(|| format!("Failed to remove {consumer}"))
    }
}
