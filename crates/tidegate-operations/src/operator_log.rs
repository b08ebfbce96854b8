//! The operators' log: a capped stream in Redis, with two lines for each operation that changes something.

mod line;

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use fred::interfaces::StreamsInterface;
use serde_json::Value as Json;
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, StreamError};
use tokio::time::timeout;

use self::line::{ARGUMENTS, BEGAN, COMMAND, COUNTS, ERROR, OUTCOME, WHO};
pub use self::line::{CommandOutcome, LogLine};
use crate::settings::SystemSettings;

/// The lines that are read at once.
const PAGE: u16 = 1_000;
/// The approximate number of lines that are kept; the oldest lines are deleted first. Each command leaves two lines of
/// about 300 bytes.
const KEPT_LINES: i64 = 10_000;
/// The number of commands that are shown by default.
const LAST: u64 = 20;

/// The request to read commands from the operators' log in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogRequest {
    /// The id of the first log line to read; None: the oldest line.
    pub since: Option<EntryId>,
    /// The number of newest commands to read; None: all commands if `since` is set, otherwise 20.
    pub last: Option<u64>,
}

/// The operators' log in Redis, which records the commands that change data.
#[derive(Clone, Debug)]
pub struct OperatorLog {
    redis: RedisStore,
    key: String,
    patience: Duration,
}

impl OperatorLog {
    /// Creates a reader and writer of the operators' log in this Redis.
    pub fn new(redis: RedisStore, settings: &SystemSettings) -> Self {
        let key = redis.keys().fleet().log().as_str_lossy().into_owned();
        Self { redis, key, patience: settings.redis.command_timeout }
    }

    /// Reads one log line for each command, oldest first: the line about the end of the command, or the line about its
    /// beginning if the command has not ended.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn commands(&self, request: &LogRequest) -> Result<Vec<LogLine>, StreamError> {
        let (mut lines, most) = match (request.since, request.last) {
            (Some(since), last) => (self.all_from(since).await?, last.unwrap_or(u64::MAX)),
            // A command can have two lines.
            (None, last) => (self.last(last.unwrap_or(LAST).saturating_mul(2)).await?, last.unwrap_or(LAST)),
        };
        remove_beginnings(&mut lines);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(lines.split_off(lines.len().saturating_sub(most)))
    }

    /// Reads one page of log lines, beginning with the id `from`, oldest first.
    ///
    /// # Errors
    /// As for [`OperatorLog::commands`].
    pub async fn page(&self, from: EntryId) -> Result<Vec<LogLine>, StreamError> {
        let page = self.redis.inspector().page(&self.key, (from.previous(), EntryId::MAX), PAGE).await?;
        Ok(page.into_iter().map(LogLine::parse).collect())
    }

    async fn all_from(&self, since: EntryId) -> Result<Vec<LogLine>, StreamError> {
        let (mut lines, mut from) = (Vec::new(), since);
        loop {
            lines.extend(self.page(from).await?);
            match lines.last() {
                Some(line) if line.id >= from => from = line.id.next(),
                _ => return Ok(lines),
            }
        }
    }

    async fn last(&self, count: u64) -> Result<Vec<LogLine>, StreamError> {
        let (mut lines, mut before, mut left) = (Vec::new(), EntryId::MAX, count);
        while left > 0 {
            let most = u16::try_from(left).map_or(PAGE, |left| left.min(PAGE));
            let page = self.redis.inspector().page_back(&self.key, (EntryId::MIN, before), most).await?;
            let Some(first) = page.last() else { break };
            (before, left) = (first.id, left - page.len() as u64);
            lines.extend(page.into_iter().map(LogLine::parse));
        }
        lines.reverse();
        Ok(lines)
    }

    /// Writes a log line about a completed step of a command.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses the line.
    pub async fn note(
        &self,
        operation: &LoggedOperation,
        outcome: CommandOutcome,
        counts: &Json,
    ) -> anyhow::Result<()> {
        let fields = vec![(OUTCOME, outcome.word().to_owned()), (COUNTS, counts.to_string())];
        self.write(operation, fields).await.map(|_| ())
    }

    async fn write(
        &self,
        operation: &LoggedOperation,
        mut fields: Vec<(&'static str, String)>,
    ) -> anyhow::Result<String> {
        let LoggedOperation { who, command, arguments } = operation.clone();
        fields.splice(..0, [(WHO, who), (COMMAND, command), (ARGUMENTS, arguments)]);
        self.add(fields).await.context("Failed to write to the log")
    }

    async fn add(&self, fields: Vec<(&str, String)>) -> anyhow::Result<String> {
        let cap = ("MAXLEN", "~", KEPT_LINES);
        let written = self.redis.pool().xadd(&self.key, false, cap, "*", fields);
        // This timeout covers all attempts of the client, because an operator may already have asked twice to stop.
        Ok(timeout(self.patience, written).await.context("Redis does not answer")??)
    }
}

/// Removes the first line of each command whose last line is there.
fn remove_beginnings(lines: &mut Vec<LogLine>) {
    let ended: BTreeSet<String> = lines.iter().filter_map(|line| line.began.clone()).collect();
    lines.retain(|line| !ended.contains(&line.id.to_string()));
}

/// The operation of an operator, with the values that the operators' log stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedOperation {
    /// The operator: USER@HOST, or the name that the operator gave.
    pub who: String,
    /// The name of the operation, such as `voucher load`.
    pub command: String,
    /// The arguments of the operation, quoted for a shell. They never contain a secret.
    pub arguments: String,
}

/// The two log lines of an operation, about its beginning and its end. The operation runs even if the log cannot be
/// written, for example to free memory in a full Redis.
#[derive(Debug)]
pub struct Record {
    log: OperatorLog,
    operation: LoggedOperation,
    began: Option<String>,
}

impl Record {
    /// Creates the record of an operation in the operators' log, and writes no line yet.
    #[must_use]
    pub fn of(log: OperatorLog, operation: LoggedOperation) -> Self {
        Self { log, operation, began: None }
    }

    /// Writes the log line about the beginning of the operation, so that an operation that is killed leaves a trace. A
    /// failed write is ignored, because the operation may free memory in Redis for the line about the end.
    ///
    /// # Errors
    /// If Redis does not answer, or refuses the line.
    pub async fn begin(&mut self) -> anyhow::Result<()> {
        let first = vec![(OUTCOME, CommandOutcome::Began.word().to_owned())];
        self.began = Some(self.log.write(&self.operation, first).await?);
        Ok(())
    }

    /// Writes the log line about the end of the operation, with its outcome.
    ///
    /// # Errors
    /// As for [`Record::begin`].
    pub async fn end(
        &self,
        outcome: CommandOutcome,
        counts: &Json,
        error: Option<&str>,
    ) -> anyhow::Result<()> {
        let mut fields = vec![(OUTCOME, outcome.word().to_owned())];
        fields.extend(self.began.clone().map(|began| (BEGAN, began)));
        if !counts.is_null() {
            fields.push((COUNTS, counts.to_string()));
        }
        fields.extend(error.map(|error| (ERROR, error.to_owned())));
        self.log.write(&self.operation, fields).await.map(|_| ())
    }
}
