//! The MySQL schema: what the worker needs, what a database has, and the way from one to the other.
//!
//! Why it works like this stands in `migrations/README.md`.

mod duplicates;
mod error;
mod found;
mod group;
mod problem;
mod steps;
mod tables;

use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::{Connection, MySqlConnection, MySqlPool};

use crate::mysql_error::{is_deadlock, is_duplicate_key, is_duplicate_name, is_lock_wait_timeout};
pub use duplicates::{DuplicateOrders, SharedSlot};
use error::explain_connect;
pub use error::{MigrateError, missing_database};
use found::Found;
pub use problem::SchemaProblem;
use steps::{Fact, STEPS, Step, missing};

/// How long a migration waits for another one on the same database.
pub const LOCK_WAIT: Duration = Duration::from_secs(60);

/// So often something is looked at, or tried, that another node of Galera may be at work on.
const MOST_TRIES: usize = 6;

/// Between two of these. A statement of ours takes less on a table that is not large.
const TRY_EVERY: Duration = Duration::from_millis(150);

/// One step of a migration, done or to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationStep {
    /// Its file in `migrations/`, without the ending.
    pub file: &'static str,
    /// What it does, for people.
    pub what: &'static str,
}

impl From<&Step> for MigrationStep {
    fn from(step: &Step) -> Self {
        Self { file: step.file, what: step.what }
    }
}

/// What a migration did.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationReport {
    /// The database's name.
    pub database: String,
    /// What was done, in that order; empty when there was nothing to do.
    pub applied: Vec<MigrationStep>,
    /// Unique keys on the orders besides ours. They refuse orders that ours allows, such as a second one after a
    /// cancelled one.
    pub other_unique_keys: Vec<String>,
}

/// What a database has and lacks.
#[derive(Clone, Debug, Serialize)]
pub struct SchemaState {
    /// The database's name.
    pub database: String,
    /// The steps that `tidegate migrate` would take, in that order.
    pub missing: Vec<MigrationStep>,
    /// Whether one of these steps changes a table that is there already, with whatever rows it holds.
    pub alters: bool,
    /// What stops a migration.
    pub problems: Vec<SchemaProblem>,
    /// Whether MySQL itself refuses a user's second order in one slot of a voucher.
    pub unique_key: bool,
    /// As in [`MigrationReport::other_unique_keys`].
    pub other_unique_keys: Vec<String>,
}

impl SchemaState {
    /// Whether a worker can start on it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty() && self.problems.is_empty()
    }
}

/// Brings the database to the schema that the worker needs; does nothing where it has it.
///
/// Two at once exclude each other by a lock of the server. At two nodes of a Galera cluster, where all nodes run DDL in one
/// order, they take turns by the statement, and each passes over what the other one has done. Before a view, a node takes its
/// turn by a row of the probe's table.
///
/// # Errors
/// When the database does not exist, belongs to a replication group that is to be changed at another member, holds something
/// that does not fit (in these cases nothing was changed), another migration is still running after [`LOCK_WAIT`], other nodes
/// keep the turn to make a view for so long, or a statement fails (in these cases the next run goes on there).
pub async fn migrate(pool: &MySqlPool) -> Result<MigrationReport, MigrateError> {
    migrate_waiting(pool, LOCK_WAIT).await
}

/// [`migrate`] with another patience for a migration that is already running, in whole seconds.
///
/// # Errors
/// As [`migrate`].
pub async fn migrate_waiting(pool: &MySqlPool, lock_wait: Duration) -> Result<MigrationReport, MigrateError> {
    // Off the pool: the lock and the settings end with this connection, on every way out of here.
    let mut connection = pool.acquire().await.map_err(explain_connect)?.detach();
    let database = found::database(&mut connection).await?;
    lock(&mut connection, &database, lock_wait).await?;
    let applied = migrate_locked(&mut connection, &database).await?;
    let found = read_until(&mut connection, |found| missing(found).is_empty()).await?;
    if let Some(step) = missing(&found).first() {
        return Err(MigrateError::WithoutEffect { file: step.file });
    }
    // The lock must be free when we say that we are done; an error here changes nothing about what was done.
    let _closed = connection.close().await;
    Ok(MigrationReport { database, applied, other_unique_keys: found.other_unique_keys() })
}

/// Reads what the database has and lacks; changes nothing and waits for nobody.
///
/// Without our unique key this reads all orders, to find those that would break it. While a migration is at work, it may
/// find half of a table.
///
/// # Errors
/// When the database does not exist or cannot be read.
pub async fn check(pool: &MySqlPool) -> Result<SchemaState, MigrateError> {
    let mut connection = pool.acquire().await.map_err(explain_connect)?;
    let database = found::database(&mut connection).await?;
    state(&mut connection, database).await
}

/// [`check`], after a migration that is already at work, or the last statement of one that was killed.
///
/// # Errors
/// As [`check`]; when a migration is still running after [`LOCK_WAIT`].
pub async fn check_alone(pool: &MySqlPool) -> Result<SchemaState, MigrateError> {
    let mut connection = pool.acquire().await.map_err(explain_connect)?.detach();
    let database = found::database(&mut connection).await?;
    lock(&mut connection, &database, LOCK_WAIT).await?;
    let state = state(&mut connection, database).await?;
    // The lock must be free when somebody decides by this.
    let _closed = connection.close().await;
    Ok(state)
}

async fn state(connection: &mut MySqlConnection, database: String) -> Result<SchemaState, MigrateError> {
    let found = read_settled(connection).await?;
    Ok(SchemaState {
        database,
        problems: problems(connection, &found).await?,
        missing: missing(&found).into_iter().map(MigrationStep::from).collect(),
        alters: missing(&found).iter().any(|step| step.alters().is_some_and(|table| found.has_table(table))),
        unique_key: found.has_unique_key(),
        other_unique_keys: found.other_unique_keys(),
    })
}

/// Every step there is, for documentation and tests.
pub fn all_steps() -> impl Iterator<Item = MigrationStep> {
    STEPS.iter().map(MigrationStep::from)
}

async fn migrate_locked(
    connection: &mut MySqlConnection,
    database: &str,
) -> Result<Vec<MigrationStep>, MigrateError> {
    // Only now: what the migration before us did must be seen.
    let found = read_settled(connection).await?;
    refuse_unfit(connection, &found, database, &[]).await?;
    let missing = missing(&found);
    if !missing.is_empty()
        && let Some(member) = group::another_member(connection).await?
    {
        return Err(MigrateError::AnotherMember { member });
    }
    let mut applied = Vec::new();
    for step in missing {
        if let By::Us = apply(connection, step, database, &applied).await? {
            applied.push(step.into());
        }
    }
    Ok(applied)
}

/// Reads what there is, again where it does not fit.
async fn read_settled(connection: &mut MySqlConnection) -> Result<Found, MigrateError> {
    read_until(connection, |found| problem::of_structure(found).is_empty()).await
}

/// Reads what there is until it is so, a few times at most: of a table that is being changed at this moment, by another node
/// of Galera, a look may see the name and no columns.
async fn read_until(
    connection: &mut MySqlConnection,
    is_so: impl Fn(&Found) -> bool,
) -> Result<Found, MigrateError> {
    let mut found = Found::read(connection).await?;
    for _ in 1..MOST_TRIES {
        if is_so(&found) {
            break;
        }
        tokio::time::sleep(TRY_EVERY).await;
        found = Found::read(connection).await?;
    }
    Ok(found)
}

/// Who has made a fact true.
#[derive(Debug)]
enum By {
    Us,
    /// A migration at another node of the cluster, at the same time.
    Others,
}

async fn apply(
    connection: &mut MySqlConnection,
    step: &Step,
    database: &str,
    applied: &[MigrationStep],
) -> Result<By, MigrateError> {
    let is_in_turn = matches!(step.fact, Fact::View(_)) && group::makes_views_in_turn(connection).await?;
    if !is_in_turn {
        return run(connection, step, database, applied).await;
    }
    if let By::Others = wait_for_turn(connection, step).await? {
        return Ok(By::Others);
    }
    let began = Instant::now();
    let done = run(connection, step, database, applied).await;
    // Later, another node may have it.
    if done.is_err() && began.elapsed() < group::TURN / 2 {
        group::give_turn_back(connection).await;
    }
    done
}

async fn run(
    connection: &mut MySqlConnection,
    step: &Step,
    database: &str,
    applied: &[MigrationStep],
) -> Result<By, MigrateError> {
    let mut tries = 0;
    loop {
        let Err(error) = sqlx::raw_sql(step.sql).execute(&mut *connection).await else { return Ok(By::Us) };
        tries += 1;
        if is_lock_wait_timeout(&error) {
            return Err(MigrateError::TableBusy { file: step.file });
        }
        if is_deadlock(&error) && tries < MOST_TRIES {
            tokio::time::sleep(TRY_EVERY).await;
            continue;
        }
        if is_duplicate_key(&error) {
            // Somebody else's consumer wrote a second order since we looked: name it instead of "duplicate entry".
            let found = Found::read(connection).await?;
            refuse_unfit(connection, &found, database, applied).await?;
        }
        if is_duplicate_name(&error)
            && !step.is_missing(&read_until(connection, |found| !step.is_missing(found)).await?)
        {
            return Ok(By::Others);
        }
        return Err(MigrateError::Sql { doing: format!("run {}", step.file), error });
    }
}

/// Waits until this node may make a view, or another one has made it.
async fn wait_for_turn(connection: &mut MySqlConnection, step: &Step) -> Result<By, MigrateError> {
    let began = Instant::now();
    while began.elapsed() < LOCK_WAIT {
        let is_ours = group::take_turn(connection).await?;
        // After the turn: what the node before us did is here by now.
        if !step.is_missing(&Found::read(connection).await?) {
            return Ok(By::Others);
        }
        if is_ours {
            return Ok(By::Us);
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
    Err(MigrateError::AnotherNode { file: step.file, waited_s: LOCK_WAIT.as_secs() })
}

async fn refuse_unfit(
    connection: &mut MySqlConnection,
    found: &Found,
    database: &str,
    applied: &[MigrationStep],
) -> Result<(), MigrateError> {
    let problems = problems(connection, found).await?;
    if problems.is_empty() {
        return Ok(());
    }
    Err(MigrateError::Unfit { database: database.to_owned(), applied: applied.to_vec(), problems })
}

async fn problems(
    connection: &mut MySqlConnection,
    found: &Found,
) -> Result<Vec<SchemaProblem>, MigrateError> {
    let mut problems = problem::of_structure(found);
    // Rows can be read only where the columns are what they should be.
    if problems.is_empty() && found.has_table(tables::ORDER) && !found.has_unique_key() {
        problems.extend(found::duplicates(connection, found).await?.map(SchemaProblem::Duplicates));
    }
    Ok(problems)
}

async fn lock(connection: &mut MySqlConnection, database: &str, wait: Duration) -> Result<(), MigrateError> {
    let waited_s = wait.as_secs();
    if found::get_lock(connection, waited_s).await? {
        return Ok(());
    }
    let holder = found::lock_holder(connection).await?.unwrap_or_else(|| "just ended".to_owned());
    Err(MigrateError::Busy { database: database.to_owned(), holder, waited_s })
}
