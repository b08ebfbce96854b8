//! Limits for value lists in SQL statements.

/// The maximum number of values in an IN list of a query. From a thousand values on, MariaDB may turn the list into a
/// subquery.
pub const MOST_LISTED: usize = 500;
