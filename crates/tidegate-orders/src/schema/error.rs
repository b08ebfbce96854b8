//! Why a schema could not be read or changed, in words for whoever asked for it.

use super::{
    MigrationStep, SchemaProblem,
    problem::{done_before, list},
};
use crate::mysql_error::is_unknown_database;

/// Why a schema could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The server has no database of that name.
    #[error("MySQL has no such database ({0}); make it first: CREATE DATABASE <name> CHARACTER SET utf8mb4")]
    NoDatabase(String),
    /// The URL ends before the database.
    #[error("the MySQL URL names no database; write it at the end: mysql://user:password@host:3306/<name>")]
    NoDatabaseNamed,
    /// Another migration holds the lock.
    #[error(
        "another migration of {database} is running (connection {holder}); after {waited_s} s of waiting nothing was \
         changed. See what it does: SHOW PROCESSLIST"
    )]
    Busy {
        /// The database's name.
        database: String,
        /// The server's number for the connection in the way.
        holder: String,
        /// How long we waited, in seconds.
        waited_s: u64,
    },
    /// The group has several primaries, and this is not the one of them that changes the schema.
    #[error(
        "nothing was changed: where a replication group has several primaries, two migrations at once would make its \
         members leave it, so all go to the first member by host and port. Run it there: {member}"
    )]
    AnotherMember {
        /// The member, as `host:port`, as the group knows it.
        member: String,
    },
    /// Other nodes of Galera had the turn to make a view for all of this time, and did not make it.
    #[error(
        "{file}: other nodes of the cluster kept the turn to make this view for {waited_s} s, and did not make it; see what \
         they do (SHOW PROCESSLIST) and whether their clocks agree, then run the migration again: it goes on where it stopped"
    )]
    AnotherNode {
        /// The file of the statement.
        file: &'static str,
        /// How long we waited, in seconds.
        waited_s: u64,
    },
    /// What is there does not fit.
    #[error("{database} cannot be migrated, {}:\n{}", done_before(applied), list(problems))]
    Unfit {
        /// The database's name.
        database: String,
        /// What had been done before; empty unless somebody wrote orders that do not fit in the meantime.
        applied: Vec<MigrationStep>,
        /// Everything that does not fit.
        problems: Vec<SchemaProblem>,
    },
    /// A statement could not get its table.
    #[error(
        "{file}: the table is held by a long transaction; end it (SHOW PROCESSLIST) and run the migration again, it goes \
         on where it stopped"
    )]
    TableBusy {
        /// The file of the statement.
        file: &'static str,
    },
    /// A step ran and its fact is still missing.
    #[error("{file} ran without error and changed nothing; was the schema changed at the same time?")]
    WithoutEffect {
        /// The file of the statement.
        file: &'static str,
    },
    /// Anything else that MySQL answers.
    #[error("Failed to {doing}: {error}")]
    Sql {
        /// What was tried.
        doing: String,
        /// The answer; not called the source, for then it would be printed twice.
        error: sqlx::Error,
    },
}

/// The error to show when a connection failed because there is no such database, which is not an outage.
#[must_use]
pub fn missing_database(error: &sqlx::Error) -> Option<MigrateError> {
    is_unknown_database(error).then(|| MigrateError::NoDatabase(message(error)))
}

pub(super) fn explain_connect(error: sqlx::Error) -> MigrateError {
    missing_database(&error)
        .unwrap_or_else(|| MigrateError::Sql { doing: "connect to MySQL".to_owned(), error })
}

fn message(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}
