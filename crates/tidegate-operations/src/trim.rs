//! Deletes acknowledged entries that are old enough, as workers do by themselves.

use std::time::Duration;
use tidegate_orders::RedisStore;

use anyhow::Context;
use fred::interfaces::StreamsInterface;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::{Job, Progress, text::counted};
use tidegate_stream::{
    EntryId, KeyKind, RetainedFor, Retainer, StreamInspector, StreamNames, Trimmer, inspect,
};

use crate::{
    change::{End, Next, Plan, Report},
    settings::SystemSettings,
};

/// Entries that are counted at once, at most.
const COUNT_PAGE: u16 = 1_000;

/// Which entries to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRequest {
    /// Only what is older than this, by the clock of Redis.
    pub older_than: Duration,
    /// The plan counts the entries that would go. Otherwise it stops at the first: counting reads all of them.
    pub count_all: bool,
}

/// What trimming would delete.
#[derive(Debug, Serialize)]
pub struct TrimPlan {
    /// The stream.
    pub stream: String,
    /// Entries in the stream.
    pub length: u64,
    /// Only entries before this one are old enough.
    pub cutoff: EntryId,
    /// The first entry there is.
    pub oldest: Option<EntryId>,
    /// How many would go, at most; 0 or more than 0 is all it says without [`TrimRequest::count_all`].
    pub entries: u64,
    /// Why no more; None: all that are old enough would go.
    pub held_by: Option<HeldBy>,
    /// Nothing can go, because no group says what it needs.
    pub no_group: bool,
}

/// The group that needs the oldest entry.
#[derive(Debug, Serialize)]
pub struct HeldBy {
    /// Its name.
    pub group: String,
    /// The entry.
    pub id: EntryId,
    /// Why it needs that.
    pub why: Need,
}

/// Why a group needs an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// This entry is pending.
    Pending,
    /// All entries after this one are unread.
    Unread,
}

/// What was deleted.
#[derive(Debug, Serialize)]
pub struct TrimReport {
    /// The stream.
    pub stream: String,
    /// Entries that were deleted.
    pub deleted: u64,
    /// Entries that are left; None: Redis does not tell any more.
    pub length: Option<u64>,
}

impl Plan for TrimPlan {
    fn next(&self) -> Next {
        match self.entries {
            0 => Next::NothingToDo,
            entries => Next::Ask(format!("Delete up to {} of {}?", counted(entries, "entry"), self.stream)),
        }
    }
}

impl Report for TrimReport {
    fn counts(&self) -> Json {
        json!({ "deleted": self.deleted })
    }
}

/// Trims the stream of one system.
#[derive(Debug)]
pub struct Trim {
    redis: RedisStore,
    names: StreamNames,
    trimmer: Trimmer,
    request: TrimRequest,
}

impl Trim {
    /// Of the stream in the Redis behind `redis`.
    #[must_use]
    pub fn new(settings: &SystemSettings, redis: RedisStore, request: TrimRequest) -> Self {
        let names = settings.stream_names();
        let trimmer = Trimmer::new(&redis, names.clone(), request.older_than);
        Self { redis, names, trimmer, request }
    }

    /// Reads what would go.
    ///
    /// # Errors
    /// When Redis does not answer, or its key holds no stream.
    pub async fn plan(&self, progress: &dyn Progress) -> anyhow::Result<TrimPlan> {
        self.read(progress).await.context("Failed to read the stream")
    }

    async fn read(&self, progress: &dyn Progress) -> anyhow::Result<TrimPlan> {
        let stream = &self.names.stream;
        let status = inspect(&self.redis, &self.names).await?;
        if let KeyKind::Other(kind) = status.kind {
            anyhow::bail!("{stream} holds a {kind}");
        }
        let cutoff = self.trimmer.cutoff().await?;
        let limit = self.trimmer.plan(cutoff).await?;
        let inspector = StreamInspector::new(&self.redis, self.names.clone());
        let oldest = inspector.page(stream, (EntryId::MIN, EntryId::MAX), 1).await?;
        let entries = match limit.keep_from {
            None => 0,
            Some(before) => {
                progress.expect(status.length, "entries looked at");
                let enough = if self.request.count_all { u64::MAX } else { 1 };
                let pages = inspector.entry_pages(stream, (EntryId::MIN, before.previous()), COUNT_PAGE);
                pages.count(enough, |seen| progress.add(seen)).await?
            }
        };
        Ok(TrimPlan {
            stream: stream.clone(),
            length: status.length,
            cutoff,
            oldest: oldest.first().map(|entry| entry.id),
            entries,
            held_by: limit.retained_by.map(HeldBy::from),
            no_group: limit.keep_from.is_none(),
        })
    }

    /// Deletes them, some thousands a step, and adds each step to `report`.
    ///
    /// # Errors
    /// When Redis does not answer, or its key holds no stream.
    pub async fn run(&self, plan: &TrimPlan, report: &mut TrimReport, job: &Job) -> anyhow::Result<End> {
        let expected = if self.request.count_all { plan.entries } else { plan.length };
        job.progress.expect(expected, "entries, at most");
        let mut end = End::Stopped;
        while !job.is_stopped() {
            let deleted = self.trimmer.step(plan.cutoff).await.context("Failed to trim the stream")?;
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

impl TrimReport {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(plan: &TrimPlan) -> Self {
        Self { stream: plan.stream.clone(), deleted: 0, length: None }
    }
}

impl From<Retainer> for HeldBy {
    fn from(Retainer { group, id, need }: Retainer) -> Self {
        let why = match need {
            RetainedFor::Pending => Need::Pending,
            RetainedFor::LastDelivered => Need::Unread,
        };
        Self { group, id, why }
    }
}
