//! Why a batch was not recorded.

use tidegate_stream::Outage;

use super::knowledge::Misfit;
use crate::mysql_error::{
    Blame, DUPLICATE_KEY, EXPRESSION_OUT_OF_RANGE, LOCK_WAIT_TIMEOUT, blame, explain, number_of,
};

/// Why a batch was not recorded.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store does not do its work.
    Outage(Outage),
    /// Other transactions were in the way: roll back and run the whole batch again.
    Contention(String),
    /// Somebody holds a row for longer than a lock wait.
    Locked(String),
    /// It may be the row, and may be something that passes: a unique key, most often because another worker has
    /// just written the same order, or an error of which we know nothing. The row only if it comes again and again.
    Doubtful(String),
    /// The store works, and refuses a row of this batch.
    Row(String),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let text = explain(&error);
        match blame(&error) {
            Blame::Store => Self::Outage(Outage::new("MySQL", text)),
            Blame::Others if number_of(&error) == Some(LOCK_WAIT_TIMEOUT) => Self::Locked(text),
            Blame::Others => Self::Contention(text),
            Blame::Unclear => Self::Doubtful(text),
            Blame::Row => Self::Row(text),
        }
    }
}

/// For those who have no batch to run again.
impl From<Fault> for Outage {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Outage(outage) => outage,
            Fault::Contention(text) | Fault::Locked(text) | Fault::Doubtful(text) | Fault::Row(text) => {
                Self::new("MySQL", text)
            }
        }
    }
}

/// A unique key refused a row, or a value is out of range: what a write says that was decided without locks and does not
/// fit what is there. Should it come from elsewhere (a trigger, say), the locks lead to the right verdict all the same.
pub(super) fn misfit(error: &sqlx::Error) -> Option<Misfit> {
    match number_of(error)? {
        DUPLICATE_KEY => Some(Misfit::Duplicate),
        EXPRESSION_OUT_OF_RANGE => Some(Misfit::Condition),
        _ => None,
    }
}
