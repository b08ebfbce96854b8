//! What the user of this crate supplies: a step that turns a batch of entries into outcomes.

use std::{
    fmt,
    future::{Future, ready},
    pin::Pin,
};

use crate::{
    entry::{Entry, EntryId},
    redis::{RedisError, readable},
};

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its effect is durable: it is acknowledged.
    Done,
    /// Nothing happened yet and nothing is wrong with it: it stays pending and is tried again later, with the others
    /// that wait for the same.
    SetAside(Cause),
    /// It can never be done: it is copied to the dead stream and acknowledged, in one step.
    Dead(DeadLetterReason),
}

/// What a handler answers of a batch.
pub struct Handled {
    /// One for each entry, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// Work that no outcome depends on, such as unlocking. The lane runs it while it settles the batch, and handles nothing else before
    /// both are over.
    pub rest: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl From<Vec<Outcome>> for Handled {
    /// Nothing is left to do.
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

/// What an entry waits for. Entries of one cause are tried again together: a few first, more once those went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// A word for machines, such as `account_locked`; there are few of them.
    pub kind: &'static str,
    /// Which one of its kind: the id of an account, for example; 0 where the kind says all.
    pub key: u64,
    /// Which of its entries are tried first.
    pub first: FirstTried,
}

/// Which entries of a cause are tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FirstTried {
    /// Those that were not tried for the longest time. So an entry that waits for more than the others delays none of them.
    #[default]
    LongestUntried,
    /// The oldest: each of them also waits for those before it. The handler can end such a wait early, by
    /// [`Causes::wake`](crate::Causes::wake).
    Oldest,
}

impl Cause {
    /// A cause whose entries can be done in any order.
    #[must_use]
    pub const fn new(kind: &'static str, key: u64) -> Self {
        Self { kind, key, first: FirstTried::LongestUntried }
    }

    /// A cause whose entries have to be done in stream order. Its key is not 0: there wait those of a kind that has too many causes.
    #[must_use]
    pub const fn in_order(kind: &'static str, key: u64) -> Self {
        Self { kind, key, first: FirstTried::Oldest }
    }

    /// What entries wait for together when there are too many causes of this kind to tell them from each other.
    pub(crate) const fn shared(self) -> Self {
        Self { key: 0, ..self }
    }

    /// Whether entries of different causes that have to be done in order wait here together.
    pub(crate) const fn is_shared(self) -> bool {
        self.key == 0 && matches!(self.first, FirstTried::Oldest)
    }

    /// Something was in the way of a whole batch, or its time was up, and nobody knows which of its entries it concerns: most
    /// of them concern nobody. So more than a few are tried first, and all the others after those.
    pub const UNKNOWN: Self = Self::new("contention", 0);
}

/// Why an entry can never be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterReason {
    /// A word for machines, such as `unknown_account`.
    pub reason: &'static str,
    /// A sentence for people.
    pub error: String,
}

/// A store does not do its work. No entry is at fault, and nothing is read until it does again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {error}")]
pub struct Outage {
    /// Which store, by the name that people know: `Redis`, `PostgreSQL`.
    pub store: &'static str,
    /// What it said, or that it said nothing.
    pub error: String,
}

impl Outage {
    /// An outage of `store`, because of `error`.
    pub fn new(store: &'static str, error: impl ToString) -> Self {
        Self { store, error: readable(&error.to_string()) }
    }
}

impl From<RedisError> for Outage {
    fn from(error: RedisError) -> Self {
        Self::new("Redis", error)
    }
}

/// Handles batches of entries.
///
/// What a lane expects of a handler, and what it does when it gets something else:
///
/// - **Again at any time.** Entries may come again, whole batches or a part, in any process: after a crash, an outage, a
///   lost reply. An effect that is there already counts as [`Outcome::Done`].
/// - **One outcome for each entry**, in the order of the batch. On any other number the lane panics before it acknowledges
///   anything: whichever entry has no outcome, it may be the one that was not handled.
/// - **A panic** ends the lane: [`Lane::run`](crate::Lane::run) unwinds. Nothing of that batch is acknowledged, set aside or
///   buried; some of it may be if the panic is in [`Handled::rest`]. It stays pending, and counts as in progress of a process that
///   died. The next lane with the same consumer name handles it again; if there is none, any other lane claims it after [`LaneSettings::claim_idle`]. From its second crash
///   on, an entry is handled alone; at its fifth it is buried as `killed_worker`. So watch the task that runs a lane, and
///   when it has panicked, run another one, or end the process.
/// - **Time.** There is no limit. While a handler works its lane reads nothing, and keeps the batch from being claimed. That
///   goes on in the same task three times within `claim_idle`, so a handler must not block its thread for long. A handler
///   with a time limit of its own answers with an [`Outage`], or sets the entries aside.
/// - **A stop** waits for the handler. A lane never drops the future of a handler; it is dropped with the future of
///   [`Lane::run`](crate::Lane::run), and then its batch counts as in progress of a process that died.
/// - **Side by side.** The lanes of a process may share a handler. Each calls it with one batch at a time.
///
/// [`LaneSettings::claim_idle`]: crate::LaneSettings::claim_idle
pub trait Handler: Send + Sync + 'static {
    /// Handles a batch, in stream order, and answers with one outcome for each entry, in the same order.
    ///
    /// # Errors
    /// An [`Outage`] says nothing of any entry: all stay pending, and are handled again when the stores work.
    fn handle(&self, batch: &[Entry]) -> impl Future<Output = Result<Handled, Outage>> + Send;

    /// Is told of new entries that a lane has just read, mostly before another lane of this process reads newer ones.
    /// [`Handler::handle`] gets them next, unless an outage, a stop or another consumer is in the way. Must not block. Does nothing,
    /// unless a handler has use for it.
    fn received(&self, entries: &[Entry]) {
        let _ = entries;
    }

    /// Is told, before it happens, that an entry is buried that this handler was not asked about: it is too large, or too many
    /// processes died of it. Its payload is not read for that, and should not be. This may come more than once for an
    /// entry, and does where the burial fails. Does nothing, unless a handler has use for it.
    ///
    /// # Errors
    /// An [`Outage`] leaves the entry pending; it is buried when the stores work.
    fn before_burial(
        &self,
        entry: EntryId,
        why: &DeadLetterReason,
    ) -> impl Future<Output = Result<(), Outage>> + Send {
        let _ = (entry, why);
        ready(Ok(()))
    }
}
