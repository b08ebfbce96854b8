//! What was seen, and when: of Redis, of MySQL, and of the worker on this machine.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tidegate_orders::{VoucherId, vouchers::VoucherRow};

use super::worker_page::WorkerPage;
use crate::{config::Settings, fleet_pause::FleetPause, status::StreamView};

/// Everything that is known.
#[derive(Debug)]
pub struct Facts {
    /// Key of the stream.
    pub stream: String,
    /// Name of the group.
    pub group: String,
    /// Between two looks.
    pub every: Duration,
    /// Of Redis.
    pub redis: Seen<RedisFacts>,
    /// Of MySQL: the vouchers with the highest ids.
    pub mysql: Seen<Vec<VoucherRow>>,
    /// Of the worker on this machine, if there is one.
    pub worker: Seen<WorkerPage>,
}

/// What Redis told.
#[derive(Debug)]
pub struct RedisFacts {
    /// The stream, its group and its consumers.
    pub stream: StreamView,
    /// The pause of all workers.
    pub pause: Option<FleetPause>,
    /// The newest dead letters.
    pub letters: Letters,
    /// Vouchers that MySQL knows.
    pub sales: BTreeMap<VoucherId, Sale>,
}

/// The newest dead letters.
#[derive(Debug, Default)]
pub struct Letters {
    /// Age of the newest.
    pub newest_s: Option<f64>,
    /// How many of the newest have which reason.
    pub reasons: BTreeMap<String, u64>,
}

/// A voucher in Redis.
#[derive(Clone, Copy, Debug)]
pub struct Sale {
    /// Units left; None: no stock is loaded.
    pub stock: Option<i64>,
    /// An operator stopped the sale.
    pub is_paused: bool,
}

/// What one source told, and since when it is silent.
#[derive(Debug)]
pub struct Seen<T> {
    last: Option<Told<T>>,
    before: Option<Told<T>>,
    away: Option<Away>,
}

/// An answer.
#[derive(Debug)]
pub struct Told<T> {
    /// When its counters were read. To connect before it, or to read more behind it, may take as long as a rate is made
    /// of.
    pub at: Instant,
    /// What was told.
    pub what: T,
}

/// There is no answer.
#[derive(Debug)]
pub struct Away {
    /// Since the first look that failed.
    pub since: Instant,
    /// What the last one failed of.
    pub why: String,
}

/// One look at a source.
#[derive(Debug)]
pub struct Look<T> {
    /// When it began.
    pub began: Instant,
    /// What the source told, or why it did not.
    pub told: Result<Told<T>, String>,
}

impl Facts {
    /// Nothing is known yet.
    pub fn new(settings: &Settings, every: Duration) -> Self {
        Self {
            stream: settings.stream.name.clone(),
            group: settings.stream.group.clone(),
            every,
            redis: Seen::default(),
            mysql: Seen::default(),
            worker: Seen::default(),
        }
    }
}

impl<T> Default for Seen<T> {
    /// Nobody has looked yet.
    fn default() -> Self {
        Self { last: None, before: None, away: None }
    }
}

impl<T> Seen<T> {
    /// Takes a look into account.
    pub fn hear(&mut self, look: Look<T>) {
        match look.told {
            Ok(told) => {
                let last = self.last.replace(told);
                // Across an outage there is no rate: nobody knows what the store forgot meanwhile.
                self.before = if self.away.take().is_none() { last } else { None };
            }
            Err(why) => {
                let since = self.away.as_ref().map_or(look.began, |away| away.since);
                self.away = Some(Away { since, why });
            }
        }
    }

    /// The last answer, however old.
    pub fn last(&self) -> Option<&T> {
        self.last.as_ref().map(|told| &told.what)
    }

    /// The last answer, unless the source is away by now.
    pub fn current(&self) -> Option<&T> {
        self.last().filter(|_| self.away.is_none())
    }

    /// Since when the source is silent, and why.
    pub fn away(&self) -> Option<&Away> {
        self.away.as_ref()
    }

    /// How long ago the last answer came.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.last.as_ref().map(|told| now.saturating_duration_since(told.at))
    }

    /// How fast a counter grew between the last two answers, per second. None where one of them is unknown, the source
    /// is away, or the counter fell: somebody made it anew, and what it counted before is unknown.
    pub fn rate(&self, counter: impl Fn(&T) -> Option<u64>) -> Option<f64> {
        let (last, before) = (self.last.as_ref()?, self.before.as_ref()?);
        let grown = counter(&last.what)?.checked_sub(counter(&before.what)?)?;
        let seconds = last.at.saturating_duration_since(before.at).as_secs_f64();
        (self.away.is_none() && seconds > 0.0).then(|| grown as f64 / seconds)
    }
}
