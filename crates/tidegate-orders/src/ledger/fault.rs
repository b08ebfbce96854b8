//! Why a batch was not recorded.

use tidegate_stream::Outage;

use crate::mysql_error::{ErrorKind, classify, explain, is_duplicate_key, is_expression_out_of_range};

/// Why a batch was not recorded.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store does not do its work.
    Outage(Outage),
    /// Other transactions were in the way: roll back and run the whole batch again.
    Contention(String),
    /// Somebody holds a row for longer than a lock wait.
    LockWait(String),
    /// The row may be at fault, or something that passes: a unique key, most often because another worker has just written
    /// the same order, or an error that we do not know. Only if it comes again and again is it the row.
    Unclear(String),
    /// The store works, and refuses a row of this batch.
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

/// For a caller that does not try again: whatever it was, the store did not do its work.
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

/// How what was decided differs from what the database holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// A row is there already.
    Duplicate,
    /// A check of the write failed: a voucher is not there, its stock is not what was assumed, or an order was refused
    /// before.
    Condition,
    /// A stock covers only a part of the batch, and only a lock can tell which.
    PartialStock,
}

/// How a write that was decided without locks differs from what is there: a unique key refused a row, or a check of the
/// write failed. Should the error come from elsewhere (a trigger, say), the locks lead to the right verdict all the same.
pub(super) fn mismatch(error: &sqlx::Error) -> Option<Mismatch> {
    if is_duplicate_key(error) {
        Some(Mismatch::Duplicate)
    } else if is_expression_out_of_range(error) {
        Some(Mismatch::Condition)
    } else {
        None
    }
}
