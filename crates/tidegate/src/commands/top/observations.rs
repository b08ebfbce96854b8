//! The last readings of Redis, MySQL and the worker of this machine, and their outages.

use std::time::{Duration, Instant};

use tidegate_operations::{
    SystemSettings,
    watch::{Reading, RedisOverview},
};
use tidegate_orders::records::vouchers::VoucherRow;

use super::worker_page::WorkerPage;

/// The answers of the three sources that the live view shows: Redis, MySQL and the worker of this machine.
#[derive(Debug)]
pub struct Observations {
    /// The key of the stream.
    pub stream: String,
    /// The name of the consumer group.
    pub group: String,
    /// The time between two polls of a source.
    pub every: Duration,
    /// The last answers of Redis, with the values of the stream.
    pub redis: Observed<RedisOverview>,
    /// The last answers of MySQL, with the vouchers that have the highest ids.
    pub mysql: Observed<Vec<VoucherRow>>,
    /// The last answers of the worker of this machine, if a worker runs here.
    pub worker: Observed<WorkerPage>,
}

/// The last two answers of one source (Redis, MySQL or a worker), and the time for which the source has not answered.
#[derive(Debug)]
pub struct Observed<T> {
    last: Option<Reading<T>>,
    before: Option<Reading<T>>,
    outage: Option<SourceOutage>,
}

/// The time for which a source (Redis, MySQL or a worker) has not answered, with the error.
#[derive(Debug)]
pub struct SourceOutage {
    /// The time at which the first poll without an answer began.
    pub since: Instant,
    /// The error of the last poll of the source.
    pub error: String,
}

/// The result of asking one source (Redis, MySQL or a worker) once.
#[derive(Debug)]
pub struct Poll<T> {
    /// The time at which the poll began.
    pub began: Instant,
    /// The answer of the source, or the error of the poll.
    pub result: Result<Reading<T>, String>,
}

/// The result of asking one of the three sources once: Redis, MySQL or a worker.
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
    /// Creates observations of sources that have not answered yet.
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

    /// Records the result of a poll of any source.
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
    /// Records the result of a poll of this source.
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

    /// The last answer of the source, even if the source does not answer now.
    pub fn last(&self) -> Option<&T> {
        self.last.as_ref().map(|reading| &reading.value)
    }

    /// The last answer of the source; None while the source does not answer.
    pub fn current(&self) -> Option<&T> {
        self.last().filter(|_| self.outage.is_none())
    }

    /// The time and the error since the source stopped answering; None if the last poll succeeded.
    pub fn outage(&self) -> Option<&SourceOutage> {
        self.outage.as_ref()
    }

    /// The time since the last answer of the source.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last.as_ref().map(|reading| now.saturating_duration_since(reading.at))
    }

    /// The growth of a counter per second, between the last two answers. None if an answer is missing, if the source
    /// does not answer now, or if the counter was reset.
    pub fn rate(&self, counter: impl Fn(&T) -> Option<u64>) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = counter(&last.value)?.checked_sub(counter(&before.value)?)?;
        let seconds = last.at.saturating_duration_since(before.at).as_secs_f64();
        (self.outage.is_none() && seconds > 0.0).then(|| grown as f64 / seconds)
    }
}
