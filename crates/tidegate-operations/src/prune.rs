//! Prunes old final data: refusals, events of orders that have ended, dead letters whose orders have ended. It deletes
//! each only if nothing can bring its order again.
//!
//! Rows are deleted in small chunks by primary key, each in its own transaction. After each chunk, the command sleeps
//! for as long as the chunk took. If it is stopped or killed, the next run deletes the rest.

mod events;
mod letters;
mod named;
mod refusals;

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{DeadLetters, Partition, Records, RedisStore};
use tidegate_stream::{KeyKind, StreamInspector, StreamNames, inspect};
use tokio::time::{Instant, sleep};

use self::named::NamedOrders;
use crate::{
    Stores,
    change::{End, Next, Plan, Report},
};

/// The rows that one transaction deletes at most, or a few more.
const CHUNK: usize = 1_000;
/// The orders that are read at once. MariaDB turns a list of a thousand ids into a subquery.
const ORDERS: usize = CHUNK / 2;

/// A kind of old data that can be deleted: refusals, events or dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PruneKind {
    /// The rows of the table `tidegate_refusal`.
    Refusals,
    /// The rows of the table `tidegate_event`.
    Events,
    /// The dead letters whose orders have ended in MySQL.
    DeadLetters,
}

/// The request to delete old data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PruneRequest {
    /// The minimum age of the data to delete: by the clock of MySQL for rows, by the clock of Redis for dead letters.
    pub older_than: Duration,
    /// The kinds of data to delete, such as refusals or events.
    pub kinds: BTreeSet<PruneKind>,
}

/// The number of deleted items and the number of kept items, for one kind of old data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneCount {
    /// The number of rows or dead letters that would be deleted, or were deleted.
    pub purged: u64,
    /// The number of old rows or dead letters that stay, because they may still be necessary.
    pub kept: u64,
}

/// The plan or the report of deleting old data, with the counts of each kind. None: the request does not include this
/// kind of data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PruneCounts {
    /// The counts for the rows of `tidegate_refusal`.
    pub refusals: Option<PruneCount>,
    /// The counts for the rows of `tidegate_event`.
    pub events: Option<PruneCount>,
    /// The counts for the dead letters.
    pub dead_letters: Option<PruneCount>,
}

impl PruneCounts {
    fn of(&mut self, kind: PruneKind) -> &mut PruneCount {
        let count = match kind {
            PruneKind::Refusals => &mut self.refusals,
            PruneKind::Events => &mut self.events,
            PruneKind::DeadLetters => &mut self.dead_letters,
        };
        count.get_or_insert_default()
    }

    /// Returns the count of each kind of data, with the singular English word for the kind. None: the request does not
    /// include this kind.
    #[must_use]
    pub const fn by_noun(&self) -> [(Option<PruneCount>, &'static str); 3] {
        [(self.refusals, "refusal"), (self.events, "event"), (self.dead_letters, "dead letter")]
    }

    fn purged(&self) -> u64 {
        self.by_noun().into_iter().filter_map(|(count, _)| count).map(|count| count.purged).sum()
    }

    /// Formats the counts: `3 refusals, 5 events`.
    fn words(&self) -> String {
        let words = self.by_noun().into_iter();
        let words = words.filter_map(|(count, noun)| Some(counted(count?.purged, noun)));
        words.collect::<Vec<_>>().join(", ")
    }
}

impl Plan for PruneCounts {
    fn next(&self) -> Next {
        match self.purged() {
            0 => Next::NothingToDo,
            _ => Next::Ask(format!("Delete {} for good?", self.words())),
        }
    }
}

impl Report for PruneCounts {
    fn counts(&self) -> Json {
        json!(self)
    }

    fn torn(&self) -> &'static str {
        "the last rows may or may not be deleted; run the same command again to continue"
    }
}

/// Whether the run only counts, or also deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Count,
    Delete,
}

/// The operation that deletes old rows and dead letters of one partition.
#[derive(Debug)]
pub struct Prune {
    redis: RedisStore,
    mysql: MySqlPool,
    dead: DeadLetters,
    inspector: StreamInspector,
    names: StreamNames,
    /// The partition whose rows are pruned. The records that name orders of other partitions are in their own streams,
    /// journals and dead letters.
    partition: Partition,
    request: PruneRequest,
}

impl Prune {
    /// Connects to Redis and MySQL of the partition.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn connect(stores: &Stores, request: PruneRequest) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let (redis, mysql) = (redis.clone(), mysql.clone());
        let (names, partition) = (redis.inspector().names().clone(), redis.keys().partition().clone());
        let (dead, inspector) = (DeadLetters::new(redis.clone()), redis.inspector().clone());
        Ok(Self { redis, mysql, dead, inspector, names, partition, request })
    }

    /// Counts the rows and dead letters that would be deleted.
    ///
    /// # Errors
    /// If a store does not answer, or the stream cannot be read.
    pub async fn plan(&self, job: &Job) -> anyhow::Result<PruneCounts> {
        let mut counts = PruneCounts::default();
        self.go(Mode::Count, &mut counts, job).await?;
        Ok(counts)
    }

    /// Deletes the rows and dead letters that are old enough at the time of the call.
    ///
    /// # Errors
    /// As for [`Prune::plan`]. What `report` counts is deleted.
    pub async fn run(&self, report: &mut PruneCounts, job: &Job) -> anyhow::Result<End> {
        self.go(Mode::Delete, report, job).await
    }

    fn records(&self) -> Records<'_> {
        Records::new(&self.mysql, &self.partition)
    }

    async fn go(&self, mode: Mode, counts: &mut PruneCounts, job: &Job) -> anyhow::Result<End> {
        let status = inspect(&self.redis, &self.names).await.context("Failed to read the stream")?;
        let stream = &self.names.stream;
        match status.kind {
            KeyKind::Stream => {}
            KeyKind::Missing => anyhow::bail!(
                "Failed to read the stream: {stream} does not exist, so Tidegate cannot know which orders may be delivered \
                 again; nothing was pruned"
            ),
            KeyKind::Other(kind) => anyhow::bail!("Failed to read the stream: {stream} is a {kind}"),
        }
        let fields = self.dead.fields();
        let now_s = self.records().now_s().await.context("Failed to read the clock of MySQL")?;
        let older_than_s = i64::try_from(self.request.older_than.as_secs()).unwrap_or(i64::MAX);
        let before_s = now_s.saturating_sub(older_than_s).max(0);
        let named = NamedOrders::read(&self.inspector, &self.dead, fields, before_s, job).await;
        let named = named.context("Failed to read the stream and the dead letters")?;
        let Some(named) = named else { return Ok(End::Stopped) };
        for kind in &self.request.kinds {
            let count = counts.of(*kind);
            let end = match kind {
                PruneKind::Refusals => {
                    by_bites(mode, job, async |after| self.refusals((mode, &named), after, count).await)
                        .await?
                }
                PruneKind::Events => {
                    by_bites(mode, job, async |after| self.events((mode, &named), after, count).await).await?
                }
                PruneKind::DeadLetters => self.letters(mode, count, job).await?,
            };
            if end == End::Stopped {
                return Ok(End::Stopped);
            }
        }
        Ok(End::Whole)
    }
}

/// Processes chunk by chunk, sorted by id. Each call gets the last order of the previous chunk, and returns the last
/// order that it read; None: there was none left.
async fn by_bites(
    mode: Mode,
    job: &Job,
    mut chunk: impl AsyncFnMut(i64) -> anyhow::Result<Option<i64>>,
) -> anyhow::Result<End> {
    let mut after = 0;
    while !job.is_stopped() {
        let began = Instant::now();
        let Some(last) = chunk(after).await? else { return Ok(End::Whole) };
        after = last;
        rest(mode, began, job).await;
    }
    Ok(End::Stopped)
}

/// Sleeps for as long as the chunk took that began at `began`, because other programs use the stores, too.
async fn rest(mode: Mode, began: Instant, job: &Job) {
    if mode == Mode::Delete {
        let _stopped = job.stop.run_until_cancelled(sleep(began.elapsed())).await;
    }
}
