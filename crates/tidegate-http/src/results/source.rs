//! The results of one partition: pages from Redis, and the newest results from the memory of the shared reader.

use std::{
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::{Duration, Instant},
};

use anyhow::anyhow;
use tidegate_operations::SystemSettings;
use tidegate_stream::StreamError;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::{
    counts::ResultCounts,
    newest::{FollowGuard, NewestResults},
    position::{Position, StreamSnapshot},
    reader::{PageOutcome, ResultReader},
};

/// The number of pages that the followers of a partition read from Redis at the same time.
const PAGES: usize = 2;
/// The time after a failed read for which a partition counts as away without another read.
const AWAY_FOR: Duration = Duration::from_secs(2);
/// The number of attempts to read a page over a connection that reconnects.
const ATTEMPTS: usize = 3;

/// The results of one partition, for all followers of the process.
#[derive(Debug)]
pub struct ResultSource {
    system: SystemSettings,
    link: AsyncMutex<Option<Arc<ResultReader>>>,
    pages: Semaphore,
    away_since: Mutex<Option<Instant>>,
    refusal_said: Once,
    tail: Arc<NewestResults>,
    counts: Arc<ResultCounts>,
}

impl ResultSource {
    /// Creates the source of results of the partition with these settings, in a gate that serves `served` partitions. It
    /// connects at the first read, and stops at `stop`.
    pub fn new(
        system: SystemSettings,
        served: usize,
        counts: Arc<ResultCounts>,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let (link, pages) = (AsyncMutex::default(), Semaphore::new(PAGES));
        let (away_since, refusal_said) = (Mutex::default(), Once::new());
        let tail = NewestResults::new(system.clone(), served, Arc::clone(&counts), stop);
        Arc::new(Self { system, link, pages, away_since, refusal_said, tail, counts })
    }

    /// The tag of the partition, or "" in a system without partitions.
    pub fn tag(&self) -> &str {
        self.system.partition().tag().unwrap_or_default()
    }

    /// Adds a follower, for which the shared reader of the partition reads.
    pub fn follow(&self) -> FollowGuard {
        NewestResults::follow(&self.tail)
    }

    /// Reads up to `count` results after a position: from memory if the shared reader has them, otherwise from Redis.
    pub async fn read(&self, position: &Position, count: u16) -> PageOutcome {
        if let Some((results, is_end)) = self.tail.read(position, usize::from(count)) {
            return PageOutcome::Results { start: position.clone(), results, is_end };
        }
        if self.is_away() {
            return PageOutcome::Away;
        }
        match self.page(position, count).await {
            Ok(reading) => reading,
            Err(error) => {
                self.note_away(&error);
                PageOutcome::Away
            }
        }
    }

    async fn page(&self, position: &Position, count: u16) -> anyhow::Result<PageOutcome> {
        let _turn = self.pages.acquire().await?;
        if self.is_away() {
            // The reader before this one has waited for Redis in vain.
            return Ok(PageOutcome::Away);
        }
        let link = self.link().await?;
        self.counts.page_read();
        for _ in 0..ATTEMPTS {
            if let Some(reading) = link.page(position, count).await? {
                return Ok(reading);
            }
        }
        Err(anyhow!("Redis reconnects or trims results during each attempt to read them"))
    }

    /// Returns the position after the newest result.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn latest(&self) -> anyhow::Result<Position> {
        let link = self.link().await.inspect_err(|error| self.note_away(error))?;
        let (_, history) = link.history().await?;
        let span = link.stream().span().await?;
        Ok(Position::latest(&StreamSnapshot { span, history }))
    }

    async fn link(&self) -> anyhow::Result<Arc<ResultReader>> {
        let mut link = self.link.lock().await;
        if let Some(link) = &*link {
            return Ok(Arc::clone(link));
        }
        let opened = Arc::new(ResultReader::open(&self.system).await?);
        *link = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Closes the connection for pages. The shared reader closes its own.
    pub async fn close(&self) {
        if let Some(link) = self.link.lock().await.take() {
            link.stream().close().await;
        }
    }

    /// Returns a receiver that changes when the shared reader has new results.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.tail.changes()
    }

    fn is_away(&self) -> bool {
        self.tail.is_away() || self.away_since().is_some_and(|since| since.elapsed() < AWAY_FOR)
    }

    fn note_away(&self, error: &anyhow::Error) {
        tracing::debug!(partition = self.tag(), error = &**error, "cannot read results");
        *self.away_since() = Some(Instant::now());
        let is_refusal = match error.downcast_ref() {
            Some(StreamError::Redis(error)) => error.is_refusal(),
            _ => false,
        };
        if is_refusal {
            self.refusal_said.call_once(|| {
                tracing::warn!(
                    key = self.system.stream.results, error = &**error,
                    "the gate cannot read results, because Redis refuses it: allow the gate's Redis user what \
                     config/redis-users.acl allows, or remove the key if it is not a stream"
                );
            });
        }
    }

    fn away_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.away_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
