//! Whose fault an error of MySQL is: a pure decision.
//!
//! Numbers: <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html> and
//! <https://mariadb.com/kb/en/mariadb-error-code-reference/>.

use sqlx::mysql::MySqlDatabaseError;
use tidegate_stream::Outage;

/// Why a batch was not recorded.
#[derive(Debug)]
pub(super) enum Fault {
    /// The store does not do its work.
    Outage(Outage),
    /// Other transactions were in the way: roll back and run the whole batch again.
    Contention(String),
    /// Somebody holds a row for longer than a lock wait.
    Locked(String),
    /// It may be the row, and may be something that passes: a unique key, most often because another worker has
    /// just written the same order, or an error of which we know nothing. The row only if it comes again and again.
    Doubtful(String),
    /// The store works, and refuses a row of this batch.
    Row(String),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let text = explain(&error);
        match database_error(&error) {
            None if matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => {
                Self::Row(text)
            }
            None => Self::Outage(Outage::new("MySQL", text)),
            Some(database) => match blame(database.number(), database.code().unwrap_or_default()) {
                Blame::Store => Self::Outage(Outage::new("MySQL", text)),
                Blame::Others if database.number() == 1205 => Self::Locked(text),
                Blame::Others => Self::Contention(text),
                Blame::Unclear => Self::Doubtful(text),
                Blame::Row => Self::Row(text),
            },
        }
    }
}

/// A unique key refused a row, or a value is out of range: what a batch on the swift way says when it is not plain.
/// Should it come from elsewhere (a trigger, say), the careful way gives the right verdict all the same.
pub(super) fn needs_care(error: &sqlx::Error) -> bool {
    database_error(error).is_some_and(|error| matches!(error.number(), 1062 | 1690))
}

/// The error in words, with what to do where the cause is plain.
pub(super) fn explain(error: &sqlx::Error) -> String {
    let hint = match database_error(error).map(MySqlDatabaseError::number) {
        Some(1146 | 1054) => " (the schema is not up to date: run `tidegate migrate`)",
        Some(1044 | 1045 | 1142 | 1143 | 1227) => " (check the user and its grants)",
        Some(1290 | 1836) => " (the server is read-only: is this a replica?)",
        Some(number) if is_file(number) => " (is the disk of the server full?)",
        None if matches!(error, sqlx::Error::PoolTimedOut) => " (no connection to be had: is the server up?)",
        _ => "",
    };
    format!("{error}{hint}")
}

fn database_error(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()
}

#[derive(Debug, PartialEq, Eq)]
enum Blame {
    Store,
    Others,
    Row,
    Unclear,
}

/// A file of the server could not be written or grow. Below 1000 are the errors of its file layer, such as 3 for a
/// full folder of temporary files; 1021 and 1026 are its files, 1114 is a table that finds no room.
fn is_file(number: u16) -> bool {
    matches!(number, 1..=999 | 1021 | 1026 | 1114)
}

fn blame(number: u16, sqlstate: &str) -> Blame {
    match number {
        _ if is_file(number) => Blame::Store,
        // Lock wait timeout, deadlock, record changed since last read, rolled back by group replication.
        1205 | 1213 | 1020 | 3101 => Blame::Others,
        // Memory, engine, tables: 1004-1019 files, 1030 engine, 1033-1041 damaged or out of memory,
        // 1194/1195 crashed, 1206 lock table full.
        1004..=1019 | 1023..=1041 | 1194 | 1195 | 1206 => Blame::Store,
        // Connections, shutdown, killed or timed-out statements.
        1053
        | 1077..=1080
        | 1152
        | 1154..=1161
        | 1184
        | 1203
        | 1226
        | 1317
        | 1927
        | 1969
        | 3024
        | 3168
        | 3169
        | 4031 => Blame::Store,
        // Read-only, super-read-only, binary log cannot be written, plugins that hold commits back.
        1290 | 1598 | 1792 | 1836 | 3100 => Blame::Store,
        // The schema does not fit: unknown database, column, table, wrong count, column without default.
        1046 | 1049 | 1054 | 1136 | 1146 | 1364 | 1932 => Blame::Store,
        // Memory or packet limits of a whole batch; a single row never reaches them, so splitting helps.
        1105 | 1153 => Blame::Row,
        // 08: connection, 28 and 42: access and syntax. None of these is about the values of a row.
        _ if ["08", "28", "42"].iter().any(|class| sqlstate.starts_with(class)) => Blame::Store,
        1062 => Blame::Unclear,
        // Wrong value, partition, CHECK constraint, view check; 22 data, 23 constraint, 44 view, 45 raised by a trigger.
        1366 | 1526 | 3819 | 4025 => Blame::Row,
        _ if ["22", "23", "44", "45"].iter().any(|class| sqlstate.starts_with(class)) => Blame::Row,
        _ => Blame::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_a_rows_fault_and_everything_else_is_not() {
        for (number, sqlstate) in
            [(1264, "22003"), (1452, "23000"), (3819, "HY000"), (4025, "23000"), (1644, "45000")]
        {
            assert_eq!(blame(number, sqlstate), Blame::Row, "{number}");
        }
        for (number, sqlstate) in [
            (1040, "08004"),
            (1045, "28000"),
            (1142, "42000"),
            (1146, "42S02"),
            (1054, "42S22"),
            (1290, "HY000"),
            (3, "HY000"),
            (1021, "HY000"),
            (1026, "HY000"),
            (1114, "HY000"),
            (1317, "70100"),
            (4031, "HY000"),
        ] {
            assert_eq!(blame(number, sqlstate), Blame::Store, "{number}");
        }
        for (number, sqlstate) in [(1062, "23000"), (9999, "HY000")] {
            assert_eq!(blame(number, sqlstate), Blame::Unclear, "{number}");
        }
        for number in [1205, 1213, 1020] {
            assert_eq!(blame(number, "HY000"), Blame::Others, "{number}");
        }
    }
}
