//! Creates or takes over the MySQL tables.

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
    /// Its name.
    pub database: String,
    /// Steps that this run took.
    pub applied: Vec<MigrationStep>,
    /// Steps that are missing; none in a report.
    pub missing: Vec<MigrationStep>,
    /// What does not fit, and stops a migration.
    pub problems: Vec<SchemaProblem>,
    /// Unique keys on the orders besides ours.
    pub other_unique_keys: Vec<String>,
    /// A missing step changes a table that is there already.
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
                "Take {} on database {database}, which holds such tables already?",
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
/// When MySQL cannot be reached, or the database does not exist, which is an error that names the way out.
pub async fn open(settings: &SystemSettings) -> anyhow::Result<MySqlPool> {
    let sessions = connect::mysql_unchecked(settings).await.map_err(name_missing_database)?;
    Ok(sessions.pool(settings.mysql.connections))
}

/// Reads which steps are missing, and what stands in their way.
///
/// # Errors
/// When a statement fails.
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

/// Takes the missing steps. It looks again: another migration may have come first.
///
/// # Errors
/// When a statement fails. What does not fit is no error but a report.
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

/// A database that does not exist is no server that does not answer.
fn name_missing_database(error: anyhow::Error) -> anyhow::Error {
    let missing = error.downcast_ref::<sqlx::Error>().and_then(schema::missing_database);
    missing.map_or(error, Into::into)
}
