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
    #[error("MySQL does not have this database ({0}); first CREATE DATABASE <name> CHARACTER SET utf8mb4")]
    NoDatabase(String),
    /// The URL does not name a database.
    #[error("the MySQL URL names no database; add the name: mysql://user:password@host:3306/<name>")]
    NoDatabaseNamed,
    /// Another migration holds the lock.
    #[error(
        "another migration of {database} is running (connection {holder}); this run waited {waited_s} s and changed \
         nothing. To see what the other migration does, use SHOW PROCESSLIST"
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
        "nothing was changed: if two primaries of a replication group migrate at once, members leave the group. \
         Always run migrations on the member that is first by host and port: {member}"
    )]
    AnotherMember {
        /// The member as `host:port`, in the names of the group.
        member: String,
    },
    /// Other nodes of Galera had the turn to create a view all this time, and did not create it.
    #[error(
        "{file}: for {waited_s} s, other nodes of the cluster had the right to create this view, but did not create it. \
         Run SHOW PROCESSLIST on these nodes, compare all clocks, and run the migration again: it continues with this file"
    )]
    AnotherNode {
        /// The migration file of the statement.
        file: &'static str,
        /// The time that this run waited, in seconds.
        waited_s: u64,
    },
    /// Something in the database does not fit.
    #[error("{database} cannot be migrated; {}:\n{}", done_before(applied), list(problems))]
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
        "{file}: a long transaction has locked the table. Find it with SHOW PROCESSLIST, end it, and run the migration \
         again: the run continues with this file"
    )]
    TableBusy {
        /// The migration file of the statement.
        file: &'static str,
    },
    /// A step ran without error, but had no effect.
    #[error(
        "{file} ran without error but changed nothing: perhaps another program changed the schema at the same time. \
         Run the migration again"
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

/// Returns the error to show if a connection failed because the database does not exist. This failure is not an outage:
/// a retry does not help.
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
