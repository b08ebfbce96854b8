//! Changes the list of a system's partitions in a quiet hour: sales are closed, streams run empty, workers end, gates over HTTP let go of the list before, the keys of vouchers
//! that change their place move, sales are opened. Each partition keeps how far it is, so a change that was killed goes on where it
//! stood when the same is asked again, and another one is refused until then.

mod drain;
pub mod late;
mod lease;
mod moves;
mod places;
mod plan;
mod report;

use anyhow::bail;
use tidegate_compare::Job;
use tidegate_orders::VoucherId;

use self::places::ListedPartitions;
pub use self::{
    plan::{ChangePlan, PlannedChange, check},
    report::ChangeReport,
};
use crate::{
    Stores,
    change::{End, InvalidInput},
    partition_list::{ChangeStep, KeptList, ListChange},
    settings::System,
};

/// Changes a system's list of partitions.
#[derive(Debug)]
pub struct PartitionChange {
    system: System,
    changed: System,
    places: ListedPartitions,
    log_stores: Stores,
}

impl PartitionChange {
    /// From the list of `system` to that of `to`; none: one whole. Connects to all partitions of both.
    ///
    /// # Errors
    /// When a partition cannot be reached, or the system has MySQL shards.
    pub async fn connect(system: &System, to: &[String]) -> anyhow::Result<Self> {
        if !system.common().mysql.shard_tags.is_empty() {
            return Err(InvalidInput(
                "with [mysql.shards], vouchers would belong to other databases than the ones with their rows, and no command moves \
                 rows between shards (docs/shards.md)"
                    .into(),
            )
            .into());
        }
        let changed = system.with_tags(to);
        let places = ListedPartitions::connect(system, &changed).await?;
        let log_stores = Stores::new(changed.common());
        Ok(Self { system: system.clone(), changed, places, log_stores })
    }

    /// The partition whose log tells of the change: one that is there afterwards.
    #[must_use]
    pub const fn log_stores(&self) -> &Stores {
        &self.log_stores
    }

    /// Does what is planned.
    ///
    /// # Errors
    /// When a store does not answer, or something stands in the way. The same again goes on from there.
    pub async fn run(&self, plan: &ChangePlan, report: &mut ChangeReport, job: &Job) -> anyhow::Result<End> {
        let lease = lease::take(&self.places.first().redis, job).await?;
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
                    // A sale that was loaded meanwhile, and entries that came without asking the gate.
                    self.close(report).await?;
                    match self.open_entries().await? {
                        0 => ChangeStep::Moving,
                        _ => {
                            job.progress.say(
                                "entries came meanwhile: workers with the list before have to write them",
                            );
                            ChangeStep::Draining
                        }
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
        for place in &self.places.old {
            for voucher in place.vouchers().await? {
                report.opened += u64::from(place.redis.repairs().reopen(voucher).await?);
            }
        }
        let tags = self.system.common().partition().tags().to_vec();
        let before = if tags.is_empty() { KeptList::Nothing } else { KeptList::Settled(tags) };
        // Where it would have been changed to, first: what is left there would stand in the way of another change.
        let first = self.places.first();
        if let KeptList::Changing(change) = KeptList::read(&first.redis).await? {
            for place in
                ListedPartitions::connect(&self.system, &self.system.with_tags(&change.to)).await?.all()
            {
                if self.places.old.iter().all(|old| old.prefix() != place.prefix()) {
                    KeptList::Nothing.write(&place.redis).await?;
                }
            }
        }
        for place in self.places.old.iter().rev() {
            before.write(&place.redis).await?;
        }
        report.is_done = true;
        Ok(End::Whole)
    }

    /// What all partitions keep, taken together.
    async fn kept(&self) -> anyhow::Result<Kept> {
        let (from, to) = self.lists();
        let mut step = None;
        for place in self.places.all() {
            match KeptList::read(&place.redis).await? {
                KeptList::Changing(change) if (&change.from, &change.to) == (&from, &to) => {
                    step = step.max(Some(change.step));
                }
                KeptList::Changing(other) => return Ok(Kept::Other(plan::another_change(&other))),
                _ => {}
            }
        }
        if let Some(step) = step {
            return Ok(Kept::Step(step));
        }
        let mut is_after = true;
        for place in &self.places.old {
            match KeptList::read(&place.redis).await? {
                KeptList::Settled(tags) if tags == to => {}
                KeptList::Nothing => is_after = false,
                KeptList::Settled(tags) if tags == from => is_after = false,
                KeptList::Settled(tags) => return Ok(Kept::Other(plan::another_list(&tags, &from))),
                KeptList::Changing(other) => return Ok(Kept::Other(plan::another_change(&other))),
            }
        }
        Ok(if is_after { Kept::After } else { Kept::Before })
    }

    /// Has every partition of both lists keep how far it is.
    async fn keep(&self, step: ChangeStep) -> anyhow::Result<()> {
        let (from, to) = self.lists();
        let change = KeptList::Changing(ListChange { from, to, step });
        for place in self.places.all() {
            change.write(&place.redis).await?;
        }
        Ok(())
    }

    /// The new list is that of the system, also where no partition is any more.
    async fn settle(&self) -> anyhow::Result<()> {
        let (from, to) = self.lists();
        late::retire(&self.places, &from, &to).await?;
        let settled = KeptList::Settled(to);
        for place in self.places.all().into_iter().rev() {
            settled.write(&place.redis).await?;
        }
        Ok(())
    }

    fn lists(&self) -> (Vec<String>, Vec<String>) {
        let tags = |system: &System| system.common().partition().tags().to_vec();
        (tags(&self.system), tags(&self.changed))
    }

    /// Whether a voucher has another place afterwards.
    fn is_moved(&self, voucher: VoucherId) -> bool {
        let prefix = |system: &System| system.of_voucher(voucher).map(|own| own.partition().prefix()).ok();
        prefix(&self.system) != prefix(&self.changed)
    }
}

/// Where the system stands.
enum Kept {
    /// With the list before.
    Before,
    /// In the middle.
    Step(ChangeStep),
    /// With the new list.
    After,
    /// Elsewhere: why nothing can be done.
    Other(String),
}
