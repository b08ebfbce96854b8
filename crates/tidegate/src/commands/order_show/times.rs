//! The times of an order, for people.

use tidegate_operations::order_show::EntryRecord;

use crate::times::{utc, utc_whole};

/// The time at which an entry was added.
pub fn entry_time(entry: &EntryRecord) -> String {
    utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX))
}

/// A time, for people.
pub fn time_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc)
}

/// A time of MySQL's. The tutorial's columns have whole seconds, so a fraction of 0 would be false precision.
pub fn mysql_time(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc_whole)
}
