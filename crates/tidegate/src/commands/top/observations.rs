//! The last readings of Redis, MySQL and the worker of this machine, and since when one of them is away.

use std::time::{Duration, Instant};

use tidegate_operations::{
    SystemSettings,
    watch::{Reading, RedisOverview},
};
use tidegate_orders::records::vouchers::VoucherRow;

use super::worker_page::WorkerPage;

/// The readings of all sources.
#[derive(Debug)]
pub struct Observations {
    /// The key of the stream.
    pub stream: String,
    /// The name of the group.
    pub group: String,
    /// The time between two polls.
    pub every: Duration,
    /// The readings of Redis and its stream.
    pub redis: Observed<RedisOverview>,
    /// The readings of MySQL: the vouchers with the highest ids.
    pub mysql: Observed<Vec<VoucherRow>>,
    /// The readings of the worker of this machine, if there is one.
    pub worker: Observed<WorkerPage>,
}

/// The last two answers of one source, and its outage.
#[derive(Debug)]
pub struct Observed<T> {
    last: Option<Reading<T>>,
    before: Option<Reading<T>>,
    outage: Option<SourceOutage>,
}

/// The outage of a source.
#[derive(Debug)]
pub struct SourceOutage {
    /// The time of the first poll that failed.
    pub since: Instant,
    /// The error of the last poll.
    pub error: String,
}

/// One poll of a source.
#[derive(Debug)]
pub struct Poll<T> {
    /// The time at which the poll began.
    pub began: Instant,
    /// The answer, or the reason why there is none.
    pub result: Result<Reading<T>, String>,
}

/// A poll, by its source.
#[derive(Debug)]
pub enum PollOf {
    /// A poll of Redis.
    Redis(Box<Poll<RedisOverview>>),
    /// A poll of MySQL.
    MySql(Poll<Vec<VoucherRow>>),
    /// A poll of the worker of this machine.
    Worker(Poll<WorkerPage>),
}

impl Observations {
    /// Creates observations without any reading.
    pub fn new(settings: &SystemSettings, every: Duration) -> Self {
        Self {
            stream: settings.stream.name.clone(),
            group: settings.stream.group.clone(),
            every,
            redis: Observed::default(),
            mysql: Observed::default(),
            worker: Observed::default(),
        }
    }

    /// Records a poll of any source.
    pub fn record(&mut self, poll: PollOf) {
        match poll {
            PollOf::Redis(poll) => self.redis.record(*poll),
            PollOf::MySql(poll) => self.mysql.record(poll),
            PollOf::Worker(poll) => self.worker.record(poll),
        }
    }
}

impl<T> Default for Observed<T> {
    /// Creates a source that was not polled yet.
    fn default() -> Self {
        Self { last: None, before: None, outage: None }
    }
}

impl<T> Observed<T> {
    /// Records a poll of this source.
    pub fn record(&mut self, poll: Poll<T>) {
        match poll.result {
            Ok(reading) => {
                let last = self.last.replace(reading);
                // There is no rate across an outage, because the store may have lost data meanwhile.
                self.before = if self.outage.take().is_none() { last } else { None };
            }
            Err(error) => {
                let since = self.outage.as_ref().map_or(poll.began, |outage| outage.since);
                self.outage = Some(SourceOutage { since, error });
            }
        }
    }

    /// The last answer, however old.
    pub fn last(&self) -> Option<&T> {
        self.last.as_ref().map(|reading| &reading.value)
    }

    /// The last answer, unless the source is away by now.
    pub fn current(&self) -> Option<&T> {
        self.last().filter(|_| self.outage.is_none())
    }

    /// The outage of the source, if it is away.
    pub fn outage(&self) -> Option<&SourceOutage> {
        self.outage.as_ref()
    }

    /// The time since the last answer.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last.as_ref().map(|reading| now.saturating_duration_since(reading.at))
    }

    /// The growth of a counter between the last two answers, per second. None if one answer is unknown, the source is
    /// away, or the counter fell: it was reset, and its count before the reset is unknown.
    pub fn rate(&self, counter: impl Fn(&T) -> Option<u64>) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = counter(&last.value)?.checked_sub(counter(&before.value)?)?;
        let seconds = last.at.saturating_duration_since(before.at).as_secs_f64();
        (self.outage.is_none() && seconds > 0.0).then(|| grown as f64 / seconds)
    }
}
