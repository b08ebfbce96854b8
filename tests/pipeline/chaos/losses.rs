//! The losses of stores. A store goes back to an earlier state of the run, as after a restart from a file, a backup or
//! a replica that was behind, or it is emptied.

use fred::{interfaces::LuaInterface, types::Value};
use rand::{RngExt, rngs::StdRng};
use sqlx::{AssertSqlSafe, MySqlConnection};

use crate::life_model::fleet::Fleet;

/// A script that copies all keys: the name, the time to live and the dump of each.
const COPY: &str = "local all = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
    all[#all + 1], all[#all + 2], all[#all + 3] = key, tostring(redis.call('PTTL', key)), redis.call('DUMP', key) end return all";
/// A script that restores exactly these keys. Scripts are lost, because neither files nor replicas have them.
const GO_BACK: &str = "redis.call('FLUSHALL') for at = 1, #ARGV, 3 do \
    redis.call('RESTORE', ARGV[at], math.max(tonumber(ARGV[at + 1]), 0), ARGV[at + 2]) end";
/// The prefix of copied tables.
const COPIED: &str = "before_";

/// A loss of data in one store or in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    RedisGoesBack,
    RedisIsEmptied,
    MysqlGoesBack,
    BothGoBack,
    RedisIsEmptiedAndMysqlGoesBack,
}

impl Loss {
    pub fn any(rng: &mut StdRng) -> Self {
        let all = [
            Self::RedisGoesBack,
            Self::RedisIsEmptied,
            Self::MysqlGoesBack,
            Self::BothGoBack,
            Self::RedisIsEmptiedAndMysqlGoesBack,
        ];
        all[rng.random_range(0..all.len())]
    }

    pub fn is_of_mysql(self) -> bool {
        !matches!(self, Self::RedisGoesBack | Self::RedisIsEmptied)
    }

    pub fn is_of_redis(self) -> bool {
        self != Self::MysqlGoesBack
    }

    pub fn empties_redis(self) -> bool {
        matches!(self, Self::RedisIsEmptied | Self::RedisIsEmptiedAndMysqlGoesBack)
    }
}

/// Copies of both stores, from different times.
pub struct Stores {
    redis: Vec<Value>,
    tables: Vec<String>,
}

impl Stores {
    /// Copies both stores.
    pub async fn open(fleet: &Fleet<'_>) -> Self {
        let tables = "SELECT table_name FROM information_schema.tables \
                      WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'";
        let tables: Vec<String> =
            sqlx::query_scalar(tables).fetch_all(&fleet.pool).await.expect("MySQL answers");
        let mut connection = fleet.pool.acquire().await.expect("MySQL answers");
        for table in &tables {
            does(&mut connection, format!("CREATE TABLE {COPIED}{table} LIKE {table}")).await;
        }
        drop(connection);
        let mut stores = Self { redis: Vec::new(), tables };
        stores.copy_redis(fleet).await;
        stores.copy_mysql(fleet).await;
        stores
    }

    pub async fn copy_redis(&mut self, fleet: &Fleet<'_>) {
        let client = &fleet.fixture.client;
        self.redis =
            client.eval(COPY, Vec::<String>::new(), Vec::<String>::new()).await.expect("Redis answers");
    }

    /// Copies all tables at one moment.
    pub async fn copy_mysql(&self, fleet: &Fleet<'_>) {
        let mut connection = self.lock(fleet).await;
        for table in &self.tables {
            does(&mut connection, format!("DELETE FROM {COPIED}{table}")).await;
            does(&mut connection, format!("INSERT INTO {COPIED}{table} SELECT * FROM {table}")).await;
        }
        does(&mut connection, "UNLOCK TABLES".to_owned()).await;
    }

    pub async fn suffer(&self, loss: Loss, fleet: &Fleet<'_>) {
        if loss.is_of_mysql() {
            self.restore_mysql(fleet).await;
        }
        if loss.is_of_redis() {
            let copy = if loss.empties_redis() { Vec::new() } else { self.redis.clone() };
            let _: Value =
                fleet.fixture.client.eval(GO_BACK, Vec::<String>::new(), copy).await.expect("Redis answers");
            fleet.fixture.call("SCRIPT FLUSH").await;
        }
    }

    /// Restores the tables, and ends all other sessions, as a restart of the server does.
    async fn restore_mysql(&self, fleet: &Fleet<'_>) {
        let mut connection = self.lock(fleet).await;
        for table in &self.tables {
            does(&mut connection, format!("DELETE FROM {table}")).await;
            does(&mut connection, format!("INSERT INTO {table} SELECT * FROM {COPIED}{table}")).await;
        }
        let others = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                      WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        let others: Vec<i64> =
            sqlx::query_scalar(others).fetch_all(&mut *connection).await.expect("MySQL answers");
        for other in others {
            // The connection may have ended by itself.
            _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL {other}"))).execute(&mut *connection).await;
        }
        does(&mut connection, "UNLOCK TABLES".to_owned()).await;
    }

    /// Locks all tables, which waits for all open transactions.
    async fn lock(&self, fleet: &Fleet<'_>) -> sqlx::pool::PoolConnection<sqlx::MySql> {
        let mut connection = fleet.pool.acquire().await.expect("MySQL answers");
        let tables: Vec<String> =
            self.tables.iter().map(|table| format!("{table} WRITE, {COPIED}{table} WRITE")).collect();
        does(&mut connection, format!("LOCK TABLES {}", tables.join(", "))).await;
        connection
    }
}

async fn does(connection: &mut MySqlConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql.as_str()))
        .execute(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}
