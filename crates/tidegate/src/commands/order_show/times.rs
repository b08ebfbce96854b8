//! The times of an order, for people.

use tidegate_operations::order_show::EntryRecord;

use crate::times::{utc, utc_whole};

/// The text of the time at which an entry was added to the stream.
pub fn entry_time(entry: &EntryRecord) -> String {
    utc(i64::try_from(entry.id.ms).unwrap_or(i64::MAX))
}

/// The text of a time in Unix milliseconds, in UTC.
pub fn time_of(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc)
}

/// The text of a time from MySQL. A whole second, as in the tutorial's columns, has no fraction.
pub fn mysql_time(ms: Option<i64>) -> String {
    ms.map_or_else(|| "at an unknown time".to_owned(), utc_whole)
}
