//! What the log has of the entries that a batch buries: a wave of poison must not fill it.

use std::collections::BTreeMap;

use crate::{entry::EntryId, handler::DeadLetterReason};

/// Entries of a batch that have a line each; the dead letters have them all.
const LOGGED_ONE_BY_ONE: usize = 3;

/// The burials of one batch.
#[derive(Debug, Default)]
pub(super) struct Burials {
    logged: usize,
    more: BTreeMap<&'static str, usize>,
}

impl Burials {
    /// One was buried: a line of its own, or one more to be summed up.
    pub(super) fn log(&mut self, entry: EntryId, why: &DeadLetterReason) {
        if self.logged == LOGGED_ONE_BY_ONE {
            *self.more.entry(why.reason).or_default() += 1;
            return;
        }
        self.logged += 1;
        tracing::warn!(%entry, reason = why.reason, error = why.error, "entry buried");
    }

    /// No more come: the others in one line for each reason.
    pub(super) fn log_rest(self) {
        for (reason, count) in self.more {
            tracing::warn!(reason, count, "more entries of this batch buried");
        }
    }
}
