//! The errors of reading or changing a schema, with texts for operators.

use super::{
    MigrationStep, SchemaProblem,
    problem::{done_before, list},
};
use crate::mysql_error::is_unknown_database;

/// The reason why a schema could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The server has no database of that name.
    #[error("MySQL has no such database ({0}); make it first: CREATE DATABASE <name> CHARACTER SET utf8mb4")]
    NoDatabase(String),
    /// The URL does not name a database.
    #[error("the MySQL URL names no database; write it at the end: mysql://user:password@host:3306/<name>")]
    NoDatabaseNamed,
    /// Another migration holds the lock.
    #[error(
        "another migration of {database} is running (connection {holder}); after {waited_s} s of waiting nothing was \
         changed. See what it does: SHOW PROCESSLIST"
    )]
    Busy {
        /// The name of the database.
        database: String,
        /// The id of the connection that holds the lock.
        holder: String,
        /// The time that this run waited, in seconds.
        waited_s: u64,
    },
    /// The group has several primaries, and another one of them must change the schema.
    #[error(
        "nothing was changed: where a replication group has several primaries, two migrations at once would make its \
         members leave it, so all go to the first member by host and port. Run it there: {member}"
    )]
    AnotherMember {
        /// The member as `host:port`, in the names of the group.
        member: String,
    },
    /// Other nodes of Galera had the turn to create a view all this time, and did not create it.
    #[error(
        "{file}: other nodes of the cluster kept the turn to make this view for {waited_s} s, and did not make it; see what \
         they do (SHOW PROCESSLIST) and whether their clocks agree, then run the migration again: it goes on where it stopped"
    )]
    AnotherNode {
        /// The migration file of the statement.
        file: &'static str,
        /// The time that this run waited, in seconds.
        waited_s: u64,
    },
    /// Something in the database does not fit.
    #[error("{database} cannot be migrated, {}:\n{}", done_before(applied), list(problems))]
    Unfit {
        /// The name of the database.
        database: String,
        /// The steps that were done before; empty unless orders that do not fit were written meanwhile.
        applied: Vec<MigrationStep>,
        /// All parts of the database that do not fit.
        problems: Vec<SchemaProblem>,
    },
    /// A statement could not lock its table in time.
    #[error(
        "{file}: the table is held by a long transaction; end it (SHOW PROCESSLIST) and run the migration again, it goes \
         on where it stopped"
    )]
    TableBusy {
        /// The migration file of the statement.
        file: &'static str,
    },
    /// A step ran without error, but had no effect.
    #[error(
        "{file} ran without error and changed nothing: the schema may have been changed at the same time. Run the \
         migration again"
    )]
    WithoutEffect {
        /// The migration file of the statement.
        file: &'static str,
    },
    /// Any other error of MySQL.
    #[error("Failed to {doing}: {error}")]
    Sql {
        /// The action that failed.
        doing: String,
        /// The error of MySQL. It is not called `source`, because then it would be printed twice.
        error: sqlx::Error,
    },
}

/// The error to show if a connection failed because the database does not exist, which is not an outage.
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
