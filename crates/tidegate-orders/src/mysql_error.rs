//! The meaning of MySQL's and MariaDB's errors: their numbers, and what is at fault for each. No other module knows a
//! number.
//!
//! Numbers: <https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html> and
//! <https://mariadb.com/kb/en/mariadb-error-code-reference/>.

use sqlx::mysql::MySqlDatabaseError;

/// A row with this key exists already.
const DUPLICATE_KEY: u16 = 1062;
/// The table has a column of this name already.
const DUPLICATE_COLUMN: u16 = 1060;
/// The table has a key of this name already.
const DUPLICATE_KEY_NAME: u16 = 1061;
/// The database has a table or a view of this name already.
const TABLE_EXISTS: u16 = 1050;
/// A column is missing: the schema is older than the program.
const NO_SUCH_COLUMN: u16 = 1054;
/// A table is missing: the schema is older than the program.
const NO_SUCH_TABLE: u16 = 1146;
/// Another session holds a row or a table for longer than a lock wait.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// Transactions waited for each other in a circle, and the server rolled this one back.
const DEADLOCK: u16 = 1213;
/// Galera: the node is outside of its cluster, or not ready. (Its name in the server is "unknown command".)
const NOT_READY: u16 = 1047;
/// A value does not fit into its column.
const VALUE_OUT_OF_RANGE: u16 = 1264;
/// An expression left the range of its type, as an unsigned stock below zero does.
const EXPRESSION_OUT_OF_RANGE: u16 = 1690;
/// The server knows no database of this name.
const UNKNOWN_DATABASE: u16 = 1049;

/// The hint for an error whose cause is a schema that is older than the program.
pub(crate) const NOT_MIGRATED: &str = " (the schema is not up to date: run `tidegate migrate`)";

/// The number of an error that the server has returned.
fn number_of(error: &sqlx::Error) -> Option<u16> {
    Some(database_error(error)?.number())
}

/// Whether a unique key has this value already.
pub(crate) fn is_duplicate_key(error: &sqlx::Error) -> bool {
    number_of(error) == Some(DUPLICATE_KEY)
}

/// Whether the table has a column or a key of this name already, or the database a table or a view.
pub(crate) fn is_duplicate_name(error: &sqlx::Error) -> bool {
    matches!(number_of(error), Some(DUPLICATE_COLUMN | DUPLICATE_KEY_NAME | TABLE_EXISTS))
}

/// Whether another session holds a row or a table for longer than a lock wait.
pub(crate) fn is_lock_wait_timeout(error: &sqlx::Error) -> bool {
    number_of(error) == Some(LOCK_WAIT_TIMEOUT)
}

/// Whether a value does not fit into its column.
pub(crate) fn is_value_out_of_range(error: &sqlx::Error) -> bool {
    number_of(error) == Some(VALUE_OUT_OF_RANGE)
}

/// Whether an expression left the range of its type, as an unsigned stock below zero does.
pub(crate) fn is_expression_out_of_range(error: &sqlx::Error) -> bool {
    number_of(error) == Some(EXPRESSION_OUT_OF_RANGE)
}

/// Whether the server refused only this statement, so that the transaction continues with all its locks. The cause is a
/// read-only server, the user's grants, or a check or a trigger.
pub(crate) fn is_statement_refused(error: &sqlx::Error) -> bool {
    matches!(number_of(error), Some(1290 | 1792 | 1836 | 1142 | 1143 | 1227 | 1644 | 3819 | 4025))
}

/// Whether a node that must catch up with its cluster before it answers has not done so: the wait took too long, or the
/// node is not ready. For any other error, such as a refused setting, waiting does not help.
pub(crate) fn is_behind(error: &sqlx::Error) -> bool {
    number_of(error).is_some_and(is_behind_number)
}

fn is_behind_number(number: u16) -> bool {
    match number {
        // Galera: 1205 ends the wait of `wsrep_sync_wait`.
        LOCK_WAIT_TIMEOUT | NOT_READY => true,
        // The statement took too long: MariaDB, MySQL.
        1969 | 3024 => true,
        // Group replication: 3797 ends the wait of `BEFORE`, and 3796 is for a member that is not ONLINE. 3798 and 3799
        // are for a member that waits for prepared transactions or stops. 3100: its hook has failed in another way.
        3100 | 3796..=3799 => true,
        _ => false,
    }
}

/// Whether the server knows no database of this name.
pub(crate) fn is_unknown_database(error: &sqlx::Error) -> bool {
    number_of(error) == Some(UNKNOWN_DATABASE)
}

/// Whether the error says that a table does not exist.
#[must_use]
pub fn is_missing_table(error: &sqlx::Error) -> bool {
    number_of(error) == Some(NO_SUCH_TABLE)
}

/// Whether a table or a column is missing, because the schema is older than the program.
pub(crate) fn is_not_migrated(error: &sqlx::Error) -> bool {
    matches!(number_of(error), Some(NO_SUCH_TABLE | NO_SUCH_COLUMN))
}

/// The hint that the schema must be migrated first, to append to the text of an error. The hint is empty if the schema
/// is as new as the program.
#[must_use]
pub fn migration_hint(error: &sqlx::Error) -> &'static str {
    if is_not_migrated(error) { NOT_MIGRATED } else { "" }
}

/// Whether the error is a deadlock: transactions waited for each other, and the server rolled one of them back. A
/// repeated transaction may succeed.
#[must_use]
pub fn is_deadlock(error: &sqlx::Error) -> bool {
    number_of(error) == Some(DEADLOCK)
}

/// The text of an error, with a hint what to do if the cause is plain.
pub(crate) fn explain(error: &sqlx::Error) -> String {
    let hint = match number_of(error) {
        Some(NO_SUCH_TABLE | NO_SUCH_COLUMN) => NOT_MIGRATED,
        Some(1044 | 1045 | 1142 | 1143 | 1227) => " (check the user and its grants)",
        Some(1290 | 1792 | 1836) => " (the server is read-only: is this a replica?)",
        Some(NOT_READY) => " (this node is outside of its cluster, or not ready yet)",
        Some(number) if is_file(number) => " (is the disk of the server full?)",
        None if matches!(error, sqlx::Error::PoolTimedOut) => {
            " (no connection became free: check whether the server is up, and whether other sessions hold locks)"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

fn database_error(error: &sqlx::Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()
}

/// The part that is at fault for an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The server, or the connection to it: an outage.
    Store,
    /// Other transactions: the same transaction may succeed next time.
    Contention,
    /// Another transaction, which holds a row or a table for longer than a lock wait.
    LockWait,
    /// The values of a row.
    Row,
    /// Either a row or a temporary condition.
    Unclear,
}

/// Finds the part that is at fault for this error.
pub(crate) fn classify(error: &sqlx::Error) -> ErrorKind {
    match database_error(error) {
        None if matches!(error, sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)) => ErrorKind::Row,
        None => ErrorKind::Store,
        Some(error) => classify_number(error.number(), error.code().unwrap_or_default()),
    }
}

/// Whether a file of the server could not be written or grow. Numbers below 1000 are errors of its file layer, such as
/// 3 for a full folder of temporary files. 1021 and 1026 concern its files, and 1114 is a table without room.
fn is_file(number: u16) -> bool {
    matches!(number, 1..=999 | 1021 | 1026 | 1114)
}

fn classify_number(number: u16, sqlstate: &str) -> ErrorKind {
    match number {
        _ if is_file(number) => ErrorKind::Store,
        LOCK_WAIT_TIMEOUT => ErrorKind::LockWait,
        // Other transactions are in the way. 1020: record changed since last read. 3101: rolled back by group
        // replication. 1180: a COMMIT that failed, often because of certification. For another cause, such as a member
        // that has left its group, the next try gets an error of its own.
        DEADLOCK | 1020 | 3101 | 1180 => ErrorKind::Contention,
        // Memory, engine, tables: 1004-1019 files, 1030 engine, 1033-1041 damaged or out of memory,
        // 1194/1195 crashed, 1206 lock table full.
        1004..=1019 | 1023..=1041 | 1194 | 1195 | 1206 => ErrorKind::Store,
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
        | 4031 => ErrorKind::Store,
        NOT_READY => ErrorKind::Store,
        // Read-only, super-read-only, binary log cannot be written, plugins that delay commits, a group whose members
        // cannot keep the required consistency.
        1290 | 1598 | 1792 | 1836 | 3100 | 3796..=3799 => ErrorKind::Store,
        // A table that group replication does not accept: without a primary key, or not of InnoDB.
        3098 => ErrorKind::Store,
        // The schema does not fit: unknown database, column, table, wrong count, column without default.
        1046 | UNKNOWN_DATABASE | NO_SUCH_COLUMN | 1136 | NO_SUCH_TABLE | 1364 | 1932 => ErrorKind::Store,
        // Limits of memory, packet or write set for a whole batch; a single row never reaches them, so splitting helps.
        1105 | 1153 | 3231 => ErrorKind::Row,
        // 08: connection, 28 and 42: access and syntax. None of these is about the values of a row.
        _ if ["08", "28", "42"].iter().any(|class| sqlstate.starts_with(class)) => ErrorKind::Store,
        DUPLICATE_KEY => ErrorKind::Unclear,
        // Wrong value, partition, CHECK constraint, view check; 22 data, 23 constraint, 44 view, 45 raised by a
        // trigger.
        1366 | 1526 | 3819 | 4025 => ErrorKind::Row,
        _ if ["22", "23", "44", "45"].iter().any(|class| sqlstate.starts_with(class)) => ErrorKind::Row,
        _ => ErrorKind::Unclear,
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
            assert_eq!(classify_number(number, sqlstate), ErrorKind::Row, "{number}");
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
            assert_eq!(classify_number(number, sqlstate), ErrorKind::Store, "{number}");
        }
        for (number, sqlstate) in [(1062, "23000"), (9999, "HY000")] {
            assert_eq!(classify_number(number, sqlstate), ErrorKind::Unclear, "{number}");
        }
        for number in [1213, 1020] {
            assert_eq!(classify_number(number, "HY000"), ErrorKind::Contention, "{number}");
        }
        assert_eq!(classify_number(LOCK_WAIT_TIMEOUT, "HY000"), ErrorKind::LockWait);
    }

    #[test]
    fn a_node_is_behind_when_its_wait_took_too_long_or_it_is_not_ready_and_not_when_it_refuses_the_setting() {
        for number in [1205, 1047, 1969, 3024, 3100, 3797] {
            assert!(is_behind_number(number), "{number}");
        }
        // An unknown variable, no right to set it, a wrong value, a missing table, a shutdown, a proxy's refusal.
        for number in [1193, 1227, 1142, 1231, 1146, 1053, 1105, 9001] {
            assert!(!is_behind_number(number), "{number}");
        }
    }

    #[test]
    fn what_a_cluster_says_is_contention_or_an_outage_and_never_a_rows_fault() {
        for (number, sqlstate) in [(1213, "40001"), (3101, "40000"), (1180, "HY000")] {
            assert_eq!(classify_number(number, sqlstate), ErrorKind::Contention, "{number}");
        }
        for (number, sqlstate) in [
            (1047, "08S01"),
            (1290, "HY000"),
            (1792, "25006"),
            (1836, "HY000"),
            (3098, "HY000"),
            (3100, "HY000"),
            (3797, "HY000"),
        ] {
            assert_eq!(classify_number(number, sqlstate), ErrorKind::Store, "{number}");
        }
    }
}
