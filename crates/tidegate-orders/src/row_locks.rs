//! Who holds rows of MySQL that others wait for.

use sqlx::{MySqlPool, Row};

// The server's own clock shows in these columns in its time zone, whatever that of the session is. A reader of a snapshot
// holds no rows and is in nobody's way, however old it is.
const BLOCKED: &str = "SELECT CAST((SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT') \
    AS SIGNED), CAST(trx_mysql_thread_id AS SIGNED), \
    CAST(TIMESTAMPDIFF(SECOND, CONVERT_TZ(trx_started, 'SYSTEM', @@session.time_zone), NOW()) AS SIGNED) \
    FROM information_schema.innodb_trx WHERE trx_state = 'RUNNING' AND trx_rows_locked > 0 ORDER BY trx_started LIMIT 1";

/// Transactions wait for rows, and this one most likely holds them: of those that do not wait themselves, it has held
/// rows for the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// How many wait.
    pub waiting: i64,
    /// The connection of the holder, as KILL takes it.
    pub connection: i64,
    /// Since its transaction began, in seconds.
    pub age_s: i64,
}

/// Looks for it; None where nobody waits.
///
/// # Errors
/// When MySQL does not answer, or does not let this user see the transactions of others (PROCESS).
pub async fn blocker(pool: &MySqlPool) -> sqlx::Result<Option<Blocker>> {
    Ok(oldest_holder(pool).await?.filter(|holder| holder.waiting > 0))
}

/// The transaction that has held rows for the longest, whether somebody waits for them or not.
///
/// # Errors
/// As [`blocker`].
pub async fn oldest_holder(pool: &MySqlPool) -> sqlx::Result<Option<Blocker>> {
    let Some(row) = sqlx::query(BLOCKED).fetch_optional(pool).await? else { return Ok(None) };
    let (waiting, connection, age_s) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    Ok(Some(Blocker { waiting, connection, age_s }))
}
