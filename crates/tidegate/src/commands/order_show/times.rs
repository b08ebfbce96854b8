//! When something happened to an order, for people.

use tidegate_operations::order_show::EntryRecord;

use crate::times::{utc, utc_whole};

/// When an entry was added.
pub fn entry_time(entry: &EntryRecord) -> String {
    utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX))
}

/// A moment, for people.
pub fn time_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc)
}

/// A moment of MySQL's, which has whole seconds where the tutorial made the column: a fraction of 0 would be a lie.
pub fn mysql_time(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc_whole)
}
