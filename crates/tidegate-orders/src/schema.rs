//! The MySQL schema: what the worker needs, what a database has, and the migration from one to the other.
//!
//! `migrations/README.md` explains why it works like this.

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

/// The time that a migration waits for another migration of the same database.
pub const LOCK_WAIT: Duration = Duration::from_secs(60);

/// The number of reads or tries while another node of Galera may be changing the same thing.
const MOST_TRIES: usize = 6;

/// The time between two of these tries. A statement of a migration takes less on a table that is not large.
const TRY_EVERY: Duration = Duration::from_millis(150);

/// A step of a migration: one change of the database's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MigrationStep {
    /// The name of the step's file in `migrations/`, without the file extension.
    pub file: &'static str,
    /// The change of the schema by this step, as text for operators.
    pub what: &'static str,
}

impl From<&Step> for MigrationStep {
    fn from(step: &Step) -> Self {
        Self { file: step.file, what: step.what }
    }
}

/// The report of a finished migration of the database schema.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationReport {
    /// The name of the database.
    pub database: String,
    /// The steps that this migration has made, in sequence. The list is empty if no step was missing.
    pub applied: Vec<MigrationStep>,
    /// The unique keys on the table of orders, except Tidegate's own key. They may refuse orders that Tidegate allows,
    /// such as a user's new order after a cancelled order.
    pub other_unique_keys: Vec<String>,
}

/// The state of a database's schema: what is missing and what does not fit.
#[derive(Clone, Debug, Serialize)]
pub struct SchemaState {
    /// The name of the database.
    pub database: String,
    /// The steps that `tidegate migrate` would make, in sequence.
    pub missing: Vec<MigrationStep>,
    /// Whether at least one missing step changes an existing table.
    pub alters: bool,
    /// The problems that stop a migration.
    pub problems: Vec<SchemaProblem>,
    /// Whether a unique key on voucher, user and slot exists, so that MySQL itself refuses a second order with the same
    /// three values.
    pub unique_key: bool,
    /// The unique keys on the table of orders, except Tidegate's own key. See [`MigrationReport::other_unique_keys`].
    pub other_unique_keys: Vec<String>,
}

impl SchemaState {
    /// Whether a worker can start with this schema.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.missing.is_empty() && self.problems.is_empty()
    }
}

/// Changes the database to the schema that the worker needs. Does nothing if the schema is already complete.
///
/// Two migrations exclude each other by a lock of the server. On two nodes of a Galera cluster, where all nodes run DDL
/// in one order, they alternate by statement, and each skips what the other has done. Before it creates a view, a node
/// takes its turn by a row of the probe's table.
///
/// # Errors
/// Fails without any change if:
/// - the database does not exist,
/// - another member of its replication group must change it,
/// - something in it does not fit, or
/// - another migration is still running after [`LOCK_WAIT`].
///
/// Fails after some of the steps if other nodes keep the turn to create a view for that long, or if a statement fails.
/// The next run then continues there.
pub async fn migrate(pool: &MySqlPool) -> Result<MigrationReport, MigrateError> {
    migrate_waiting(pool, LOCK_WAIT).await
}

/// Changes the schema like [`migrate`]. If another migration is running, waits up to the given time for its end, in
/// whole seconds.
///
/// # Errors
/// Fails like [`migrate`].
pub async fn migrate_waiting(pool: &MySqlPool, lock_wait: Duration) -> Result<MigrationReport, MigrateError> {
    // Detached from the pool, so that the lock and the settings end with this connection on every way out of here.
    let mut connection = pool.acquire().await.map_err(explain_connect)?.detach();
    let database = found::database(&mut connection).await?;
    lock(&mut connection, &database, lock_wait).await?;
    let applied = migrate_locked(&mut connection, &database).await?;
    let found = read_until(&mut connection, |found| missing(found).is_empty()).await?;
    if let Some(step) = missing(&found).first() {
        return Err(MigrateError::WithoutEffect { file: step.file });
    }
    // The lock must be free before the caller gets the result; an error here does not change what was done.
    let _closed = connection.close().await;
    Ok(MigrationReport { database, applied, other_unique_keys: found.other_unique_keys() })
}

/// Reads the state of the database's schema. Changes nothing and does not wait for locks.
///
/// If our unique key is missing, this reads all orders, to find those that would break it. While a migration is
/// running, it may find an incomplete table.
///
/// # Errors
/// Fails if the database does not exist or cannot be read.
pub async fn check(pool: &MySqlPool) -> Result<SchemaState, MigrateError> {
    let mut connection = pool.acquire().await.map_err(explain_connect)?;
    let database = found::database(&mut connection).await?;
    state(&mut connection, database).await
}

/// Checks the schema like [`check`], but not while a migration is running. If a migration was killed, the call waits
/// until its last statement has ended.
///
/// # Errors
/// Fails like [`check`], and if a migration is still running after [`LOCK_WAIT`].
pub async fn check_alone(pool: &MySqlPool) -> Result<SchemaState, MigrateError> {
    let mut connection = pool.acquire().await.map_err(explain_connect)?.detach();
    let database = found::database(&mut connection).await?;
    lock(&mut connection, &database, LOCK_WAIT).await?;
    let state = state(&mut connection, database).await?;
    // The lock must be free before the caller acts on the result.
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

/// All steps of the migration, for documentation and tests.
pub fn all_steps() -> impl Iterator<Item = MigrationStep> {
    STEPS.iter().map(MigrationStep::from)
}

async fn migrate_locked(
    connection: &mut MySqlConnection,
    database: &str,
) -> Result<Vec<MigrationStep>, MigrateError> {
    // Read only now, so that the result of the migration before this one is seen.
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

/// Reads the schema; reads again if something does not fit.
async fn read_settled(connection: &mut MySqlConnection) -> Result<Found, MigrateError> {
    read_until(connection, |found| problem::of_structure(found).is_empty()).await
}

/// Reads the schema until a condition holds, a few times at most. While another node of Galera changes a table, a read
/// may find its name and no columns.
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

/// The migration that has made a fact true.
#[derive(Debug)]
enum By {
    Us,
    /// A migration on another node of the cluster, at the same time.
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
    // After that, another node may have the turn.
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
            // Another program wrote a second order since the check: name it instead of "duplicate entry".
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

/// Waits until this node may create a view, or another one has created it.
async fn wait_for_turn(connection: &mut MySqlConnection, step: &Step) -> Result<By, MigrateError> {
    let began = Instant::now();
    while began.elapsed() < LOCK_WAIT {
        let is_ours = group::take_turn(connection).await?;
        // Read after the turn, so that the result of the node before this one is seen.
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
    // Rows can be read only if the columns are as they should be.
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
