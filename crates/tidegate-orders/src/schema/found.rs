//! Reads the tables, columns and keys of a database. Every query of the schema is here; other modules decide what the
//! answers mean.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, MySqlConnection};

use super::{
    MOST_TRIES, MigrateError, TRY_EVERY,
    duplicates::{DuplicateOrders, SharedSlot},
    tables::{ORDER, UNIQUE_COLUMNS, UNIQUE_KEY},
};
use crate::{
    mysql_error::is_deadlock,
    row_state::{LIVE, LIVE_BEFORE_SLOTS},
};

/// The number of shared slots that are listed.
const LISTED: usize = 50;
const LISTED_ORDERS: usize = 20;

// The longest name that GET_LOCK takes is 64 characters, a database's name is up to 64 itself. (MySQL 9 has no MD5.)
const LOCK_NAME: &str = "CONCAT('tidegate.migrate:', IF(CHAR_LENGTH(DATABASE()) <= 47, DATABASE(), LEFT(SHA2(DATABASE(), 256), 40)))";

macro_rules! of_our_tables {
    ($select:literal) => {
        concat!(
            $select,
            " WHERE table_schema = DATABASE() AND table_name IN ('tb_seckill_voucher', 'tb_voucher_order', \
             'tidegate_refusal', 'tidegate_event', 'tidegate_unpaid_order', 'tidegate_fleet_mark', 'tidegate_probe', \
             'tidegate_voucher_units', 'tidegate_unannounced_result', 'tidegate_limit', 'tidegate_limit_use', \
             'tidegate_campaign', 'tidegate_carried_window')"
        )
    };
}

const TABLES: &str = of_our_tables!(
    "SELECT CAST(table_name AS CHAR), CAST(table_type AS CHAR), CAST(engine AS CHAR) FROM information_schema.tables"
);
const COLUMNS: &str = of_our_tables!(
    "SELECT CAST(table_name AS CHAR), CAST(column_name AS CHAR), CAST(data_type AS CHAR),
        CAST(column_type AS CHAR), CAST(is_nullable AS CHAR), CAST(column_default AS CHAR), CAST(extra AS CHAR),
        CAST(character_maximum_length AS SIGNED)
    FROM information_schema.columns"
);
const UNIQUE_KEYS: &str = concat!(
    of_our_tables!(
        "SELECT CAST(table_name AS CHAR), CAST(index_name AS CHAR), CAST(non_unique AS SIGNED),
            CAST(column_name AS CHAR), CAST(sub_part AS SIGNED)
        FROM information_schema.statistics"
    ),
    " ORDER BY table_name, index_name, seq_in_index"
);

/// The facts in information_schema about the tables.
#[derive(Debug, Default)]
pub(super) struct Found {
    tables: BTreeMap<String, Table>,
    pub(super) probe_row: bool,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// `BASE TABLE` or `VIEW`.
    pub(super) kind: String,
    pub(super) engine: String,
    pub(super) columns: BTreeMap<String, Column>,
    pub(super) keys: BTreeMap<String, Key>,
}

#[derive(Debug)]
pub(super) struct Column {
    /// The type alone, such as `int`.
    pub(super) data_type: String,
    /// The full type, such as `int(10) unsigned`.
    pub(super) column_type: String,
    pub(super) nullable: bool,
    pub(super) default: Option<String>,
    pub(super) extra: String,
    pub(super) length: i64,
}

#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) unique: bool,
    /// The names of the columns. If a column counts only with its first characters, their number follows in
    /// parentheses.
    pub(super) columns: Vec<String>,
}

impl Column {
    /// Whether MySQL computes the column. `DEFAULT_GENERATED` only means a default such as CURRENT_TIMESTAMP.
    pub(super) fn is_generated(&self) -> bool {
        self.extra.contains("virtual generated") || self.extra.contains("stored generated")
    }
}

impl Found {
    /// Reads all facts; this is cheap, whatever the tables hold. Galera rolls a read back if it is in the way of
    /// another node's DDL, so the read is tried a few times.
    pub(super) async fn read(connection: &mut MySqlConnection) -> Result<Self, MigrateError> {
        let mut tries = 0;
        loop {
            let mut found = Self::default();
            tries += 1;
            match found.read_tables(connection).await {
                Ok(()) => return Ok(found),
                Err(error) if is_deadlock(&error) && tries < MOST_TRIES => {
                    tokio::time::sleep(TRY_EVERY).await
                }
                Err(error) => return Err(failed_to("read the schema", error)),
            }
        }
    }

    async fn read_tables(&mut self, connection: &mut MySqlConnection) -> sqlx::Result<()> {
        type Row = (String, String, Option<String>);
        let rows: Vec<Row> = sqlx::query_as(TABLES).fetch_all(&mut *connection).await?;
        for (name, kind, engine) in rows {
            let engine = engine.unwrap_or_default();
            self.tables.insert(name, Table { kind, engine, ..Table::default() });
        }
        self.read_columns(connection).await?;
        self.read_keys(connection).await?;
        if self.column("tidegate_probe", "id").is_some() {
            let row: Option<(i64,)> =
                sqlx::query_as("SELECT CAST(id AS SIGNED) FROM tidegate_probe WHERE id = 1")
                    .fetch_optional(connection)
                    .await?;
            self.probe_row = row.is_some();
        }
        Ok(())
    }

    async fn read_columns(&mut self, connection: &mut MySqlConnection) -> sqlx::Result<()> {
        type Row = (String, String, String, String, String, Option<String>, String, Option<i64>);
        let rows: Vec<Row> = sqlx::query_as(COLUMNS).fetch_all(connection).await?;
        for (table, name, data_type, column_type, nullable, default, extra, length) in rows {
            let column = Column {
                data_type: data_type.to_lowercase(),
                column_type: column_type.to_lowercase(),
                nullable: nullable == "YES",
                // MariaDB returns the word NULL where MySQL returns no value.
                default: default.filter(|default| default != "NULL"),
                extra: extra.to_lowercase(),
                length: length.unwrap_or(0),
            };
            self.tables.entry(table).or_default().columns.insert(name.to_lowercase(), column);
        }
        Ok(())
    }

    async fn read_keys(&mut self, connection: &mut MySqlConnection) -> sqlx::Result<()> {
        type Row = (String, String, i64, Option<String>, Option<i64>);
        let rows: Vec<Row> = sqlx::query_as(UNIQUE_KEYS).fetch_all(connection).await?;
        for (table, name, non_unique, column, length) in rows {
            // MySQL gives no column for a key over an expression.
            let column = column.map_or_else(|| "(an expression)".to_owned(), |name| name.to_lowercase());
            let column = length.map_or(column.clone(), |length| format!("{column}({length})"));
            let key = self.tables.entry(table).or_default().keys.entry(name).or_default();
            key.unique = non_unique == 0;
            key.columns.push(column);
        }
        Ok(())
    }

    pub(super) fn table(&self, table: &str) -> Option<&Table> {
        self.tables.get(table)
    }

    pub(super) fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    pub(super) fn column(&self, table: &str, column: &str) -> Option<&Column> {
        self.table(table)?.columns.get(column)
    }

    pub(super) fn has_unique_key(&self) -> bool {
        let key = self.table(ORDER).and_then(|table| table.keys.get(UNIQUE_KEY));
        key.is_some_and(|key| key.unique && key.columns == UNIQUE_COLUMNS)
    }

    /// The unique keys on the orders besides the primary key and ours, as `name (columns)`.
    pub(super) fn other_unique_keys(&self) -> Vec<String> {
        let keys = self.table(ORDER).into_iter().flat_map(|table| &table.keys);
        keys.filter(|(name, key)| key.unique && *name != "PRIMARY" && *name != UNIQUE_KEY)
            .map(|(name, key)| format!("{name} ({})", key.columns.join(", ")))
            .collect()
    }
}

/// The database that the connection uses.
pub(super) async fn database(connection: &mut MySqlConnection) -> Result<String, MigrateError> {
    let (name,): (Option<String>,) = sqlx::query_as("SELECT CAST(DATABASE() AS CHAR)")
        .fetch_one(connection)
        .await
        .map_err(|source| failed_to("read the name of the database", source))?;
    name.ok_or(MigrateError::NoDatabaseNamed)
}

/// Takes the lock of this database's migrations. Returns false if another connection still has it after `wait_s`
/// seconds.
///
/// Statements of this connection then wait 30 s for a table, instead of a day or a year with all other sessions behind
/// them. They are strict, but accept existing defaults and rows of `0000-00-00`, which many dumps of the tutorial have.
/// With NO_ZERO_DATE, MySQL 8 refuses to alter such a table at all (error 1067).
pub(super) async fn get_lock(connection: &mut MySqlConnection, wait_s: u64) -> Result<bool, MigrateError> {
    let settings = "SET SESSION lock_wait_timeout = 30, SESSION innodb_lock_wait_timeout = 30,
        SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'";
    let lock = format!("SELECT CAST(GET_LOCK({LOCK_NAME}, ?) AS SIGNED)");
    let got = async {
        sqlx::raw_sql(settings).execute(&mut *connection).await?;
        sqlx::query_as(AssertSqlSafe(lock)).bind(wait_s).fetch_one(&mut *connection).await
    };
    let (got,): (Option<i64>,) = got.await.map_err(|source| failed_to("take the migration lock", source))?;
    // NULL means an error, such as a killed wait: no lock was taken, as with 0.
    Ok(got == Some(1))
}

/// The connection that has the migration lock.
pub(super) async fn lock_holder(connection: &mut MySqlConnection) -> Result<Option<String>, MigrateError> {
    let sql = format!("SELECT CAST(IS_USED_LOCK({LOCK_NAME}) AS CHAR)");
    let (holder,) = sqlx::query_as(AssertSqlSafe(sql))
        .fetch_one(connection)
        .await
        .map_err(|source| failed_to("read which connection has the migration lock", source))?;
    Ok(holder)
}

/// Finds live orders that share a slot, the first [`LISTED`] slots by name. Reads all orders.
pub(super) async fn duplicates(
    connection: &mut MySqlConnection,
    found: &Found,
) -> Result<Option<DuplicateOrders>, MigrateError> {
    // If the slot column exists already, a migration stopped half-way, or an operator has given orders different slots.
    let has_slots = found.column(ORDER, "slot").is_some();
    let (slot, live) = if has_slots { (", slot", LIVE) } else { ("", LIVE_BEFORE_SLOTS) };
    let shared =
        format!("FROM tb_voucher_order WHERE {live} GROUP BY voucher_id, user_id{slot} HAVING COUNT(*) > 1");
    let totals = format!(
        "SELECT CAST(COUNT(*) AS SIGNED), CAST(COALESCE(SUM(n), 0) AS SIGNED) 
         FROM (SELECT COUNT(*) AS n {shared}) AS shared"
    );
    let list = format!(
        "SELECT CAST(voucher_id AS CHAR), CAST(user_id AS CHAR), CAST(COUNT(*) AS SIGNED),
             CAST(SUBSTRING_INDEX(GROUP_CONCAT(id ORDER BY id), ',', {LISTED_ORDERS}) AS CHAR)
         {shared} ORDER BY voucher_id, user_id LIMIT {LISTED}"
    );
    let read = async {
        let totals: (i64, i64) = sqlx::query_as(AssertSqlSafe(totals)).fetch_one(&mut *connection).await?;
        let rows: Vec<(String, String, i64, String)> = match totals.0 {
            0 => Vec::new(),
            _ => sqlx::query_as(AssertSqlSafe(list)).fetch_all(&mut *connection).await?,
        };
        Ok((totals, rows))
    };
    let ((slots, orders), rows) =
        read.await.map_err(|source| failed_to("search for shared slots", source))?;
    let listed = rows.into_iter().map(|(voucher, user, orders, ids)| SharedSlot {
        voucher,
        user,
        orders,
        order_ids: ids.split(',').map(str::to_owned).collect(),
    });
    Ok((slots > 0).then(|| DuplicateOrders { slots, orders, listed: listed.collect() }))
}

pub(super) fn failed_to(doing: &str, error: sqlx::Error) -> MigrateError {
    MigrateError::Sql { doing: doing.to_owned(), error }
}
