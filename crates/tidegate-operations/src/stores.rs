//! The stores of a partition. Each is connected at its first use, so operations that need only Redis work while MySQL
//! is unavailable.

use sqlx::MySqlPool;
use tidegate_compare::{Comparison, ComparisonRequest};
use tidegate_orders::{Ledger, Publisher, RedisStore, Sessions};
use tokio::sync::OnceCell;

use crate::{connect, operator_log::OperatorLog, settings::SystemSettings, shards};

/// The connections to Redis and MySQL of one partition, which are opened when they are first needed.
#[derive(Debug)]
pub struct Stores {
    settings: SystemSettings,
    redis: OnceCell<RedisStore>,
    mysql: OnceCell<(Sessions, MySqlPool)>,
}

impl Stores {
    /// Creates the stores of a partition from its settings, and opens no connection yet.
    #[must_use]
    pub fn new(settings: &SystemSettings) -> Self {
        Self { settings: settings.clone(), redis: OnceCell::new(), mysql: OnceCell::new() }
    }

    /// Returns the settings of the stores' partition.
    #[must_use]
    pub const fn settings(&self) -> &SystemSettings {
        &self.settings
    }

    /// Returns the connections to Redis, and opens them if necessary.
    ///
    /// # Errors
    /// If Redis cannot be reached, or has another list of partitions. The next call tries again.
    pub async fn redis(&self) -> anyhow::Result<&RedisStore> {
        self.redis.get_or_try_init(|| connect::redis(&self.settings)).await
    }

    /// Returns the connections to MySQL, and opens them if necessary.
    ///
    /// # Errors
    /// If MySQL cannot be reached, or serves other partitions. The next call tries again.
    pub async fn mysql(&self) -> anyhow::Result<&MySqlPool> {
        Ok(&self.reach_mysql().await?.1)
    }

    /// Returns the connections to Redis and to MySQL, and opens them if necessary.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn both(&self) -> anyhow::Result<(&RedisStore, &MySqlPool)> {
        tokio::try_join!(self.redis(), self.mysql())
    }

    /// Returns the MySQL sessions that [`Stores::mysql`] uses.
    ///
    /// # Errors
    /// As for [`Stores::mysql`].
    pub async fn sessions(&self) -> anyhow::Result<&Sessions> {
        Ok(&self.reach_mysql().await?.0)
    }

    /// Returns the ledger, the code that reads and writes orders in MySQL.
    ///
    /// # Errors
    /// As for [`Stores::mysql`].
    pub async fn ledger(&self) -> anyhow::Result<Ledger> {
        let (sessions, mysql) = self.reach_mysql().await?;
        Ok(connect::ledger(&self.settings, sessions, mysql.clone()))
    }

    /// Returns the ledger (the code that reads and writes orders) of a MySQL that may be unavailable. Each access fails
    /// until MySQL is available.
    ///
    /// # Errors
    /// If the URL is wrong, which the configuration checks before.
    pub fn ledger_unreached(&self) -> anyhow::Result<Ledger> {
        let sessions = connect::mysql_sessions(&self.settings)?;
        let mysql = sessions.pool(self.settings.mysql.connections);
        Ok(connect::ledger(&self.settings, &sessions, mysql))
    }

    /// Returns the publisher of order results to the results stream.
    ///
    /// # Errors
    /// As for [`Stores::both`].
    pub async fn publisher(&self) -> anyhow::Result<Publisher> {
        let (redis, mysql) = self.both().await?;
        Ok(connect::publisher(&self.settings, redis, mysql))
    }

    /// Creates a comparison of Redis and MySQL.
    ///
    /// # Errors
    /// As for [`Stores::both`].
    pub async fn comparison(&self, request: ComparisonRequest) -> anyhow::Result<Comparison> {
        let (redis, (sessions, mysql)) = (self.redis().await?, self.reach_mysql().await?);
        Ok(Comparison::new((redis.clone(), mysql.clone()), request).reading_causally(sessions.causal_reads()))
    }

    /// Opens the operators' log without checking the partition list in Redis, because the log also records changes of
    /// the list.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub async fn operator_log(&self) -> anyhow::Result<OperatorLog> {
        let redis = match self.redis.get() {
            Some(redis) => redis.clone(),
            None => connect::redis_of_any_list(&self.settings).await?,
        };
        Ok(OperatorLog::new(redis, &self.settings))
    }

    async fn reach_mysql(&self) -> anyhow::Result<&(Sessions, MySqlPool)> {
        let reach = || async {
            let sessions = connect::mysql_unchecked(&self.settings).await?;
            let mysql = sessions.pool(self.settings.mysql.connections);
            shards::compare(&self.settings, &mysql).await?;
            Ok((sessions, mysql))
        };
        self.mysql.get_or_try_init(reach).await
    }
}
