//! The snapshot that a comparison of a voucher begins with.

use tidegate_stream::EntryId;

use super::Purged;

/// The state of a voucher at one moment, read in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSnapshot {
    /// The units left; None: no stock is loaded.
    pub stock: Option<i64>,
    /// The time of the snapshot, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The last id that the stream had assigned; [`EntryId::MIN`] if there was no stream.
    pub stream_end: EntryId,
    /// Whether the journal holds every movement of the stock, so that their sum is the stock.
    pub is_complete: bool,
    /// The number of fields of the journal: orders, movements of the whole sale, and the mark that it is complete.
    pub journaled: u64,
    /// The orders that were compacted until then; None: no compaction was made.
    pub purged: Option<Purged>,
}
