//! The operators' log: a capped stream in Redis. Its fields are named here and nowhere else.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use fred::{clients::Pool, interfaces::StreamsInterface, types::Key};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value as Json;
use tidegate_orders::Keys;
use tidegate_stream::EntryId;
use tokio::time::timeout;

use super::typed::Typed;
use crate::{config::Settings, connect, output::tell};

const WHO: &str = "who";
const COMMAND: &str = "command";
const ARGUMENTS: &str = "arguments";
const OUTCOME: &str = "outcome";
const BEGAN: &str = "began";
const COUNTS: &str = "counts";
const ERROR: &str = "error";

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It begins. Without a later line that names it, it is at work, or it was killed.
    Began,
    /// All was done.
    Done,
    /// The stores refused it, or a part of it.
    Refused,
    /// A signal stopped it before all was done.
    Stopped,
    /// It failed.
    Failed,
}

impl Outcome {
    /// All of them.
    const ALL: [Self; 5] = [Self::Began, Self::Done, Self::Refused, Self::Stopped, Self::Failed];

    /// Its word in the log.
    pub fn word(self) -> &'static str {
        match self {
            Self::Began => "began",
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its entry in the stream.
    #[serde(serialize_with = "as_text")]
    pub id: EntryId,
    /// When it was written, by the clock of Redis.
    pub at: Option<Timestamp>,
    /// Who typed the command.
    pub who: String,
    /// Its words.
    pub command: String,
    /// Its flags, without those of the configuration.
    pub arguments: String,
    /// None: another version wrote something unknown.
    pub outcome: Option<Outcome>,
    /// The line with which it began; None for that line itself.
    pub began: Option<String>,
    /// What was done, in numbers.
    pub counts: Option<Json>,
    /// Why it failed.
    pub error: Option<String>,
}

fn as_text<S: serde::Serializer>(id: &EntryId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// The door to the log.
#[derive(Clone, Debug)]
pub struct OperatorLog {
    pool: Pool,
    key: Key,
    lines: u32,
    patience: Duration,
}

impl OperatorLog {
    /// The log in the Redis behind `pool`.
    pub fn new(pool: Pool, settings: &Settings) -> Self {
        let key = Keys::new(settings.keys.clone()).log();
        Self { pool, key, lines: settings.operator.log_lines, patience: settings.redis.command_timeout }
    }

    async fn add(&self, fields: Vec<(&str, String)>) -> anyhow::Result<String> {
        let cap = ("MAXLEN", "~", i64::from(self.lines));
        let written = self.pool.xadd(&self.key, false, cap, "*", fields);
        // In all, however often the client tries: somebody may have asked twice to be let go.
        Ok(timeout(self.patience, written).await.context("Redis does not answer")??)
    }

    /// Up to `count` lines from `from` on, oldest first.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn read(&self, from: EntryId, count: u64) -> anyhow::Result<Vec<Line>> {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            self.pool.xrange(&self.key, from.to_string(), "+", Some(count)).await?;
        entries.into_iter().map(line).collect()
    }

    /// The last `count` lines, oldest first.
    ///
    /// # Errors
    /// As [`OperatorLog::read`].
    pub async fn last(&self, count: u64) -> anyhow::Result<Vec<Line>> {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            self.pool.xrevrange(&self.key, "+", "-", Some(count)).await?;
        entries.into_iter().rev().map(line).collect()
    }
}

fn line((id, mut fields): (String, BTreeMap<String, String>)) -> anyhow::Result<Line> {
    let id: EntryId = id.parse()?;
    let mut text = |name: &str| fields.remove(name);
    let outcome = text(OUTCOME);
    Ok(Line {
        id,
        at: i64::try_from(id.ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()),
        who: text(WHO).unwrap_or_default(),
        command: text(COMMAND).unwrap_or_default(),
        arguments: text(ARGUMENTS).unwrap_or_default(),
        outcome: Outcome::ALL.into_iter().find(|known| outcome.as_deref() == Some(known.word())),
        began: text(BEGAN),
        counts: text(COUNTS).and_then(|counts| serde_json::from_str(&counts).ok()),
        error: text(ERROR),
    })
}

/// The two lines of one command.
///
/// That a line cannot be written does not stop the command, which says so: what makes room in a full Redis, or is
/// done while it is away, must go on.
#[derive(Debug)]
pub(super) struct Record {
    log: Option<OperatorLog>,
    typed: Typed,
    began: Option<String>,
}

impl Record {
    /// Writes the first line.
    pub(super) async fn begin(settings: &Settings, typed: Typed) -> Self {
        let log = match connect::redis(settings).await {
            Ok(pool) => Some(OperatorLog::new(pool, settings)),
            Err(error) => {
                tell(&format!("warning: `tidegate log` will not show this: {error:#}"));
                None
            }
        };
        let mut record = Self { log, typed, began: None };
        record.began = record.write(vec![(OUTCOME, Outcome::Began.word().to_owned())]).await;
        record
    }

    /// What was typed.
    pub(super) fn typed(&self) -> &Typed {
        &self.typed
    }

    /// Writes the second line.
    pub(super) async fn end(&self, outcome: Outcome, counts: &Json, error: Option<&str>) {
        let mut fields = vec![(OUTCOME, outcome.word().to_owned())];
        fields.extend(self.began.clone().map(|began| (BEGAN, began)));
        if !counts.is_null() {
            fields.push((COUNTS, counts.to_string()));
        }
        fields.extend(error.map(|error| (ERROR, error.to_owned())));
        self.write(fields).await;
    }

    async fn write(&self, mut fields: Vec<(&'static str, String)>) -> Option<String> {
        let log = self.log.as_ref()?;
        let Typed { who, command, .. } = self.typed.clone();
        fields.splice(..0, [(WHO, who), (COMMAND, command), (ARGUMENTS, self.typed.quoted())]);
        let written = log.add(fields).await.context("Failed to write to the log");
        written
            .map_err(|error| tell(&format!("warning: `tidegate log` will not show all of this: {error:#}")))
            .ok()
    }
}
