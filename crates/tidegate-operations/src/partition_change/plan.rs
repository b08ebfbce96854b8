//! The plan of a change of the list, and the reasons against it.

use anyhow::bail;
use serde::Serialize;
use tidegate_orders::partition;

use super::{ChangeReport, Kept, PartitionChange, drain::dead_letters_stay};
use crate::{
    change::{InvalidInput, Next, Plan},
    partition_list::{ChangeStep, ListChange, StoredList, named_list},
    settings::System,
};

/// The planned outcome of a change of the partition list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedChange {
    /// The list would be changed.
    WouldChange,
    /// A change has begun, and would continue.
    WouldGoOn,
    /// A change has closed sales and moved nothing: the sales would be opened, and the list would stay.
    WouldGiveUp,
    /// The system already has this list.
    ChangedBefore,
    /// The list cannot be changed; the plan has the reason.
    Refused,
}

/// The plan to change the partition list.
#[derive(Clone, Debug, Serialize)]
pub struct ChangePlan {
    /// The tags of the old list; empty: the system has no partitions before the change.
    pub from: Vec<String>,
    /// The tags of the new list; empty: the system has no partitions after the change.
    pub to: Vec<String>,
    /// The planned outcome of the change of the list.
    pub outcome: PlannedChange,
    /// The reason why the change would be refused; None: the change would not be refused.
    pub reason: Option<String>,
    /// The current step of a change of the list that has already begun; None: no change has begun.
    pub step: Option<ChangeStep>,
    /// The number of vouchers that have keys in Redis.
    pub vouchers: u64,
    /// The number of vouchers whose keys would move to another partition.
    pub moving: u64,
    /// The number of entries that workers must write before the change.
    pub entries: u64,
    /// The number of results of removed partitions that webhooks have not sent. A result counts once for each webhook.
    pub unsent_results: u64,
    /// The number of worker processes that are alive. These processes end on their own when the change begins.
    pub workers: u64,
    /// The number of HTTP gates that use the old list. These gates switch to the new list on their own.
    pub gates: u64,
    /// The number of dead letters, which the operator must requeue, cancel or drop before the change.
    pub dead_letters: u64,
}

impl Plan for ChangePlan {
    fn next(&self) -> Next {
        let (from, to) = (named_list(&self.from), named_list(&self.to));
        match self.outcome {
            PlannedChange::ChangedBefore => Next::NothingToDo,
            PlannedChange::Refused => Next::Refused,
            PlannedChange::WouldChange => {
                Next::Ask(format!("Close all sales, and change the partitions from {from} to {to}?"))
            }
            PlannedChange::WouldGoOn => Next::Ask(format!("Continue to change the partitions to {to}?")),
            PlannedChange::WouldGiveUp => {
                Next::Ask(format!("Cancel the change, open all sales, and keep the partitions {to}?"))
            }
        }
    }
}

impl From<&ChangePlan> for ChangeReport {
    /// Creates the report of a change that has not begun.
    fn from(plan: &ChangePlan) -> Self {
        Self { from: plan.from.clone(), to: plan.to.clone(), ..Self::default() }
    }
}

/// Checks whether the system can have the partition list `to`.
///
/// # Errors
/// If the list is impossible.
pub fn check(system: &System, to: &[String]) -> Result<(), InvalidInput> {
    let tags = system.common().partition().tags().len();
    if system.partitions().len() != tags.max(1) {
        return Err(InvalidInput("the list applies to all partitions: omit --partition".to_owned()));
    }
    if to.is_empty() && system.is_on_cluster() {
        return Err(InvalidInput("a Redis Cluster needs partitions: name at least one tag".to_owned()));
    }
    match partition::wrong_tags(to).first() {
        Some(wrong) => Err(InvalidInput(format!("--to {wrong}"))),
        None => Ok(()),
    }
}

impl PartitionChange {
    /// Reads the state of the system, and plans which vouchers would move.
    ///
    /// # Errors
    /// If a partition does not answer.
    pub async fn plan(&self) -> anyhow::Result<ChangePlan> {
        let (from, to) = self.lists();
        let is_same = from == to;
        let unsent = self.unsent_results().await?;
        let mut plan = ChangePlan {
            from,
            to,
            outcome: PlannedChange::WouldChange,
            reason: None,
            step: None,
            vouchers: 0,
            moving: 0,
            entries: self.open_entries().await?,
            unsent_results: unsent.count,
            workers: self.living_workers().await?.len() as u64,
            gates: self.working_gates().await?.len() as u64,
            dead_letters: self.dead_letters().await?,
        };
        let mut limited = None;
        for partition in &self.partitions.old {
            let vouchers = partition.vouchers().await?;
            plan.vouchers += vouchers.len() as u64;
            for voucher in vouchers.into_iter().filter(|voucher| self.is_moved(*voucher)) {
                plan.moving += 1;
                if partition.redis.limits().has_limits(voucher).await? {
                    limited = Some(voucher);
                }
            }
        }
        if is_same {
            plan.outcome = self.giving_up(&mut plan).await?;
            return Ok(plan);
        }
        (plan.outcome, plan.reason) = match self.kept().await? {
            Kept::After => (PlannedChange::ChangedBefore, None),
            Kept::Other(reason) => (PlannedChange::Refused, Some(reason)),
            Kept::Before | Kept::Step(ChangeStep::Draining) if plan.dead_letters > 0 => {
                (PlannedChange::Refused, Some(dead_letters_stay(plan.dead_letters)))
            }
            // After the sales are closed, a rerun waits, as the first run would have done.
            Kept::Before if unsent.are_stuck => (PlannedChange::Refused, Some(unsent.text())),
            Kept::Before if self.are_workers_paused().await? => {
                let reason = "the workers are paused: first run tidegate resume --workers";
                (PlannedChange::Refused, Some(reason.to_owned()))
            }
            Kept::Before => match limited {
                None => (PlannedChange::WouldChange, None),
                Some(voucher) => {
                    let reason =
                        format!("voucher {voucher} has limits, and sales with limits cannot be moved");
                    (PlannedChange::Refused, Some(reason))
                }
            },
            Kept::Step(step) => {
                plan.step = Some(step);
                (PlannedChange::WouldGoOn, None)
            }
        };
        Ok(plan)
    }

    /// Returns whether a change that has begun can be given up, because the requested list is the current one.
    async fn giving_up(&self, plan: &mut ChangePlan) -> anyhow::Result<PlannedChange> {
        let mut found: Option<ListChange> = None;
        for partition in &self.partitions.old {
            match StoredList::read(&partition.redis).await? {
                StoredList::Changing(change) if found.as_ref().is_none_or(|it| it.step < change.step) => {
                    found = Some(change);
                }
                StoredList::Settled(tags) if tags != plan.from => {
                    bail!(InvalidInput(another_list(&tags, &plan.from)))
                }
                _ => {}
            }
        }
        Ok(match found {
            None => PlannedChange::ChangedBefore,
            Some(change) if change.from == plan.from && change.step == ChangeStep::Draining => {
                plan.step = Some(change.step);
                PlannedChange::WouldGiveUp
            }
            Some(change) => {
                plan.reason = Some(another_change(&change));
                PlannedChange::Refused
            }
        })
    }
}

/// Explains that another change is in progress, so that nothing can be done.
pub(super) fn another_change(other: &ListChange) -> String {
    format!(
        "a change of the partitions from {} to {} is in progress: first finish it with the old value of stream.partitions",
        named_list(&other.from),
        named_list(&other.to)
    )
}

/// Explains that the system has another list than the settings.
pub(super) fn another_list(kept: &[String], own: &[String]) -> String {
    format!(
        "the system has the partitions {}, but the setting stream.partitions is {}",
        named_list(kept),
        named_list(own)
    )
}
