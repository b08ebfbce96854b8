//! The present activity of a lane, for commands and metrics.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;

/// An activity of a lane (a consumer of the group), such as reading or handling a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// The lane was created, and has not started.
    Starting,
    /// The lane reads or claims entries, or waits for new ones.
    Reading,
    /// The handler of the lane works on a batch.
    Handling,
    /// The lane acknowledges and buries entries.
    Settling,
    /// The lane waits because the breaker is open: a store is unavailable.
    WaitingForStores,
    /// The lane waits before it tries again after an error, or because the limit of set-aside entries is reached.
    BackingOff,
    /// The lane is paused: it has no batch in progress, and reads nothing.
    Paused,
    /// The lane waits for another lane that reads, or that handles an entry alone because this entry crashed processes.
    Yielding,
    /// The lane has ended its work.
    Stopped,
}

impl Activity {
    /// All activities that a lane (a consumer of the group) can have.
    pub const ALL: [Self; 9] = [
        Self::Starting,
        Self::Reading,
        Self::Handling,
        Self::Settling,
        Self::WaitingForStores,
        Self::BackingOff,
        Self::Paused,
        Self::Yielding,
        Self::Stopped,
    ];

    /// Returns the name of the activity in logs and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Reading => "reading",
            Self::Handling => "handling",
            Self::Settling => "settling",
            Self::WaitingForStores => "waiting_for_stores",
            Self::BackingOff => "backing_off",
            Self::Paused => "paused",
            Self::Yielding => "yielding",
            Self::Stopped => "stopped",
        }
    }

    /// Returns whether a healthy lane (consumer) may stay in this activity for any length of time. All other activities
    /// have timeouts.
    #[must_use]
    pub fn may_last(self) -> bool {
        matches!(self, Self::WaitingForStores | Self::Paused | Self::Yielding | Self::Stopped)
    }

    /// Returns whether a lane (consumer) in this activity may hold entries that it has read and neither acknowledged
    /// nor left for a retry.
    #[must_use]
    pub fn may_hold_entries(self) -> bool {
        !matches!(self, Self::Starting | Self::WaitingForStores | Self::Paused | Self::Stopped)
    }
}

/// The status of a lane (a consumer of the group), which the lane writes and other tasks read. A lane changes its
/// status a few times per batch.
#[derive(Debug)]
pub struct LaneStatus {
    consumer: String,
    now: Mutex<Now>,
}

#[derive(Clone, Copy, Debug)]
struct Now {
    activity: Activity,
    since: Instant,
    turn_since: Instant,
    in_progress: usize,
    turns: u64,
}

/// The status of a lane (a consumer of the group) at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// The name of the consumer whose status this is.
    pub consumer: String,
    /// The present activity of the consumer, such as reading.
    pub activity: Activity,
    /// The time for which the present activity has lasted.
    pub lasting: Duration,
    /// The time since the present turn of the consumer's main loop began. A turn includes the read of its entries, so
    /// all entries in progress were read within this time.
    pub turn_lasting: Duration,
    /// The number of entries in the batch that the consumer is handling. 0: the consumer is between batches.
    pub in_progress: usize,
    /// The number of turns that the consumer's main loop has begun.
    pub turns: u64,
}

impl LaneStatus {
    pub(crate) fn new(consumer: &str) -> Self {
        let since = Instant::now();
        let now = Now { activity: Activity::Starting, since, turn_since: since, in_progress: 0, turns: 0 };
        Self { consumer: consumer.to_owned(), now: Mutex::new(now) }
    }

    /// Notes that the loop begins a turn, either without entries or with entries that were all read after `read_since`.
    pub(crate) fn begin_turn(&self, read_since: Option<Instant>) {
        let mut now = self.now();
        now.turns += 1;
        now.turn_since = read_since.unwrap_or_else(Instant::now);
        now.in_progress = 0;
    }

    /// Notes that the lane begins another activity.
    pub(crate) fn enter(&self, activity: Activity) {
        let mut now = self.now();
        now.activity = activity;
        now.since = Instant::now();
    }

    /// Notes that the handler begins with a batch of `entries` entries.
    pub(crate) fn handle(&self, entries: usize) {
        self.enter(Activity::Handling);
        self.now().in_progress = entries;
    }

    /// Returns the present status of the lane, which is a consumer of the group.
    #[must_use]
    pub fn state(&self) -> LaneSnapshot {
        let Now { activity, since, turn_since, in_progress, turns } = *self.now();
        let consumer = self.consumer.clone();
        let (lasting, turn_lasting) = (since.elapsed(), turn_since.elapsed());
        LaneSnapshot { consumer, activity, lasting, turn_lasting, in_progress, turns }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // No code here panics. If a lane panicked elsewhere, its last status stays readable.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
