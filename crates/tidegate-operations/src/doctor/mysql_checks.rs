//! Checks whether this MySQL can be the authority over orders.

use std::time::Duration;

use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_orders::{
    ServerFacts,
    row_locks::{self, Blocker},
    schema,
};
use tokio::time::timeout;

use super::{clock, cluster};
use crate::{Stores, connect, finding::Findings};

const OLDEST_MYSQL: (u64, u64) = (8, 0);
const OLDEST_MARIADB: (u64, u64) = (10, 6);
/// The age of a transaction in seconds from which on a blocked row is reported. Batches of one voucher wait for each
/// other, but for a much shorter time.
const HELD_S: i64 = 3;

/// Runs all checks of MySQL. It returns the connections to MySQL, if it can be reached.
pub(super) async fn run<'a>(stores: &'a Stores, findings: &mut Findings) -> Option<&'a MySqlPool> {
    let settings = stores.settings();
    cluster::check(settings, findings).await;
    let mysql = match stores.mysql().await {
        Ok(mysql) => mysql,
        Err(error) => {
            let setting = if settings.mysql.shard_tags.is_empty() { "mysql.url" } else { "mysql.shards" };
            findings.error(error_chain(&error), format!("start MySQL, or correct the setting {setting}"));
            return None;
        }
    };
    findings.ok(format!("reachable at {}", settings.mysql.url));
    let within = settings.mysql.statement_timeout;
    check_server(findings, mysql, within).await;
    check_schema(findings, mysql, within).await;
    check_row_locks(findings, mysql, within).await;
    Some(mysql)
}

async fn check_server(findings: &mut Findings, mysql: &MySqlPool, within: Duration) {
    let before_ms = clock::host_ms();
    match timeout(within, ServerFacts::read(mysql)).await {
        Ok(Ok(facts)) => {
            let host_ms = (before_ms, clock::host_ms());
            check_version(findings, &facts);
            check_durability(findings, &facts);
            check_writable(findings, &facts);
            check_strictness(findings, &facts);
            clock::compare(findings, host_ms, facts.now_ms);
        }
        Ok(Err(error)) => {
            findings.error(format!("Failed to read the settings of MySQL: {error}"), "allow SHOW VARIABLES");
        }
        Err(_) => findings
            .error("MySQL did not return its settings in time", "find slow statements: SHOW PROCESSLIST"),
    }
}

fn check_version(findings: &mut Findings, facts: &ServerFacts) {
    let (name, oldest) =
        if facts.is_mariadb() { ("MariaDB", OLDEST_MARIADB) } else { ("MySQL", OLDEST_MYSQL) };
    // MariaDB appends its own name and the packager's name.
    let version = format!("{name} {}", facts.version.split('-').next().unwrap_or_default());
    if connect::version(&facts.version) >= oldest {
        findings.ok(version);
    } else {
        let advice = format!("upgrade to {name} {}.{} or later", oldest.0, oldest.1);
        findings.error(format!("{version} is too old"), advice);
    }
}

fn check_durability(findings: &mut Findings, facts: &ServerFacts) {
    match facts.variable("innodb_flush_log_at_trx_commit") {
        "1" => findings.ok("innodb_flush_log_at_trx_commit is 1"),
        other => findings.error(
            format!("innodb_flush_log_at_trx_commit is {other}: a crash of MySQL loses orders that workers have acknowledged"),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and add this setting to the server's configuration",
        ),
    }
    if facts.is_on("log_bin") {
        match facts.variable("sync_binlog") {
            "1" => findings.ok("sync_binlog is 1"),
            other => findings.warning(
                format!(
                    "sync_binlog is {other}: if MySQL crashes, its replicas may lack orders that the primary has"
                ),
                "SET GLOBAL sync_binlog = 1, and add this setting to the server's configuration",
            ),
        }
    }
}

fn check_writable(findings: &mut Findings, facts: &ServerFacts) {
    match ["read_only", "super_read_only"].into_iter().find(|name| facts.is_on(name)) {
        None => findings.ok("MySQL accepts writes"),
        Some(name) => {
            findings.error(format!("{name} is ON: MySQL refuses writes"), "point mysql.url at the primary")
        }
    }
}

fn check_strictness(findings: &mut Findings, facts: &ServerFacts) {
    let mode = facts.variable("sql_mode");
    if mode.contains("STRICT_TRANS_TABLES") || mode.contains("STRICT_ALL_TABLES") {
        findings.ok("sql_mode is strict");
    } else {
        findings.warning(
            "sql_mode is not strict: MySQL may truncate values that other programs write (Tidegate's sessions are strict)",
            "add STRICT_TRANS_TABLES to sql_mode",
        );
    }
}

/// Checks for row locks that are held too long. It reports nothing if the user may not see the transactions of others.
async fn check_row_locks(findings: &mut Findings, mysql: &MySqlPool, within: Duration) {
    let Ok(Ok(Some(blocker))) = timeout(within, row_locks::blocker(mysql)).await else { return };
    let Blocker { waiting, connection, age_s } = blocker;
    if age_s >= HELD_S {
        findings.warning(
            format!(
                "{} for row locks of other transactions; the oldest transaction that holds locks and does not wait belongs \
                 to connection {connection}, and is {age_s} s old",
                if waiting == 1 { "1 transaction waits".to_owned() } else { format!("{waiting} transactions wait") }
            ),
            format!("find the owner: SELECT * FROM information_schema.processlist WHERE id = {connection}; then KILL {connection}"),
        );
    }
}

async fn check_schema(findings: &mut Findings, mysql: &MySqlPool, within: Duration) {
    let state = match timeout(within, schema::check(mysql)).await {
        Ok(Ok(state)) => state,
        Ok(Err(error)) => {
            return findings
                .error(format!("Failed to read the tables: {error}"), "correct mysql.url or the grants");
        }
        Err(_) => return findings.error("MySQL did not describe the tables in time", "tidegate migrate"),
    };
    if state.is_ready() {
        findings.ok(format!("the tables of the database {} are migrated", state.database));
    }
    if state.unique_key {
        findings.ok("the unique key on voucher, user and slot prevents a second live order of a user");
    } else {
        findings.error("the table of orders has no unique key on voucher, user and slot", "tidegate migrate");
    }
    for problem in &state.problems {
        findings.error(problem.to_string(), "correct the table, then run tidegate migrate");
    }
    if !state.missing.is_empty() {
        let steps: String =
            state.missing.iter().map(|change| format!("\n{:<16}- {}", "", change.what)).collect();
        findings.error(format!("migrations are missing:{steps}"), "tidegate migrate");
    }
    for key in &state.other_unique_keys {
        findings.warning(
            format!("the table of orders has another unique key: {key}"),
            "to let users order again after a cancellation, drop this key",
        );
    }
}
