//! Finds the transactions that hold rows of MySQL which other transactions wait for.

use sqlx::{MySqlPool, Row};

// These columns show the server's own clock in its time zone, whatever the time zone of the session is. A reader of a
// snapshot holds no rows and blocks no transaction, however old it is.
const BLOCKED: &str = "SELECT CAST((SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT') \
    AS SIGNED), CAST(trx_mysql_thread_id AS SIGNED), \
    CAST(TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone), NOW()) AS SIGNED) \
    FROM information_schema.innodb_trx WHERE trx_state = 'RUNNING' AND trx_rows_locked > 0 ORDER BY trx_started LIMIT 1";

/// The transaction in MySQL that most likely blocks other transactions. It does not wait itself, and has locked rows
/// for a longer time than the other transactions that do not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The number of transactions that wait for locked rows.
    pub waiting: i64,
    /// The id of the connection that has locked the rows, as the statement KILL needs it.
    pub connection: i64,
    /// The age of the transaction that has locked the rows, in seconds.
    pub age_s: i64,
}

/// Finds the transaction that most likely blocks other transactions. `None` if no transaction waits.
///
/// # Errors
/// Fails if MySQL does not answer, or does not let this user see the transactions of others (PROCESS).
pub async fn blocker(pool: &MySqlPool) -> sqlx::Result<Option<Blocker>> {
    Ok(oldest_holder(pool).await?.filter(|holder| holder.waiting > 0))
}

/// Finds the transaction that has locked rows for the longest time. Other transactions need not wait for these rows.
///
/// # Errors
/// Fails like [`blocker`].
pub async fn oldest_holder(pool: &MySqlPool) -> sqlx::Result<Option<Blocker>> {
    let Some(row) = sqlx::query(BLOCKED).fetch_optional(pool).await? else { return Ok(None) };
    let (waiting, connection, age_s) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(Some(Blocker { waiting, connection, age_s }))
}
