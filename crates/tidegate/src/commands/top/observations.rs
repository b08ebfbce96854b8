//! What was read last of Redis, of MySQL and of the worker of this machine, and since when one of them is away.

use std::time::{Duration, Instant};

use tidegate_operations::{
    SystemSettings,
    watch::{Reading, RedisOverview},
};
use tidegate_orders::records::vouchers::VoucherRow;

use super::worker_page::WorkerPage;

/// Everything that is known.
#[derive(Debug)]
pub struct Observations {
    /// Key of the stream.
    pub stream: String,
    /// Name of the group.
    pub group: String,
    /// Between two polls.
    pub every: Duration,
    /// Of Redis.
    pub redis: Observed<RedisOverview>,
    /// Of MySQL: the vouchers with the highest ids.
    pub mysql: Observed<Vec<VoucherRow>>,
    /// Of the worker of this machine, if there is one.
    pub worker: Observed<WorkerPage>,
}

/// The last two answers of one source, and since when it is away.
#[derive(Debug)]
pub struct Observed<T> {
    last: Option<Reading<T>>,
    before: Option<Reading<T>>,
    outage: Option<SourceOutage>,
}

/// A source does not answer.
#[derive(Debug)]
pub struct SourceOutage {
    /// Since the first poll that failed.
    pub since: Instant,
    /// Why the last one failed.
    pub error: String,
}

/// One poll of a source.
#[derive(Debug)]
pub struct Poll<T> {
    /// When it began.
    pub began: Instant,
    /// The answer, or why there is none.
    pub result: Result<Reading<T>, String>,
}

/// A poll, by what was polled.
#[derive(Debug)]
pub enum PollOf {
    /// Redis.
    Redis(Box<Poll<RedisOverview>>),
    /// MySQL.
    MySql(Poll<Vec<VoucherRow>>),
    /// The worker of this machine.
    Worker(Poll<WorkerPage>),
}

impl Observations {
    /// Nothing is known yet.
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

    /// Takes a poll into account.
    pub fn record(&mut self, poll: PollOf) {
        match poll {
            PollOf::Redis(poll) => self.redis.record(*poll),
            PollOf::MySql(poll) => self.mysql.record(poll),
            PollOf::Worker(poll) => self.worker.record(poll),
        }
    }
}

impl<T> Default for Observed<T> {
    /// It was not polled yet.
    fn default() -> Self {
        Self { last: None, before: None, outage: None }
    }
}

impl<T> Observed<T> {
    /// Takes a poll into account.
    pub fn record(&mut self, poll: Poll<T>) {
        match poll.result {
            Ok(reading) => {
                let last = self.last.replace(reading);
                // Across an outage there is no rate: nobody knows what the store forgot meanwhile.
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

    /// Since when the source is away, and why.
    pub fn outage(&self) -> Option<&SourceOutage> {
        self.outage.as_ref()
    }

    /// How long ago the last answer came.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last.as_ref().map(|reading| now.saturating_duration_since(reading.at))
    }

    /// How fast a counter grew between the last two answers, per second. None where one of them is unknown, the source
    /// is away, or the counter fell: somebody has reset it, and what it counted before is unknown.
    pub fn rate(&self, counter: impl Fn(&T) -> Option<u64>) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = counter(&last.value)?.checked_sub(counter(&before.value)?)?;
        let seconds = last.at.saturating_duration_since(before.at).as_secs_f64();
        (self.outage.is_none() && seconds > 0.0).then(|| grown as f64 / seconds)
    }
}
