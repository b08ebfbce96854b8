//! What a lane does now, and since when: for whoever watches it from outside.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;

/// What a lane does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It was made, and has not begun.
    Starting,
    /// It reads or claims entries, or waits for new ones.
    Reading,
    /// The handler works on a batch.
    Handling,
    /// It acknowledges and buries.
    Settling,
    /// The breaker is open: a store is away.
    WaitingForStores,
    /// It waits a moment before it tries again.
    BackingOff,
    /// Somebody paused it: nothing is in progress, and nothing is read.
    Paused,
    /// It waits for another lane, which reads, or handles an entry alone that processes died of.
    Yielding,
    /// It has ended.
    Stopped,
}

impl Activity {
    /// All there are.
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

    /// The word for it in logs and metrics.
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

    /// Whether it may last for any time in a lane that is well. All else has timeouts of its own.
    #[must_use]
    pub fn may_last(self) -> bool {
        matches!(self, Self::WaitingForStores | Self::Paused | Self::Yielding | Self::Stopped)
    }

    /// Whether a lane may have read entries that it has not settled yet. In all other activities it has nothing in progress.
    #[must_use]
    pub fn may_hold_entries(self) -> bool {
        !matches!(self, Self::Starting | Self::WaitingForStores | Self::Paused | Self::Stopped)
    }
}

/// Kept by a lane, and looked at by others. A lane changes it a few times a batch.
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

/// What a lane does at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSnapshot {
    /// Name of its consumer.
    pub consumer: String,
    /// What it does.
    pub activity: Activity,
    /// For how long it has done so.
    pub lasting: Duration,
    /// For how long its turn has lasted, and the read ahead with whose entries it began. No entry in progress was read before.
    pub turn_lasting: Duration,
    /// Entries in the batch that it works on; 0 between batches.
    pub in_progress: usize,
    /// How often its loop has turned.
    pub turns: u64,
}

impl LaneStatus {
    pub(crate) fn new(consumer: &str) -> Self {
        let since = Instant::now();
        let now = Now { activity: Activity::Starting, since, turn_since: since, in_progress: 0, turns: 0 };
        Self { consumer: consumer.to_owned(), now: Mutex::new(now) }
    }

    /// The loop begins a turn, with empty hands, or with entries of which none was read before `read_since`.
    pub(crate) fn begin_turn(&self, read_since: Option<Instant>) {
        let mut now = self.now();
        now.turns += 1;
        now.turn_since = read_since.unwrap_or_else(Instant::now);
        now.in_progress = 0;
    }

    /// Something else is done from now on.
    pub(crate) fn enter(&self, activity: Activity) {
        let mut now = self.now();
        now.activity = activity;
        now.since = Instant::now();
    }

    /// A batch of so many entries is handled from now on.
    pub(crate) fn handle(&self, entries: usize) {
        self.enter(Activity::Handling);
        self.now().in_progress = entries;
    }

    /// What the lane does now.
    #[must_use]
    pub fn state(&self) -> LaneSnapshot {
        let Now { activity, since, turn_since, in_progress, turns } = *self.now();
        let consumer = self.consumer.clone();
        let (lasting, turn_lasting) = (since.elapsed(), turn_since.elapsed());
        LaneSnapshot { consumer, activity, lasting, turn_lasting, in_progress, turns }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // Nothing here panics; and a lane that broke is to be seen as it was.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
