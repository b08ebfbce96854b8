//! The snapshot that a comparison of a voucher begins with.

use tidegate_stream::EntryId;

use super::Purged;

/// The stock of a voucher, and facts about its journal (the Redis hash with the changes of the stock). One script reads
/// all these values at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSnapshot {
    /// The number of units that were left. `None` if no stock is loaded.
    pub stock: Option<i64>,
    /// The time of the snapshot, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The last id that the stream had assigned. The value is [`EntryId::MIN`] if there was no stream.
    pub stream_end: EntryId,
    /// Whether the journal (a Redis hash) notes every change of the stock, so that the sum of the changes is the stock.
    pub is_complete: bool,
    /// The number of fields in the voucher's journal (a Redis hash): for orders, for changes of the whole sale, and the
    /// field which says that the journal is complete.
    pub journaled: u64,
    /// The sums of the orders whose notes were removed from the voucher's journal (a Redis hash) before the snapshot.
    /// `None` if no note was removed.
    pub purged: Option<Purged>,
}
