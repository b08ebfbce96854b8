//! Changes the partition list of a system at a quiet time. First, webhooks get the results of removed partitions. Then
//! sales are closed, streams run empty, and webhooks get the last of these results. Workers end, and gates over HTTP stop
//! using the old list. At last, the keys of vouchers with a new partition move, and sales are opened.
//!
//! Each partition stores the step. If a change was killed, the same command continues it from that step, and any other
//! change is refused until then.

mod drain;
pub mod late;
mod lease;
mod listed_partitions;
mod moves;
mod plan;
mod report;

use anyhow::bail;
use tidegate_compare::Job;
use tidegate_orders::VoucherId;

use self::listed_partitions::ListedPartitions;
pub use self::{
    plan::{ChangePlan, PlannedChange, check},
    report::ChangeReport,
};
use crate::{
    Stores,
    change::{End, InvalidInput},
    partition_list::{ChangeStep, ListChange, StoredList},
    settings::System,
};

/// The operation that changes the list of a system's partitions (groups of vouchers, each with its own keys in Redis).
#[derive(Debug)]
pub struct PartitionChange {
    system: System,
    changed: System,
    partitions: ListedPartitions,
    log_stores: Stores,
}

impl PartitionChange {
    /// Connects to all partitions of the old list (from `system`) and of the new list (`to`). An empty list means a
    /// system without partitions.
    ///
    /// # Errors
    /// If a partition cannot be reached, or the system has MySQL shards.
    pub async fn connect(system: &System, to: &[String]) -> anyhow::Result<Self> {
        if !system.common().mysql.shard_tags.is_empty() {
            return Err(InvalidInput(
                "the partitions cannot be changed with [mysql.shards]: rows would have to move to other shards, and no \
                 command moves rows between shards (docs/shards.md)"
                    .into(),
            )
            .into());
        }
        let changed = system.with_tags(to);
        let partitions = ListedPartitions::connect(system, &changed).await?;
        let log_stores = Stores::new(changed.common());
        Ok(Self { system: system.clone(), changed, partitions, log_stores })
    }

    /// Returns the stores of a partition that exists after the change, for the operators' log.
    #[must_use]
    pub const fn log_stores(&self) -> &Stores {
        &self.log_stores
    }

    /// Runs the planned change of the partition list.
    ///
    /// # Errors
    /// If a store does not answer, or something prevents the change. The same command then continues from there.
    pub async fn run(&self, plan: &ChangePlan, report: &mut ChangeReport, job: &Job) -> anyhow::Result<End> {
        let lease = lease::take(&self.partitions.first().redis, job).await?;
        let guard = job.stop_when_lost(&lease);
        let end = match plan.outcome {
            PlannedChange::WouldGiveUp => self.give_up(report).await,
            _ => self.go_on(report, job).await,
        };
        drop(guard);
        lease.end().await;
        end
    }

    async fn go_on(&self, report: &mut ChangeReport, job: &Job) -> anyhow::Result<End> {
        let mut step = match self.kept().await? {
            Kept::Before if !self.wait_for_backlog(job).await? => return Ok(End::Stopped),
            Kept::Before => ChangeStep::Draining,
            Kept::Step(step) => step,
            Kept::After => {
                report.is_done = true;
                return Ok(End::Whole);
            }
            Kept::Other(other) => bail!("{other}"),
        };
        loop {
            report.step = Some(step);
            self.keep(step).await?;
            step = match step {
                ChangeStep::Draining => {
                    self.close(report).await?;
                    if !self.drain(job).await? {
                        return Ok(End::Stopped);
                    }
                    ChangeStep::Stopping
                }
                ChangeStep::Stopping => {
                    if !self.wait_for_processes(job).await? {
                        return Ok(End::Stopped);
                    }
                    // Sales may have been loaded in the meantime, and producers may have appended entries without
                    // asking a gate.
                    self.close(report).await?;
                    if self.open_entries().await? == 0 && self.unsent_results().await?.count == 0 {
                        ChangeStep::Moving
                    } else {
                        job.progress.say(
                            "new entries or results arrived: start a worker with the old list of partitions to handle them",
                        );
                        ChangeStep::Draining
                    }
                }
                ChangeStep::Moving => {
                    if !self.move_sales(report, job).await? {
                        return Ok(End::Stopped);
                    }
                    ChangeStep::Opening
                }
                ChangeStep::Opening => {
                    self.reopen(report).await?;
                    self.settle().await?;
                    report.is_done = true;
                    return Ok(End::Whole);
                }
            };
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
        }
    }

    /// Opens the sales where they are; the list stays as it was.
    async fn give_up(&self, report: &mut ChangeReport) -> anyhow::Result<End> {
        for partition in &self.partitions.old {
            for voucher in partition.vouchers().await? {
                report.opened += u64::from(partition.redis.repairs().reopen(voucher).await?);
            }
        }
        let tags = self.system.common().partition().tags().to_vec();
        let before = if tags.is_empty() { StoredList::Nothing } else { StoredList::Settled(tags) };
        // The partitions of the new list are cleared first, because their notes would block another change.
        let first = self.partitions.first();
        if let StoredList::Changing(change) = StoredList::read(&first.redis).await? {
            for partition in
                ListedPartitions::connect(&self.system, &self.system.with_tags(&change.to)).await?.all()
            {
                if self.partitions.old.iter().all(|old| old.prefix() != partition.prefix()) {
                    StoredList::Nothing.write(&partition.redis).await?;
                }
            }
        }
        for partition in self.partitions.old.iter().rev() {
            before.write(&partition.redis).await?;
        }
        report.is_done = true;
        Ok(End::Whole)
    }

    /// Returns the state of the change that all partitions together hold.
    async fn kept(&self) -> anyhow::Result<Kept> {
        let (from, to) = self.lists();
        let mut step = None;
        for partition in self.partitions.all() {
            match StoredList::read(&partition.redis).await? {
                StoredList::Changing(change) if (&change.from, &change.to) == (&from, &to) => {
                    step = step.max(Some(change.step));
                }
                StoredList::Changing(other) => return Ok(Kept::Other(plan::another_change(&other))),
                _ => {}
            }
        }
        if let Some(step) = step {
            return Ok(Kept::Step(step));
        }
        let mut is_after = true;
        for partition in &self.partitions.old {
            match StoredList::read(&partition.redis).await? {
                StoredList::Settled(tags) if tags == to => {}
                StoredList::Nothing => is_after = false,
                StoredList::Settled(tags) if tags == from => is_after = false,
                StoredList::Settled(tags) => return Ok(Kept::Other(plan::another_list(&tags, &from))),
                StoredList::Changing(other) => return Ok(Kept::Other(plan::another_change(&other))),
            }
        }
        Ok(if is_after { Kept::After } else { Kept::Before })
    }

    /// Stores the step in every partition of both lists.
    async fn keep(&self, step: ChangeStep) -> anyhow::Result<()> {
        let (from, to) = self.lists();
        let change = StoredList::Changing(ListChange { from, to, step });
        for partition in self.partitions.all() {
            change.write(&partition.redis).await?;
        }
        Ok(())
    }

    /// Stores the new list in every partition, including those that the new list does not have.
    async fn settle(&self) -> anyhow::Result<()> {
        let (from, to) = self.lists();
        late::retire(&self.partitions, &from, &to).await?;
        let settled = StoredList::Settled(to);
        for partition in self.partitions.all().into_iter().rev() {
            settled.write(&partition.redis).await?;
        }
        Ok(())
    }

    fn lists(&self) -> (Vec<String>, Vec<String>) {
        let tags = |system: &System| system.common().partition().tags().to_vec();
        (tags(&self.system), tags(&self.changed))
    }

    /// Returns whether a voucher has another partition afterwards.
    fn is_moved(&self, voucher: VoucherId) -> bool {
        let prefix = |system: &System| system.of_voucher(voucher).map(|own| own.partition().prefix()).ok();
        prefix(&self.system) != prefix(&self.changed)
    }
}

/// The state of the change in the system.
enum Kept {
    /// The system has the old list.
    Before,
    /// The change has begun, and is in this step.
    Step(ChangeStep),
    /// The system has the new list.
    After,
    /// The system is in another state; the text says why the change is impossible.
    Other(String),
}
