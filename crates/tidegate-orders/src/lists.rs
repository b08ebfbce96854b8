//! Lists in SQL statements.

/// The most values of an IN list: from a thousand on, MariaDB may make a subquery of it.
pub const MOST_LISTED: usize = 500;
