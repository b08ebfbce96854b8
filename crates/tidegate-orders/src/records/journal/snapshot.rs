//! What a comparison of a voucher begins with.

use tidegate_stream::EntryId;

use super::Purged;

/// A voucher at one moment. All of it was read in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSnapshot {
    /// Units left; None: no stock is loaded.
    pub stock: Option<i64>,
    /// When that was, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The id that the stream had given out last; [`EntryId::MIN`] where there was no stream.
    pub stream_end: EntryId,
    /// The journal holds every movement of the stock: their sum is the stock.
    pub is_complete: bool,
    /// Fields of the journal: orders, movements of the whole sale, and the one that says that it is complete.
    pub journaled: u64,
    /// What was compacted until then; None: nothing.
    pub purged: Option<Purged>,
}
