//! Results that Redis refused: rows of `tidegate_unannounced_result`, and all statements for them.

use std::{collections::BTreeMap, future::Future, time::Duration};

use sqlx::{AssertSqlSafe, MySql, MySqlPool, QueryBuilder, Row};
use tidegate_stream::Outage;
use tokio::time::timeout;

use super::NewEntries;
use crate::{partition::Partition, results::OrderResult, session::Session, wire::result_fields};

/// The maximum number of rows in one statement.
const ROWS: usize = 200;
/// The maximum number of rows that are counted. A higher number needs no other action.
const MOST_COUNTED: i64 = 10_000;
/// SQL: the value that says to which partition a row belongs. If the result names no voucher, it is the index of the
/// partition that made the order id. An id that a producer made itself may name another partition, but always the same
/// one.
const HOME: &str = "COALESCE(CAST(IF(JSON_VALID(result), JSON_VALUE(result, '$.voucherId'), NULL) AS SIGNED), \
    order_id & 63)";

/// The table of the results that Redis refused.
#[derive(Clone, Debug)]
pub(super) struct Unpublished {
    pool: MySqlPool,
    timeout: Duration,
    partition: Partition,
}

/// The outcome for some rows of the table.
#[derive(Debug)]
pub(super) struct Taken<E> {
    /// The number of rows of stored results that were deleted, including rows that held no valid result.
    pub deleted: usize,
    /// The states of the results that Redis accepted.
    pub states: Vec<String>,
    /// The error with which Redis refused a result.
    pub refused: Option<E>,
}

impl Unpublished {
    pub(super) fn new(pool: MySqlPool, timeout: Duration) -> Self {
        Self { pool, timeout, partition: Partition::default() }
    }

    pub(super) fn of_partition(self, partition: Partition) -> Self {
        Self { partition, ..self }
    }

    pub(super) fn over(self, pool: MySqlPool) -> Self {
        Self { pool, ..self }
    }

    /// Stores results in the table. A result that is already stored stays as it is.
    pub(super) async fn remember(&self, results: &[&OrderResult]) -> Result<(), Outage> {
        for results in results.chunks(ROWS) {
            let mut insert = QueryBuilder::new(
                "INSERT INTO tidegate_unannounced_result (order_id, entry_id, state, result) ",
            );
            insert.push_values(results, |mut row, result| {
                row.push_bind(result.order.get())
                    .push_bind(result.entry.to_string())
                    .push_bind(result.state.word())
                    .push_bind(json(result));
            });
            insert.push(" ON DUPLICATE KEY UPDATE id = id");
            self.in_time(insert.build().persistent(false).execute(&self.pool)).await?;
        }
        Ok(())
    }

    /// Counts the stored results, up to 10,000.
    pub(super) async fn count(&self) -> Result<usize, Outage> {
        let own = self.partition.condition(HOME);
        let few = format!(
            "SELECT COUNT(*) FROM (SELECT id FROM tidegate_unannounced_result WHERE TRUE{own} LIMIT ?) few"
        );
        let few = sqlx::query_scalar(AssertSqlSafe(few)).bind(MOST_COUNTED);
        let count: i64 = self.in_time(few.fetch_one(&self.pool)).await?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    /// Passes the oldest results that no other process has in progress to `publish`, which answers for each whether
    /// Redis took it. Deletes the results that Redis took.
    pub(super) async fn take<E>(
        &self,
        publish: impl AsyncFnOnce(NewEntries) -> Result<Vec<Result<(), E>>, Outage>,
    ) -> Result<Taken<E>, Outage> {
        let mut session = self.in_time(Session::begin(&self.pool)).await?;
        let oldest = format!(
            "SELECT CAST(id AS SIGNED), CAST(state AS CHAR), CAST(result AS CHAR) \
             FROM tidegate_unannounced_result WHERE TRUE{} ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED",
            self.partition.condition(HOME)
        );
        let rows = sqlx::query(AssertSqlSafe(oldest)).bind(ROWS as i64).fetch_all(&mut **session);
        let rows = self.in_time(rows).await?;
        let (mut done, mut open, mut entries) = (Vec::new(), Vec::new(), NewEntries::default());
        for row in &rows {
            let (id, state) = (row.try_get(0).map_err(outage)?, row.try_get(1).map_err(outage)?);
            match fields(row.try_get(2).map_err(outage)?) {
                Some(fields) => {
                    open.push((id, state));
                    entries.add(|put| fields.iter().for_each(|(name, value)| put(name, value)));
                }
                None => done.push(id),
            }
        }
        if !done.is_empty() {
            let count = done.len();
            tracing::error!(count, "rows of tidegate_unannounced_result hold no result and are deleted");
        }
        let (mut states, mut refused) = (Vec::new(), None);
        let replies = if entries.is_empty() { Vec::new() } else { publish(entries).await? };
        for ((id, state), reply) in open.into_iter().zip(replies) {
            match reply {
                Ok(()) => {
                    done.push(id);
                    states.push(state);
                }
                Err(why) => refused = Some(why),
            }
        }
        if !done.is_empty() {
            self.in_time(delete(&done).build().persistent(false).execute(&mut **session)).await?;
            self.in_time(session.commit()).await?;
        } else {
            // Nothing was written. If the rollback takes too long, the connection is closed.
            let _late = timeout(self.timeout, session.roll_back()).await;
        }
        Ok(Taken { deleted: done.len(), states, refused })
    }

    async fn in_time<T>(&self, work: impl Future<Output = sqlx::Result<T>>) -> Result<T, Outage> {
        match timeout(self.timeout, work).await {
            Ok(done) => done.map_err(outage),
            Err(_) => Err(Outage::new("MySQL", format!("no answer within {} ms", self.timeout.as_millis()))),
        }
    }
}

fn delete(ids: &[i64]) -> QueryBuilder<MySql> {
    let mut delete = QueryBuilder::new("DELETE FROM tidegate_unannounced_result WHERE id IN (");
    let mut list = delete.separated(",");
    ids.iter().for_each(|id| _ = list.push_bind(*id));
    delete.push(")");
    delete
}

fn outage(error: sqlx::Error) -> Outage {
    Outage::new("MySQL", error)
}

fn json(result: &OrderResult) -> String {
    let mut fields = BTreeMap::new();
    result_fields(result, |name, value| _ = fields.insert(name, value.to_owned()));
    serde_json::to_string(&fields).expect("texts are JSON")
}

/// The fields of a row. `None` if the row holds no result, so there is nothing to publish.
fn fields(json: &str) -> Option<BTreeMap<String, String>> {
    let fields: BTreeMap<String, String> = serde_json::from_str(json).ok()?;
    Some(fields).filter(|fields| fields.values().any(|value| !value.is_empty()))
}
