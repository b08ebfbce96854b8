//! Deletes acknowledged entries that are old enough, as workers also do.

use std::time::Duration;
use tidegate_orders::RedisStore;

use anyhow::Context;
use fred::interfaces::StreamsInterface;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_stream::{
    EntryId, KeyKind, RetainedFor, Retainer, StreamInspector, StreamNames, StreamPruner, inspect,
};

use crate::{
    change::{End, Next, Plan, Report},
    settings::SystemSettings,
};

/// The entries that are counted at once, at most.
const COUNT_PAGE: u16 = 1_000;

/// The request to prune the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPruneRequest {
    /// The minimum age of the entries, by the clock of Redis.
    pub older_than: Duration,
    /// Whether the plan counts all entries that would be deleted. Otherwise it stops at the first one, because counting
    /// reads all of them.
    pub count_all: bool,
}

/// The plan to prune the stream.
#[derive(Debug, Serialize)]
pub struct StreamPrunePlan {
    /// The key of the stream.
    pub stream: String,
    /// The number of entries in the stream.
    pub length: u64,
    /// The first id that is too young to be deleted.
    pub cutoff: EntryId,
    /// The oldest entry of the stream.
    pub oldest: Option<EntryId>,
    /// The number of entries that would be deleted, at most. Without [`StreamPruneRequest::count_all`], only 0 and above 0
    /// differ.
    pub entries: u64,
    /// The group that keeps further old entries from being deleted; None: all that are old enough would be deleted.
    pub held_by: Option<RetainedBy>,
    /// Whether nothing can be deleted, because no group shows what it needs.
    pub no_group: bool,
}

/// The group that needs the oldest entry.
#[derive(Debug, Serialize)]
pub struct RetainedBy {
    /// The name of the group.
    pub group: String,
    /// The entry that the group needs.
    pub id: EntryId,
    /// The reason why the group needs it.
    pub why: Need,
}

/// The reason why a group needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// The entry is pending in the group.
    Pending,
    /// All entries after this one are undelivered.
    Unread,
}

/// The report of pruned entries.
#[derive(Debug, Serialize)]
pub struct StreamPruneReport {
    /// The key of the stream.
    pub stream: String,
    /// The number of deleted entries.
    pub deleted: u64,
    /// The number of entries that are left; None: Redis stopped answering.
    pub length: Option<u64>,
}

impl Plan for StreamPrunePlan {
    fn next(&self) -> Next {
        match self.entries {
            0 => Next::NothingToDo,
            entries => Next::Ask(format!("Delete up to {} of {}?", counted(entries, "entry"), self.stream)),
        }
    }
}

impl Report for StreamPruneReport {
    fn counts(&self) -> Json {
        json!({ "deleted": self.deleted })
    }
}

/// Prunes the stream of one system.
#[derive(Debug)]
pub struct StreamPrune {
    redis: RedisStore,
    names: StreamNames,
    pruner: StreamPruner,
    request: StreamPruneRequest,
}

impl StreamPrune {
    /// Creates the pruning of the stream in the Redis behind `redis`.
    #[must_use]
    pub fn new(settings: &SystemSettings, redis: RedisStore, request: StreamPruneRequest) -> Self {
        let names = settings.stream_names();
        let pruner = StreamPruner::new(&redis, names.clone(), request.older_than);
        Self { redis, names, pruner, request }
    }

    /// Reads how many entries would be deleted.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<StreamPrunePlan> {
        self.read(progress).await.context("Failed to read the stream")
    }

    async fn read(&self, progress: &dyn Progress) -> anyhow::Result<StreamPrunePlan> {
        let stream = &self.names.stream;
        let status = inspect(&self.redis, &self.names).await?;
        if let KeyKind::Other(kind) = status.kind {
            anyhow::bail!("{stream} holds a {kind}");
        }
        let cutoff = self.pruner.cutoff().await?;
        let limit = self.pruner.plan(cutoff).await?;
        let inspector = StreamInspector::new(&self.redis, self.names.clone());
        let oldest = inspector.page(stream, (EntryId::MIN, EntryId::MAX), 1).await?;
        let entries = match limit.keep_from {
            None => 0,
            Some(before) => {
                progress.expect(status.length, "entries read");
                let enough = if self.request.count_all { u64::MAX } else { 1 };
                let pages = inspector.entry_pages(stream, (EntryId::MIN, before.previous()), COUNT_PAGE);
                pages.count(enough, |seen| progress.add(seen)).await?
            }
        };
        Ok(StreamPrunePlan {
            stream: stream.clone(),
            length: status.length,
            cutoff,
            oldest: oldest.first().map(|entry| entry.id),
            entries,
            held_by: limit.retained_by.map(RetainedBy::from),
            no_group: limit.keep_from.is_none(),
        })
    }

    /// Deletes the entries, some thousands in each step, and adds each step to `report`.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn run(
        &self,
        plan: &StreamPrunePlan,
        report: &mut StreamPruneReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let expected = if self.request.count_all { plan.entries } else { plan.length };
        job.progress.expect(expected, "entries, at most");
        let mut end = End::Stopped;
        while !job.is_stopped() {
            let deleted = self.pruner.step(plan.cutoff).await.context("Failed to prune the stream")?;
            if deleted == 0 {
                end = End::Whole;
                break;
            }
            job.progress.add(deleted);
            report.deleted += deleted;
        }
        report.length =
            Some(self.redis.pool().xlen(&plan.stream).await.context("Failed to read the stream")?);
        Ok(end)
    }
}

impl StreamPruneReport {
    /// Creates the report before anything is deleted.
    #[must_use]
    pub fn new(plan: &StreamPrunePlan) -> Self {
        Self { stream: plan.stream.clone(), deleted: 0, length: None }
    }
}

impl From<Retainer> for RetainedBy {
    fn from(Retainer { group, id, need }: Retainer) -> Self {
        let why = match need {
            RetainedFor::Pending => Need::Pending,
            RetainedFor::LastDelivered => Need::Unread,
        };
        Self { group, id, why }
    }
}
