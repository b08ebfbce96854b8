//! Creates the MySQL tables of Tidegate, or adopts existing ones.

use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_compare::text::counted;
use tidegate_orders::schema::{self, MigrateError, MigrationStep, SchemaProblem};

use crate::{
    change::{Ending, Next, Plan, Report},
    connect,
    settings::SystemSettings,
};

/// The plan or the report of a migration: the MySQL tables before or after the migration.
#[derive(Debug, Default, Serialize)]
pub struct MigrationState {
    /// The name of the MySQL database.
    pub database: String,
    /// The migration steps that this run applied.
    pub applied: Vec<MigrationStep>,
    /// The migration steps that MySQL still lacks; empty in a report.
    pub missing: Vec<MigrationStep>,
    /// The problems that prevent the migration: differences between the expected and the actual tables.
    pub problems: Vec<SchemaProblem>,
    /// The unique keys on the table of orders, without the keys that Tidegate uses.
    pub other_unique_keys: Vec<String>,
    /// Whether a missing migration step changes an existing table.
    #[serde(skip)]
    pub alters: bool,
}

impl Plan for MigrationState {
    fn next(&self) -> Next {
        let Self { database, missing, problems, .. } = self;
        match (problems.is_empty(), missing.len(), self.alters) {
            (false, ..) => Next::Refused,
            (true, 0, _) => Next::NothingToDo,
            (true, _, false) => Next::Go,
            (true, steps, true) => Next::Ask(format!(
                "Migrate the database {database} with {}, although it already has some of Tidegate's tables?",
                counted(steps as u64, "step"),
            )),
        }
    }
}

impl Report for MigrationState {
    fn counts(&self) -> Json {
        json!({ "steps": self.applied.len() })
    }

    fn ending(&self) -> Ending {
        if self.problems.is_empty() { Ending::Done } else { Ending::Refused }
    }
}

/// Connects to the MySQL database that is migrated.
///
/// # Errors
/// If MySQL cannot be reached, or the database does not exist; the error then says how to create it.
pub async fn open(settings: &SystemSettings) -> anyhow::Result<MySqlPool> {
    let sessions = connect::mysql_unchecked(settings).await.map_err(name_missing_database)?;
    Ok(sessions.pool(settings.mysql.connections))
}

/// Reads which migration steps are missing, and which problems prevent the migration.
///
/// # Errors
/// If a statement fails.
pub async fn plan(mysql: &MySqlPool) -> anyhow::Result<MigrationState> {
    let state = schema::check_alone(mysql).await?;
    Ok(MigrationState {
        database: state.database,
        applied: Vec::new(),
        missing: state.missing,
        problems: state.problems,
        other_unique_keys: state.other_unique_keys,
        alters: state.alters,
    })
}

/// Applies the missing migration steps. Reads the tables again first, because another migration may have changed the
/// tables.
///
/// # Errors
/// If a statement fails. Tables that do not fit are no error: the report names them.
pub async fn run(mysql: &MySqlPool) -> anyhow::Result<MigrationState> {
    match schema::migrate(mysql).await {
        Ok(report) => Ok(MigrationState {
            database: report.database,
            applied: report.applied,
            other_unique_keys: report.other_unique_keys,
            ..MigrationState::default()
        }),
        Err(MigrateError::Unfit { database, applied, problems }) => {
            Ok(MigrationState { database, applied, problems, ..MigrationState::default() })
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces the error of a missing database, because in that case the server did answer.
fn name_missing_database(error: anyhow::Error) -> anyhow::Error {
    let missing = error.downcast_ref::<sqlx::Error>().and_then(schema::missing_database);
    missing.map_or(error, Into::into)
}
