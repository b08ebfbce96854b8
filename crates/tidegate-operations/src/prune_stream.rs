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

/// The request to delete old entries from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPruneRequest {
    /// The minimum age of the stream entries to delete, by the clock of Redis.
    pub older_than: Duration,
    /// Whether the plan counts all entries that would be deleted, which requires reading them. Otherwise the plan only
    /// says whether there are any.
    pub count_all: bool,
}

/// The plan to delete old entries from the stream.
#[derive(Debug, Serialize)]
pub struct StreamPrunePlan {
    /// The key of the stream.
    pub stream: String,
    /// The number of entries in the stream.
    pub length: u64,
    /// The first entry id that is too young to be deleted.
    pub cutoff: EntryId,
    /// The id of the oldest entry in the stream.
    pub oldest: Option<EntryId>,
    /// The highest number of entries that would be deleted. Without [`StreamPruneRequest::count_all`], a number above 0
    /// only means that at least one entry would be deleted.
    pub entries: u64,
    /// The consumer group that still needs some old entries, so that these entries stay; None: all old entries would be
    /// deleted.
    pub held_by: Option<RetainedBy>,
    /// Whether no entry can be deleted, because the stream has no consumer group to show which entries are still
    /// needed.
    pub no_group: bool,
}

/// The consumer group that prevents the deletion of old entries, with the first entry that the group needs.
#[derive(Debug, Serialize)]
pub struct RetainedBy {
    /// The name of the consumer group.
    pub group: String,
    /// The oldest entry that the group needs.
    pub id: EntryId,
    /// The reason why the group needs the entry.
    pub why: Need,
}

/// The reason why a consumer group still needs a stream entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// The entry is pending in the group.
    Pending,
    /// All entries after this one are undelivered.
    Unread,
}

/// The report of deleting old entries from the stream.
#[derive(Debug, Serialize)]
pub struct StreamPruneReport {
    /// The key of the stream.
    pub stream: String,
    /// The number of deleted entries.
    pub deleted: u64,
    /// The number of entries that are left in the stream; None: Redis stopped answering.
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

/// The operation that deletes old entries from the stream of one partition.
#[derive(Debug)]
pub struct StreamPrune {
    redis: RedisStore,
    names: StreamNames,
    pruner: StreamPruner,
    request: StreamPruneRequest,
}

impl StreamPrune {
    /// Creates the operation that deletes old entries from the stream in this Redis.
    #[must_use]
    pub fn new(settings: &SystemSettings, redis: RedisStore, request: StreamPruneRequest) -> Self {
        let names = settings.stream_names();
        let pruner = StreamPruner::new(&redis, names.clone(), request.older_than);
        Self { redis, names, pruner, request }
    }

    /// Reads how many old entries would be deleted.
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

    /// Deletes old entries in steps of some thousand entries, and adds the result of each step to `report`.
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
    /// Creates the report before any entry is deleted.
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
