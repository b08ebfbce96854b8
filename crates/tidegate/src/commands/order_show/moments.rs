//! When something happened to an order, for people.

use tidegate_operations::order_show::EntryRecord;

use crate::moment::utc;

/// When an entry was added.
pub fn entry_moment(entry: &EntryRecord) -> String {
    utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX))
}

/// A moment, for people.
pub fn moment_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc)
}
