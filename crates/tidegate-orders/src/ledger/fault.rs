//! The reasons why a batch was not recorded.

use tidegate_stream::Outage;

use crate::mysql_error::{ErrorKind, classify, explain, is_duplicate_key, is_expression_out_of_range};

/// The reason why a batch was not recorded.
#[derive(Debug)]
pub(super) enum Fault {
    /// MySQL does not answer, or cannot write at all.
    Outage(Outage),
    /// Other transactions were in the way: roll back and run the whole batch again.
    Contention(String),
    /// Another session holds a row for longer than a lock wait.
    LockWait(String),
    /// The row may be at fault, or a temporary condition. It may be a unique key, most often because another worker has
    /// just written the same order, or an unknown error. Only if the error repeats is the row at fault.
    Unclear(String),
    /// MySQL works, but refuses a row of this batch.
    Row(String),
}

impl From<Outage> for Fault {
    fn from(outage: Outage) -> Self {
        Self::Outage(outage)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let text = explain(&error);
        match classify(&error) {
            ErrorKind::Store => Self::Outage(Outage::new("MySQL", text)),
            ErrorKind::LockWait => Self::LockWait(text),
            ErrorKind::Contention => Self::Contention(text),
            ErrorKind::Unclear => Self::Unclear(text),
            ErrorKind::Row => Self::Row(text),
        }
    }
}

/// For a caller that does not try again, every fault is an outage of the store.
impl From<Fault> for Outage {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Outage(outage) => outage,
            Fault::Contention(text) | Fault::LockWait(text) | Fault::Unclear(text) | Fault::Row(text) => {
                Self::new("MySQL", text)
            }
        }
    }
}

/// The difference between the decisions and the contents of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// A row that was to be written exists already.
    Duplicate,
    /// A check of the write failed: a voucher is missing, its stock is not as assumed, or an order was refused before.
    Condition,
    /// A stock covers only a part of the batch, and only a read under its lock can decide which part.
    PartialStock,
}

/// The mismatch between a write that was decided without locks and the database: a unique key refused a row, or a check
/// of the write failed. If the error has another source (a trigger, say), the read under locks still leads to the right
/// verdict.
pub(super) fn mismatch(error: &sqlx::Error) -> Option<Mismatch> {
    if is_duplicate_key(error) {
        Some(Mismatch::Duplicate)
    } else if is_expression_out_of_range(error) {
        Some(Mismatch::Condition)
    } else {
        None
    }
}
