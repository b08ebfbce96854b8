//! A worker writes only where the rows of its partition are. It may begin while MySQL is away; then it looks before it reads.

use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_operations::{InvalidInput, SystemSettings, shards};
use tidegate_orders::Ledger;
use tidegate_stream::Outage;
use tokio::sync::watch;

/// The MySQL of a partition.
#[derive(Debug)]
pub(super) struct Shard {
    system: SystemSettings,
    mysql: MySqlPool,
    is_right: watch::Sender<bool>,
}

impl Shard {
    /// Nothing is known yet.
    pub(super) fn new(system: &SystemSettings, mysql: MySqlPool) -> Self {
        Self { system: system.clone(), mysql, is_right: watch::Sender::new(false) }
    }

    /// Asks whether the rows of the partition are there. No answer is no refusal.
    ///
    /// # Errors
    /// When they are elsewhere.
    pub(super) async fn refuse_another(&self) -> anyhow::Result<()> {
        match self.look().await {
            Err(error) if error.is::<InvalidInput>() => Err(error),
            _ => Ok(()),
        }
    }

    /// It takes a write, and the rows of the partition are there.
    pub(super) async fn probe(&self, ledger: &Ledger) -> Result<(), Outage> {
        ledger.probe().await?;
        self.look().await.map_err(|error| Outage::new("MySQL", error_chain(&error)))
    }

    /// Whether the rows of the partition are known to be there: what works on them waits for that.
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
