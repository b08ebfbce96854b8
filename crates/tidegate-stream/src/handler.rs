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

/// The outcome of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect of the entry is durable: the lane acknowledges it.
    Done,
    /// The entry had no effect yet, and has no error: it stays pending, and is retried later with other entries that
    /// wait for the same cause.
    SetAside(Cause),
    /// The entry can never be done: the lane copies it to the dead stream and acknowledges it, in one step.
    Dead(DeadLetterReason),
}

/// The result of a handler for one batch.
pub struct Handled {
    /// One outcome for each entry, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// Work that no outcome depends on, such as unlocking. The lane runs it while it settles the batch, and handles no
    /// other batch before both are finished.
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

/// The cause that an entry waits for. Entries of one cause are retried together: a few first, and more once those were
/// done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// The kind of the cause, a word for programs such as `account_locked`; there should be few kinds.
    pub kind: &'static str,
    /// The key within the kind: the id of an account, for example; 0 if the kind has only one cause.
    pub key: u64,
    /// The order in which its entries are tried.
    pub first: RetryOrder,
}

/// The order in which entries of a cause are tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RetryOrder {
    /// The entries that were not tried for the longest time come first. So an entry that waits for something else as
    /// well does not delay the others.
    #[default]
    LongestUntried,
    /// The oldest entry comes first: each entry also waits for the entries before it. The handler can end such a wait
    /// early, by [`Causes::wake`](crate::Causes::wake).
    Oldest,
}

impl Cause {
    /// Creates a cause whose entries can be done in any order.
    #[must_use]
    pub const fn new(kind: &'static str, key: u64) -> Self {
        Self { kind, key, first: RetryOrder::LongestUntried }
    }

    /// Creates a cause whose entries must be done in stream order. Its key must not be 0: entries of a kind that has
    /// too many causes wait under key 0.
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

    /// The cause of a batch that failed or timed out as a whole: it is unknown which of its entries caused that, and
    /// most of them did not. So the lane first tries more than a few of them, and then all the others.
    pub const UNKNOWN: Self = Self::new("contention", 0);
}

/// The reason why an entry can never be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterReason {
    /// A word for programs, such as `unknown_account`.
    pub reason: &'static str,
    /// The explanation for people, in one sentence.
    pub error: String,
}

/// An outage of a store. No entry is at fault, and the lanes read nothing until the store works again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {error}")]
pub struct Outage {
    /// The name of the store for people: `Redis`, `PostgreSQL`.
    pub store: &'static str,
    /// The error of the store, or that it did not answer.
    pub error: String,
}

impl Outage {
    /// Creates an outage of `store`, caused by `error`.
    pub fn new(store: &'static str, error: impl ToString) -> Self {
        Self { store, error: readable(&error.to_string()) }
    }
}

impl From<RedisError> for Outage {
    fn from(error: RedisError) -> Self {
        Self::new("Redis", error)
    }
}

/// A handler of batches of entries.
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
