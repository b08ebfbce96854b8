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

/// The plan and the report of a migration: the tables before it, or after it.
#[derive(Debug, Default, Serialize)]
pub struct MigrationState {
    /// The name of the database.
    pub database: String,
    /// The steps that this run took.
    pub applied: Vec<MigrationStep>,
    /// The steps that are missing; a report has none.
    pub missing: Vec<MigrationStep>,
    /// The differences of the tables that stop a migration.
    pub problems: Vec<SchemaProblem>,
    /// The unique keys on the orders that Tidegate does not need.
    pub other_unique_keys: Vec<String>,
    /// Whether a missing step changes a table that exists already.
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
                "Take {} on database {database}, which has some of these tables already?",
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

/// Connects to the database that is to be migrated.
///
/// # Errors
/// If MySQL cannot be reached, or the database does not exist; the error then says how to create it.
pub async fn open(settings: &SystemSettings) -> anyhow::Result<MySqlPool> {
    let sessions = connect::mysql_unchecked(settings).await.map_err(name_missing_database)?;
    Ok(sessions.pool(settings.mysql.connections))
}

/// Reads which steps are missing, and which problems stop the migration.
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

/// Takes the missing steps of the migration. It reads the tables again, because another migration may have changed
/// them.
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
