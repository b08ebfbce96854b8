//! Checks whether MySQL accepts orders now.

use std::time::Duration;

use tidegate_stream::{Backoff, Outage};
use tokio::time::{sleep, timeout};

use super::{Ledger, fault::Fault, sql};

impl Ledger {
    /// Checks that the database accepts a durable write and that the schema is in place. All workers of a cluster write
    /// the same row for this check. If the servers let only one of several writes succeed, the other workers try again,
    /// for no longer than the time limit of a transaction.
    ///
    /// # Errors
    /// Fails if the database does not answer, or refuses the write.
    pub async fn probe(&self) -> Result<(), Outage> {
        let mut conflict = None;
        let outage = match timeout(self.timeout, self.write_probe(&mut conflict)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(fault)) => fault.into(),
            Err(_) => conflict.map_or_else(|| self.too_late(), |error| Outage::new("MySQL", error)),
        };
        self.forget_idle_connections();
        Err(outage)
    }

    /// Writes until no other worker is in the way. `conflict` keeps the error of the last conflict.
    async fn write_probe(&self, conflict: &mut Option<String>) -> Result<(), Fault> {
        let mut backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(200));
        loop {
            match sqlx::raw_sql(sql::PROBE).execute(&self.pool).await.map_err(Fault::from) {
                Ok(_) => return Ok(()),
                Err(Fault::Contention(error)) => *conflict = Some(error),
                Err(fault) => return Err(fault),
            }
            sleep(backoff.next_wait()).await;
        }
    }
}
