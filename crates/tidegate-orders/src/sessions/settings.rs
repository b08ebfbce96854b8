//! The hosts that sessions connect to, and the setup of each session.

use std::{fmt, time::Duration};

use sqlx::mysql::MySqlConnectOptions;

/// The settings of sessions with MySQL: hosts, timeouts and limits.
#[derive(Clone)]
pub struct SessionSettings {
    /// The nodes of one cluster, the preferred node first, or a single server. The list is never empty.
    pub hosts: Vec<MySqlConnectOptions>,
    /// The longest time to wait for a free or a new connection.
    pub acquire_timeout: Duration,
    /// The longest time that a statement waits for a row lock, in seconds.
    pub lock_wait_timeout_s: u32,
    /// The time after which the server ends a session that sends no statement. A worker that hangs in a transaction
    /// blocks the rows and the sales of its vouchers for this time.
    pub silence: Duration,
}

/// Shows the hosts without their passwords.
impl fmt::Debug for SessionSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(name_of).collect();
        f.debug_struct("SessionSettings").field("hosts", &hosts).finish_non_exhaustive()
    }
}

impl SessionSettings {
    /// The statements that every session needs, whatever the server's defaults are:
    ///
    /// - A statement outside of a transaction commits by itself, and a COMMIT begins no new transaction. Otherwise a
    ///   change that was reported as done would be rolled back with the connection.
    /// - The session takes no gap locks, and waits shortly for row locks.
    /// - The server returns an error instead of a clamped value, returns all rows of an answer, and allows updates by
    ///   join.
    /// - The server ends the session if its worker falls silent.
    pub(super) fn setup(&self) -> [String; 7] {
        [
            "SET SESSION autocommit = 1, completion_type = 0".to_owned(),
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
            format!("SET SESSION innodb_lock_wait_timeout = {}", self.lock_wait_timeout_s),
            // For a table that another session has locked as a whole.
            format!("SET SESSION lock_wait_timeout = {}", self.lock_wait_timeout_s.max(10)),
            // Not NO_ZERO_DATE: MariaDB would refuse every row of a table with such a default, and dumps of the
            // tutorial have it.
            "SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'".to_owned(),
            format!("SET SESSION sql_select_limit = {}, sql_safe_updates = 0", u64::MAX),
            format!("SET SESSION wait_timeout = {0}, net_read_timeout = {0}", self.silence.as_secs().max(1)),
        ]
    }
}

pub(super) fn name_of(host: &MySqlConnectOptions) -> String {
    format!("{}:{}", host.get_host(), host.get_port())
}
