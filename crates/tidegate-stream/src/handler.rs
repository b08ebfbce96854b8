//! The interface of the user's code: a handler, which turns a batch of entries into outcomes.

use std::{
    fmt,
    future::{Future, ready},
    pin::Pin,
};

use crate::{
    entry::{Entry, EntryId},
    redis::{RedisError, readable},
};

/// The outcome that a handler returns for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect of the entry is durable: the lane acknowledges it.
    Done,
    /// The entry had no effect yet, and may succeed later. The entry stays pending, and is retried later with other
    /// entries of the same cause.
    SetAside(Cause),
    /// The entry can never be done: the lane copies the entry to the dead letters and acknowledges it, in one step.
    Dead(DeadLetterReason),
}

/// The result that a handler returns for one batch.
pub struct Handled {
    /// The outcomes of the entries, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// Work that remains after the outcomes are known, such as unlocking. No outcome depends on it. The lane (the
    /// consumer that called the handler) does this work while it acknowledges the batch. The lane handles the next
    /// batch after both are finished.
    pub rest: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl From<Vec<Outcome>> for Handled {
    /// Creates a result without remaining work.
    fn from(outcomes: Vec<Outcome>) -> Self {
        Self { outcomes, rest: None }
    }
}

impl FromIterator<Outcome> for Handled {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        outcomes.into_iter().collect::<Vec<_>>().into()
    }
}

impl fmt::Debug for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handled").field("outcomes", &self.outcomes).finish_non_exhaustive()
    }
}

/// The cause for which an entry is set aside: left pending, to be retried later. Of the entries with the same cause,
/// only a few are retried at first, and more after these few are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// The kind of the cause, as a word for programs, such as `account_locked`. A program should have few kinds.
    pub kind: &'static str,
    /// The key of the cause within its kind, such as the id of an account. 0: the kind has only one cause.
    pub key: u64,
    /// The order in which entries that wait for the cause are retried.
    pub first: RetryOrder,
}

/// The order in which entries that wait for one cause are retried. [`Causes::wake`](crate::Causes::wake) ends the wait
/// early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RetryOrder {
    /// The entries that were not tried for the longest time come first. So an entry that also waits for another cause
    /// does not delay other entries.
    #[default]
    LongestUntried,
    /// The oldest entry comes first, because each entry also waits for all earlier entries.
    Oldest,
}

impl Cause {
    /// Creates a cause whose entries may be retried in any order.
    #[must_use]
    pub const fn new(kind: &'static str, key: u64) -> Self {
        Self { kind, key, first: RetryOrder::LongestUntried }
    }

    /// Creates a cause whose entries must be retried in stream order. The key of the cause must not be 0, because key 0
    /// collects the entries of a kind that has too many causes.
    #[must_use]
    pub const fn in_order(kind: &'static str, key: u64) -> Self {
        Self { kind, key, first: RetryOrder::Oldest }
    }

    /// Returns one common cause, for a kind of entries that has too many different causes.
    pub(crate) const fn shared(self) -> Self {
        Self { key: 0, ..self }
    }

    /// Returns whether this is such a shared cause, of entries that must be done in order.
    pub(crate) const fn is_shared(self) -> bool {
        self.key == 0 && matches!(self.first, RetryOrder::Oldest)
    }

    /// The cause for all entries of a batch that failed or timed out as a whole. It is not known which entry caused the
    /// failure. A few of the entries are retried first, and then the rest.
    pub const UNKNOWN: Self = Self::new("contention", 0);
}

/// The reason why an entry can never be done, as the dead letter of the entry contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterReason {
    /// The reason as a word for programs, such as `unknown_account`.
    pub reason: &'static str,
    /// The reason as a sentence for people.
    pub error: String,
}

/// An outage of Redis, or of the store of a handler. No entry causes the outage, and the consumers of the process read
/// nothing until the store works again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {error}")]
pub struct Outage {
    /// The name of the store for people, such as `Redis` or `PostgreSQL`.
    pub store: &'static str,
    /// The error that the store returned, or a text which says that the store did not answer.
    pub error: String,
}

impl Outage {
    /// Creates an outage of `store` with the cause `error`.
    pub fn new(store: &'static str, error: impl ToString) -> Self {
        Self { store, error: readable(&error.to_string()) }
    }
}

impl From<RedisError> for Outage {
    fn from(error: RedisError) -> Self {
        Self::new("Redis", error)
    }
}

/// A handler: code of the user of this crate that processes batches of entries.
///
/// The lane expects this of a handler, and does the following if the handler behaves otherwise:
///
/// - **Repetition.** Entries may come again, as a whole batch or a part of it, in any process: after a crash, an
///   outage, or a lost reply. If the effect of an entry exists already, the outcome is [`Outcome::Done`].
/// - **One outcome for each entry**, in the order of the batch. If the number differs, the lane panics before it
///   acknowledges anything: any entry may be the one that was not handled.
/// - **A panic** ends the lane: [`Lane::run`](crate::Lane::run) unwinds. No entry of that batch is acknowledged, set
///   aside or buried; if the panic is in [`Handled::rest`], some may be. The batch stays pending, and counts as in
///   progress in a process that died. The next lane with the same consumer name handles it again; if there is none, any
///   other lane claims it after [`LaneSettings::claim_idle`]. From its second crash on, an entry is handled alone; at
///   its fifth it is buried as `killed_worker`. So watch the task that runs a lane. If it has panicked, start another
///   lane, or end the process.
/// - **Time.** There is no limit. While a handler works, its lane reads nothing, and keeps the batch from being
///   claimed. The lane does that three times within `claim_idle`, in the same task, so a handler must not block its
///   thread for long. A handler with its own time limit returns an [`Outage`], or sets the entries aside.
/// - **A stop** waits for the handler. A lane never drops the future of a handler. If the program drops the future of
///   [`Lane::run`](crate::Lane::run), the handler is dropped with it, and its batch counts as in progress in a process
///   that died.
/// - **Concurrency.** The lanes of a process may share a handler. Each lane calls it with one batch at a time.
///
/// [`LaneSettings::claim_idle`]: crate::LaneSettings::claim_idle
pub trait Handler: Send + Sync + 'static {
    /// Handles a batch, in stream order, and returns one outcome for each entry, in the same order.
    ///
    /// # Errors
    /// An [`Outage`] says nothing about any single entry: all stay pending, and are handled again when the stores work.
    fn handle(&self, batch: &[Entry]) -> impl Future<Output = Result<Handled, Outage>> + Send;

    /// Called with new entries that a lane has just read, mostly before another lane of this process reads newer ones.
    /// [`Handler::handle`] gets them next, unless an outage, a stop or another consumer prevents that. This must not
    /// block. By default it does nothing.
    fn received(&self, entries: &[Entry]) {
        let _ = entries;
    }

    /// Called before the lane buries an entry without calling [`Handler::handle`]: the entry is too large, or it
    /// crashed too many processes. The payload is not read for that, and the handler should not read it. The call may
    /// come more than once for an entry, for example if the burial fails. By default it does nothing.
    ///
    /// # Errors
    /// An [`Outage`] leaves the entry pending; the lane buries it when the stores work.
    fn before_burial(
        &self,
        entry: EntryId,
        why: &DeadLetterReason,
    ) -> impl Future<Output = Result<(), Outage>> + Send {
        let _ = (entry, why);
        ready(Ok(()))
    }
}
