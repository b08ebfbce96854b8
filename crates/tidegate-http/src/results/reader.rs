//! A connection to the results stream of a partition, and the results that it reads.

use std::{
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::anyhow;
use tidegate_operations::SystemSettings;
use tidegate_orders::{LimitedLog, PublishedResult, ResultFilter, wire::BadResult};
use tidegate_stream::{Entry, PositionReader, StreamSpan};
use tokio::time::timeout;

use super::{
    cursor::hash,
    position::{Lost, Position, StreamSnapshot},
};

/// The time for which the identity of the server's data is reused if the connection has not reconnected.
const HISTORY_FRESH_FOR: Duration = Duration::from_secs(1);

/// A result that was read from the stream, with the reader's position after it.
#[derive(Debug)]
pub struct ReadResult {
    /// The position after this result.
    pub position: Position,
    /// The result that the entry holds. None: the entry is no result.
    pub result: Option<PublishedResult>,
}

impl ReadResult {
    /// The approximate size of the result in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let texts = |it: &PublishedResult| {
            it.json.len() + it.state.len() + it.kind.len() + it.reference.as_ref().map_or(0, String::len)
        };
        size_of::<Self>() + self.result.as_ref().map_or(0, texts)
    }
}

/// The outcome of reading the results of a partition after a position.
#[derive(Debug)]
pub enum PageOutcome {
    /// The results after the position, from `start`. `is_end` says that there were no more results.
    Results {
        /// The position from which the results were read. It is earlier than the reader's position if the server may
        /// have other data now.
        start: Position,
        /// The results after `start`, in the sequence of the stream.
        results: Vec<Arc<ReadResult>>,
        /// Whether the stream had no further results.
        is_end: bool,
    },
    /// Results after the position were trimmed or lost. Reading can continue at the given position.
    Lost(Position),
    /// Redis does not answer, or the gate has no place for another connection.
    Away,
}

/// A connection to the results stream of a partition.
#[derive(Debug)]
pub struct ResultReader {
    stream: PositionReader,
    history: Mutex<Option<(u64, Instant, u32)>>,
}

impl ResultReader {
    /// Opens a connection to the results stream of the partition with these settings.
    pub async fn open(system: &SystemSettings) -> anyhow::Result<Self> {
        let (redis, connection) = (&system.redis, system.redis.connection());
        let within = redis.connect_timeout + redis.command_timeout;
        let connecting = timeout(within, PositionReader::connect(&connection, &system.stream.results));
        let late = |_| anyhow!("no answer within {} ms", within.as_millis());
        let stream = connecting.await.map_err(late)??;
        Ok(Self { stream, history: Mutex::default() })
    }

    pub fn stream(&self) -> &PositionReader {
        &self.stream
    }

    /// Returns how often the connection has reconnected, and the hash that identifies the data of its server.
    pub async fn history(&self) -> anyhow::Result<(u64, u32)> {
        let reconnects = self.stream.reconnects();
        let known = *self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, since, history)) = known
            && at == reconnects
            && since.elapsed() < HISTORY_FRESH_FOR
        {
            return Ok((at, history));
        }
        let history = hash(&self.stream.history().await?);
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((reconnects, Instant::now(), history));
        Ok((reconnects, history))
    }

    /// Reads a page of results after a position. None: the connection has reconnected meanwhile, so read again.
    pub async fn page(&self, position: &Position, count: u16) -> anyhow::Result<Option<PageOutcome>> {
        let (reconnects, history) = self.history().await?;
        let is_other = position.history.is_some_and(|own| own != history);
        let has_last = is_other && self.stream.has(position.after).await?;
        let view = StreamSnapshot { span: self.stream.span().await?, history };
        let start = match position.resume(&view, has_last) {
            Ok(start) => start,
            Err(Lost(oldest)) => {
                return Ok((self.stream.reconnects() == reconnects).then_some(PageOutcome::Lost(oldest)));
            }
        };
        let entries = self.stream.page(start.after, count).await?;
        // The span comes after the entries: what was trimmed meanwhile may be missing among them.
        let view = StreamSnapshot { span: self.stream.span().await?, history };
        if self.stream.reconnects() != reconnects || !start.is_whole(&view.span) {
            return Ok(None);
        }
        let is_end = entries.last().is_none_or(|last| last.id == view.span.last_id);
        let results = read_results(&start, entries, &view.span);
        Ok(Some(PageOutcome::Results { start, results, is_end }))
    }
}

/// Parses entries that follow `start` without a gap.
pub fn read_results(start: &Position, entries: Vec<Entry>, span: &StreamSpan) -> Vec<Arc<ReadResult>> {
    let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
    let kept = |(entry, position): (Entry, Position)| {
        let read = PublishedResult::read(&entry, &ResultFilter::default());
        let result = read.inspect_err(|error| say_left_out(&entry, *error)).ok().flatten();
        Arc::new(ReadResult { position, result })
    };
    entries.into_iter().zip(start.over(&ids, span)).map(kept).collect()
}

/// Logs that followers do not get an entry. Each follower may come across it, so few lines are logged.
fn say_left_out(entry: &Entry, error: BadResult) {
    static LOG: LazyLock<Arc<LimitedLog>> = LazyLock::new(|| {
        Arc::new(LimitedLog::new("more entries of the results stream were left out: they are not results"))
    });
    if LOG.is_shown(error.field) {
        tracing::warn!(
            id = %entry.id, %error,
            "the gate leaves out an entry of the results stream: it is not a result"
        );
    }
}
