//! Every SQL statement of the ledger.
//!
//! Statements are sent as text, several in one packet. All values in them are numbers and entry ids of our own types,
//! and texts of events as hexadecimal digits.
//!
//! Locks are taken in this order:
//!
//! 1. New order rows, by ascending id.
//! 2. Rows that events move: rows with the same change together, by ascending id.
//! 3. Time limits, by ascending order.
//! 4. Stocks, by ascending voucher. They come last, because all writers wait for the row of a voucher on sale.
//!
//! Ascending ids fill the pages of the primary key one after the other. They do not keep two batches from waiting in a
//! circle for each other's rows and unique keys; the user locks do that. If a user lock was lost, the server ends one
//! of the two batches with a deadlock, and the ledger retries it.

mod events;
mod look_up;
mod write;

use std::fmt::{Display, Write};

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, MySqlConnection};

use super::fault::{self, Fault, Mismatch};

pub(super) use events::{look_up_events, look_up_histories, look_up_recorded, write_events};
pub(super) use look_up::{Depth, LockedRow, Stocks, locked_vouchers, look_up};
pub(super) use write::{Guard, cancelled_rows, write};

pub(super) const BEGIN: &str = "START TRANSACTION";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";
/// A durable write: after it, everything that was visible before it is durable. It always changes the time, because
/// otherwise the server would write nothing.
pub(super) const BARRIER: &str = "UPDATE tidegate_probe SET at = GREATEST(CURRENT_TIMESTAMP(3), at + INTERVAL 1000 MICROSECOND) WHERE id = 1";
/// A durable write that also touches every table, column, key and grant that a batch needs. Without that, a probe could
/// succeed although one of them is missing, and end an outage that continues.
pub(super) const PROBE: &str = "UPDATE tidegate_probe \
        SET at = GREATEST(CURRENT_TIMESTAMP(3), at + INTERVAL 1000 MICROSECOND) WHERE id = 1;\
    SELECT id, user_id, voucher_id, quantity, slot, status, entry_id \
        FROM tb_voucher_order FORCE INDEX (uk_voucher_user_slot) LIMIT 0;\
    SELECT order_id, user_id, voucher_id, quantity, reason, entry_id FROM tidegate_refusal LIMIT 0;\
    SELECT order_id, step, event, outcome, ref, payment, reason, from_status, to_status, released, entry_id \
        FROM tidegate_event LIMIT 0;\
    SELECT id, order_id, entry_id, state, result FROM tidegate_unannounced_result LIMIT 0;\
    INSERT INTO tb_voucher_order (id, user_id, voucher_id, quantity, slot, entry_id) \
        SELECT 1, 1, 1, 1, 1, '' FROM DUAL WHERE FALSE;\
    INSERT INTO tidegate_refusal (order_id, user_id, voucher_id, quantity, reason, entry_id) \
        SELECT 1, 1, 1, 1, '', '' FROM DUAL WHERE FALSE;\
    INSERT INTO tidegate_event (order_id, step, event, outcome, user_id, voucher_id, entry_id) \
        SELECT 1, 1, '', '', 1, 1, '' FROM DUAL WHERE FALSE;\
    REPLACE INTO tidegate_unpaid_order (order_id, user_id, voucher_id, due_ms, ask_ms, partition_code) \
        SELECT 1, 1, 1, 1, 1, 1 FROM DUAL WHERE FALSE;\
    DELETE FROM tidegate_unpaid_order WHERE FALSE;\
    REPLACE INTO tidegate_limit_use (voucher_id, order_id, uses) SELECT 1, 1, '' FROM DUAL WHERE FALSE;\
    INSERT INTO tidegate_unannounced_result (order_id, entry_id, state, result) \
        SELECT 1, '', '', '' FROM DUAL WHERE FALSE;\
    UPDATE tb_voucher_order SET status = status, slot = slot WHERE FALSE;\
    UPDATE tb_seckill_voucher SET stock = stock, refusals = refusals WHERE FALSE AND pay_within IS NULL AND limits_since IS NULL";

/// Runs statements that are separated by semicolons, in one round trip; the first error ends them.
pub(super) async fn run(connection: &mut MySqlConnection, statements: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await?;
    Ok(())
}

/// The way in which the COMMIT of a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commit {
    /// In one packet with the statements before it.
    InPacket,
    /// In a packet of its own: the server replicates by certification, or may do so.
    Apart,
}

/// The result of writing a decided batch.
pub(super) enum WriteOutcome {
    /// The whole batch is durable.
    Committed,
    /// Nothing was written, because the decisions do not fit the contents of the database.
    Mismatch(Mismatch),
}

/// Statements for one round trip, with the number of results and rows that the server must return for them.
#[derive(Debug, Default)]
pub(super) struct Packet {
    sql: String,
    results: usize,
    rows: usize,
    /// Whether the packet begins its own transaction, and checks decisions that were made without locks.
    is_checked: bool,
}

impl Packet {
    fn with_capacity(chars: usize) -> Self {
        Self { sql: String::with_capacity(chars), ..Self::default() }
    }

    /// Begins a transaction for decisions that were made without locks.
    fn begin(&mut self) {
        self.add_text(BEGIN);
        self.is_checked = true;
    }

    /// Adds a statement without rows, written by `write`.
    fn add(&mut self, write: impl FnOnce(&mut String)) {
        if !self.sql.is_empty() {
            self.sql.push(';');
        }
        write(&mut self.sql);
        self.results += 1;
    }

    fn add_text(&mut self, statement: &str) {
        self.add(|sql| sql.push_str(statement));
    }

    /// Adds a check that ends the packet with an error if `condition` is 1: one more than the largest BIGINT UNSIGNED
    /// is out of range. [`super::fault::mismatch`] knows that error.
    fn fail_if(&mut self, condition: impl Display) {
        self.add(|sql| {
            let _ = write!(sql, "SELECT {} + ({condition})", u64::MAX);
        });
        self.rows += 1;
    }

    /// Runs the packet and commits it. If one of its checks fails, the packet is rolled back.
    pub(super) async fn run(
        mut self,
        connection: &mut MySqlConnection,
        commit: Commit,
    ) -> Result<WriteOutcome, Fault> {
        if commit == Commit::InPacket {
            self.add_text(COMMIT);
        }
        let sent = async {
            let mut answer = sqlx::raw_sql(AssertSqlSafe(self.sql)).fetch_many(&mut *connection);
            let (mut results, mut rows) = (0, 0);
            while let Some(part) = answer.try_next().await? {
                if part.is_left() { results += 1 } else { rows += 1 }
            }
            drop(answer);
            // An answer that was cut short (by a proxy, or by a server's limit on rows) is no success: answers to
            // checks may be missing.
            if (results, rows) != (self.results, self.rows) {
                return Err(sqlx::Error::Protocol(format!(
                    "MySQL answered with {results} results and {rows} rows, but {} results and {} rows were expected",
                    self.results, self.rows
                )));
            }
            match commit {
                Commit::InPacket => Ok(()),
                Commit::Apart => run(connection, COMMIT.to_owned()).await,
            }
        };
        let Err(error) = sent.await else { return Ok(WriteOutcome::Committed) };
        let mismatch = fault::mismatch(&error).filter(|_| self.is_checked);
        let Some(mismatch) = mismatch else { return Err(error.into()) };
        run(connection, ROLLBACK.to_owned()).await?;
        Ok(WriteOutcome::Mismatch(mismatch))
    }
}

fn list(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for (at, item) in items.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{item}");
    }
    text
}

/// Rows of numbers to join with, as a table called `name`. The query goes through them in this order, with one index
/// look-up for each row. An IN list holds single numbers, and not many ([`crate::lists`]). The optimizer's own choice
/// would not do: if a table was small when its statistics were made, it reads the whole table, however large it is by
/// now.
fn numbers(name: &str, columns: &str, rows: &str) -> String {
    format!("{} STRAIGHT_JOIN", table_of_numbers(name, columns, rows))
}

/// The same table, for a join that keeps each of its rows.
fn table_of_numbers(name: &str, columns: &str, rows: &str) -> String {
    format!("JSON_TABLE('[{rows}]', '$[*]' COLUMNS ({columns})) {name}")
}
