//! `tidegate migrate`: creates or takes over the MySQL tables.

use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::schema::{self, Change, MigrateError, Problem};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change as OperatorChange, ChangeArgs, Ending, Job, Next, Plan, Report},
    output::counted,
};

const EXAMPLES: &str = "\
Examples:
  tidegate migrate --dry-run
  tidegate migrate
  tidegate migrate --yes     # in a script, for a database that holds the tutorial's tables

Works on an empty database and on one with the tutorial's tables and rows; running it again does nothing. Whatever does
not fit, such as two live orders of one user, is listed before anything is changed, and the exit code is 1. Asks before
it changes a table that is there already. Two at once are safe: the second waits for the first. A replication group with
several primaries is migrated at one of them, which it names. Why it works like this stands in migrations/README.md.";

/// What `tidegate migrate` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct MigrateArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found and done.
#[derive(Debug, Default, Serialize)]
struct Migration {
    database: String,
    /// Steps that were taken now.
    applied: Vec<Change>,
    /// Steps that a dry run would take.
    missing: Vec<Change>,
    /// What stops it.
    problems: Vec<Problem>,
    /// Unique keys on the orders besides ours.
    other_unique_keys: Vec<String>,
    /// A missing step changes a table that is there already.
    #[serde(skip)]
    alters: bool,
}

impl Plan for Migration {
    fn text(&self) -> String {
        render(self)
    }

    fn next(&self) -> Next {
        match (self.problems.is_empty(), self.missing.len(), self.alters) {
            (false, ..) => Next::Nothing(Exit::No),
            (true, 0, _) => Next::Nothing(Exit::Ok),
            (true, _, false) => Next::Go,
            (true, steps, true) => Next::Ask(format!(
                "Take {} on database {}, which holds such tables already?",
                counted(steps as u64, "step"),
                self.database
            )),
        }
    }
}

impl Report for Migration {
    fn text(&self) -> String {
        render(self)
    }

    fn counts(&self) -> Json {
        json!({ "steps": self.applied.len() })
    }

    fn ending(&self) -> Ending {
        if self.problems.is_empty() { Ending::Done } else { Ending::Refused }
    }
}

/// Migrates, or says what a migration would do.
///
/// # Errors
/// When MySQL cannot be reached, the database does not exist, or a statement fails.
pub async fn run(settings: &Settings, args: &MigrateArgs) -> anyhow::Result<Exit> {
    let pool = connect::mysql(settings).await.map_err(name_missing_database)?;
    let state = schema::check_alone(&pool).await?;
    let plan = Migration {
        database: state.database,
        missing: state.missing,
        problems: state.problems,
        other_unique_keys: state.other_unique_keys,
        alters: state.alters,
        ..Migration::default()
    };
    let work = async |_plan: Migration, _job: &Job| Ok(migrate(&pool).await?);
    OperatorChange::new(settings, &args.change).run(plan, work).await
}

async fn migrate(pool: &sqlx::MySqlPool) -> Result<Migration, MigrateError> {
    match schema::migrate(pool).await {
        Ok(report) => Ok(Migration {
            database: report.database,
            applied: report.applied,
            other_unique_keys: report.other_unique_keys,
            ..Migration::default()
        }),
        // An answer, not a failure: programs read it as JSON, too.
        Err(MigrateError::Unfit { database, applied, problems }) => {
            Ok(Migration { database, applied, problems, ..Migration::default() })
        }
        Err(error) => Err(error),
    }
}

fn render(migration: &Migration) -> String {
    let Migration { database, applied, missing, problems, other_unique_keys, .. } = migration;
    let mut lines = vec![format!("database {database}: {}", summary(migration))];
    lines.extend(applied.iter().map(|change| format!("  done      {}: {}", change.file, change.what)));
    lines.extend(missing.iter().map(|change| format!("  to do     {}: {}", change.file, change.what)));
    lines.extend(problems.iter().map(|problem| format!("  problem   {problem}")));
    lines.extend(other_unique_keys.iter().map(|key| {
        format!(
            "  note      tb_voucher_order has the unique key {key}, which may refuse orders that ours allows"
        )
    }));
    lines.join("\n")
}

fn summary(migration: &Migration) -> String {
    let Migration { applied, missing, problems, .. } = migration;
    match (problems.len(), applied.len(), missing.len()) {
        (0, 0, 0) => "nothing to do, the schema is up to date".to_owned(),
        (0, 0, missing) => format!("{} to be taken", counted(missing as u64, "step")),
        (0, applied, _) => format!("{} taken, the schema is up to date", counted(applied as u64, "step")),
        (_, 0, _) => "cannot be migrated as it is; nothing was changed".to_owned(),
        (_, applied, _) => {
            format!(
                "stopped; {} taken before stay; run it again after mending",
                counted(applied as u64, "step")
            )
        }
    }
}

/// A database that does not exist is no server that does not answer.
fn name_missing_database(error: anyhow::Error) -> anyhow::Error {
    let missing = error.downcast_ref::<sqlx::Error>().and_then(schema::missing_database);
    missing.map_or(error, Into::into)
}
