//! The check that a worker writes only to the MySQL with the rows of its partition. If MySQL is away at the start, the
//! check follows before the worker reads.

use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{InvalidInput, SystemSettings, shards};
use tidegate_orders::Ledger;
use tidegate_stream::Outage;
use tokio::sync::watch;

/// The MySQL of a partition, and whether it was checked.
#[derive(Debug)]
pub(super) struct Shard {
    system: SystemSettings,
    mysql: MySqlPool,
    is_right: watch::Sender<bool>,
}

impl Shard {
    /// Creates a shard that is not checked yet.
    pub(super) fn new(system: &SystemSettings, mysql: MySqlPool) -> Self {
        Self { system: system.clone(), mysql, is_right: watch::Sender::new(false) }
    }

    /// Checks whether MySQL has the rows of the partition. If MySQL does not answer, this is no error.
    ///
    /// # Errors
    /// Fails if the rows of the partition belong in another MySQL.
    pub(super) async fn refuse_another(&self) -> anyhow::Result<()> {
        match self.look().await {
            Err(error) if error.is::<InvalidInput>() => Err(error),
            _ => Ok(()),
        }
    }

    /// Checks that MySQL accepts a write, and that it has the rows of the partition.
    pub(super) async fn probe(&self, ledger: &Ledger) -> Result<(), Outage> {
        ledger.probe().await?;
        self.look().await.map_err(|error| Outage::new("MySQL", error_chain(&error)))
    }

    /// Whether the check has succeeded: tasks that use the rows wait for that.
    pub(super) fn is_right(&self) -> watch::Receiver<bool> {
        self.is_right.subscribe()
    }

    async fn look(&self) -> anyhow::Result<()> {
        if !*self.is_right.borrow() {
            shards::compare(&self.system, &self.mysql).await?;
            self.is_right.send_replace(true);
        }
        Ok(())
    }
}
