//! Moves the sales of vouchers that have another partition in the new list, and raises the counters of order ids.

use anyhow::{Context, bail};
use jiff::Timestamp;
use tidegate_compare::Job;
use tidegate_orders::{
    VoucherId,
    order_id::counter::KnownSequences,
    scripts::{ImportReply, RemoveMovedReply},
};

use super::{PartitionChange, listed_partitions::ListedPartition, report::ChangeReport};
use crate::{Stores, expirations::assign_partitions};

/// The number of copies of a sale after which the change fails, if Redis loses parts of them.
const TRIES: u32 = 3;

impl PartitionChange {
    /// Moves the sales to their new partitions. False: it was stopped before the end.
    pub(super) async fn move_sales(&self, report: &mut ChangeReport, job: &Job) -> anyhow::Result<bool> {
        self.raise_counters(report).await?;
        let changed = self.changed.common();
        if !assign_partitions(Stores::new(changed).mysql().await?, changed, || job.is_stopped()).await? {
            return Ok(false);
        }
        let mut moving = Vec::new();
        for partition in &self.partitions.old {
            let vouchers = partition.vouchers().await?;
            moving.extend(vouchers.into_iter().filter(|it| self.is_moved(*it)).map(|it| (partition, it)));
        }
        job.progress.expect(moving.len() as u64, "vouchers");
        // All sales are imported, also on replicas, before the first one is removed. Until then, each sale is complete
        // in its old partition.
        for (partition, voucher) in &moving {
            if job.is_stopped() {
                return Ok(false);
            }
            if !partition.redis.repairs().sale_size(*voucher).await?.is_gone {
                self.copy(partition, *voucher).await?;
                report.copied += 1;
            }
        }
        for partition in &self.partitions.new {
            partition.replicated().await?;
        }
        for (partition, voucher) in &moving {
            if job.is_stopped() {
                return Ok(false);
            }
            if !partition.redis.repairs().sale_size(*voucher).await?.is_gone {
                self.remove_moved(partition, *voucher).await?;
                report.moved += 1;
            }
            job.progress.add(1);
        }
        Ok(true)
    }

    async fn copy(&self, partition: &ListedPartition, voucher: VoucherId) -> anyhow::Result<()> {
        let there = self.partitions.of(voucher);
        for _ in 0..TRIES {
            let reply = partition.redis.repairs().copy_to(there.redis.repairs(), voucher).await;
            match reply.with_context(|| format!("Failed to copy voucher {voucher}"))? {
                ImportReply::Imported => return Ok(()),
                ImportReply::Incomplete => {}
                ImportReply::IsOpen => bail!(
                    "voucher {voucher} is already on sale in its new partition {}, before the change is complete: \
                     stop the program that uses the new list of partitions",
                    there.settings.partition()
                ),
            }
        }
        bail!("Redis repeatedly lost the copy of voucher {voucher}: check the memory of Redis, then retry")
    }

    /// Removes a sale in its old partition, only if it is complete in its new partition.
    async fn remove_moved(&self, partition: &ListedPartition, voucher: VoucherId) -> anyhow::Result<()> {
        let there = self.partitions.of(voucher);
        if partition.redis.repairs().sale_size(voucher).await?
            != there.redis.repairs().sale_size(voucher).await?
        {
            // The server of the new partition went back in time since the copy, by a failover or a restart.
            self.copy(partition, voucher).await?;
            there.replicated().await?;
        }
        match partition.redis.repairs().remove_moved(voucher).await? {
            RemoveMovedReply::Gone | RemoveMovedReply::GoneBefore => Ok(()),
            RemoveMovedReply::NotClosed => {
                bail!("another program has opened the sale of voucher {voucher}; run this command again")
            }
        }
    }

    /// Raises the counters, so that no partition allocates an id that another one has allocated.
    async fn raise_counters(&self, report: &mut ChangeReport) -> anyhow::Result<()> {
        let stores = Stores::new(self.changed.common());
        let mysql = stores.mysql().await?;
        for partition in &self.partitions.new {
            let known =
                KnownSequences::in_mysql(Timestamp::now(), partition.redis.keys().partition(), mysql).await;
            let mut known = known.context("Failed to read the order ids in MySQL")?;
            for other in self.partitions.all() {
                known.read_counters(&other.redis).await?;
            }
            report.counters += known.raise(&partition.redis).await?.len() as u64;
        }
        Ok(())
    }
}
