//! What the user of this crate supplies: a step that turns a batch of entries into outcomes.

use std::future::Future;

use crate::{entry::Entry, redis::readable};

/// What became of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its effect is durable: it is acknowledged.
    Done,
    /// Nothing happened yet and nothing is wrong with it: it stays pending and is tried again later, with the others
    /// that wait for the same.
    SetAside(Cause),
    /// It can never be done: it is copied to the dead stream and acknowledged, in one step.
    Dead(Death),
}

/// What an entry waits for. Entries of one cause are tried again together: a few first, more once those went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// A word for machines, such as `user_lock`; there are few of them.
    pub kind: &'static str,
    /// Which one of its kind: the id of a user or of a voucher; 0 where the kind says all.
    pub key: u64,
}

impl Cause {
    /// Something was in the way of a whole batch, or its time was up, and nobody knows which of its entries it concerns: most
    /// of them concern nobody. So more than a few are tried first, and all the others after those.
    pub const UNKNOWN: Self = Self { kind: "contention", key: 0 };
}

/// Why an entry can never be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// A word for machines, such as `unknown_voucher`.
    pub reason: &'static str,
    /// A sentence for people.
    pub error: String,
}

/// A store does not do its work. No entry is at fault, and nothing is read until it does again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{store}: {error}")]
pub struct Outage {
    /// Which store, by the name that people know: `Redis`, `MySQL`.
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

impl From<fred::error::Error> for Outage {
    fn from(error: fred::error::Error) -> Self {
        Self::new("Redis", error)
    }
}

/// Handles batches of entries.
pub trait Handler: Send + Sync + 'static {
    /// Handles a batch, in stream order, and answers with one outcome an entry, in the same order.
    ///
    /// It may run again with the same entries, whole or in part, at any time and in any process: an effect
    /// that is there already counts as done.
    ///
    /// # Errors
    /// An [`Outage`] says nothing of any entry: all stay pending.
    fn handle(&self, batch: &[Entry]) -> impl Future<Output = Result<Vec<Outcome>, Outage>> + Send;
}
