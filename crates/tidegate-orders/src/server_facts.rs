//! The version, clock and settings that a MySQL or MariaDB server reports. Reads only.

use std::collections::HashMap;

use sqlx::{MySqlPool, Row, mysql::MySqlRow};

/// The version, the clock and the settings of a MySQL or MariaDB server.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// The result of `SELECT VERSION()`, such as `9.7.0` or `10.11.14-MariaDB-0+deb12u2`.
    pub version: String,
    /// The time of the server's clock, in Unix milliseconds.
    pub now_ms: i64,
    variables: HashMap<String, String>,
}

impl ServerFacts {
    /// Reads the version, the clock and the settings from the server.
    ///
    /// # Errors
    /// Fails if the server does not answer.
    pub async fn read(pool: &MySqlPool) -> sqlx::Result<Self> {
        let (version, now_ms) = sqlx::query_as(
            "SELECT CAST(VERSION() AS CHAR), CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(3)) * 1000 AS SIGNED)",
        )
        .fetch_one(pool)
        .await?;
        // Not SELECT @@name: the two servers do not know the same names.
        let rows = sqlx::query(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'sync_binlog', \
             'log_bin', 'read_only', 'super_read_only', 'sql_mode', 'max_connections')",
        )
        .fetch_all(pool)
        .await?;
        let variables = rows.iter().map(|row| Ok((text(row, 0)?.to_lowercase(), text(row, 1)?)));
        Ok(Self { version, now_ms, variables: variables.collect::<sqlx::Result<_>>()? })
    }

    /// The value of a global variable of the server. The text is empty if the server does not know the variable.
    #[must_use]
    pub fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    /// Whether a global variable of the server is ON (or 1).
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.variable(name).to_ascii_uppercase().as_str(), "ON" | "1")
    }

    /// Whether the server is MariaDB.
    #[must_use]
    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }
}

/// Reads a text, whether the server gives the column a text or a byte type.
fn text(row: &MySqlRow, column: usize) -> sqlx::Result<String> {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
}
