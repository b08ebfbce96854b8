//! Log lines about buried entries. A batch with many bad entries must not fill the log.

use std::collections::BTreeMap;

use crate::{entry::EntryId, handler::DeadLetterReason};

/// The number of entries of a batch that have a log line each; the stream of dead letters has them all.
const LOGGED_ONE_BY_ONE: usize = 3;

/// The burials of one batch.
#[derive(Debug, Default)]
pub(super) struct Burials {
    logged: usize,
    more: BTreeMap<&'static str, usize>,
}

impl Burials {
    /// Logs one burial in its own line, or counts it for the summary.
    pub(super) fn log(&mut self, entry: EntryId, why: &DeadLetterReason) {
        if self.logged == LOGGED_ONE_BY_ONE {
            *self.more.entry(why.reason).or_default() += 1;
            return;
        }
        self.logged += 1;
        tracing::warn!(%entry, reason = why.reason, error = why.error, "entry buried");
    }

    /// Logs the other burials of the batch, in one line for each reason.
    pub(super) fn log_rest(self) {
        for (reason, count) in self.more {
            tracing::warn!(reason, count, "more entries of the same batch became dead letters");
        }
    }
}
