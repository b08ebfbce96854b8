//! What a change of the list would do, and why it cannot.

use anyhow::bail;
use serde::Serialize;
use tidegate_orders::partition;

use super::{ChangeReport, Kept, PartitionChange, drain::dead_letters_stay};
use crate::{
    change::{InvalidInput, Next, Plan},
    partition_list::{ChangeStep, KeptList, ListChange, named_list},
    settings::System,
};

/// What would become of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedChange {
    /// It would be changed.
    WouldChange,
    /// The change stands in the middle, and would go on.
    WouldGoOn,
    /// A change has closed sales and moved nothing: they would be opened, and the list would stay.
    WouldGiveUp,
    /// It is the list of the system already.
    ChangedBefore,
    /// It cannot be changed, for a reason.
    Refused,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct ChangePlan {
    /// The tags before; none: one whole.
    pub from: Vec<String>,
    /// The tags afterwards.
    pub to: Vec<String>,
    /// What would become of it.
    pub outcome: PlannedChange,
    /// Why it would be refused.
    pub reason: Option<String>,
    /// How far the change is.
    pub step: Option<ChangeStep>,
    /// Vouchers that have keys in Redis.
    pub vouchers: u64,
    /// Those that change their place.
    pub moving: u64,
    /// Entries that workers have to write before.
    pub entries: u64,
    /// Worker processes that live, and end by themselves.
    pub workers: u64,
    /// Gates over HTTP that work with the list before, and follow by themselves.
    pub gates: u64,
    /// Dead letters, which have to be ended before.
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
            PlannedChange::WouldGoOn => Next::Ask(format!("Go on changing the partitions to {to}?")),
            PlannedChange::WouldGiveUp => Next::Ask(format!("Give up, open all sales, and stay with {to}?")),
        }
    }
}

impl From<&ChangePlan> for ChangeReport {
    /// Nothing is done yet.
    fn from(plan: &ChangePlan) -> Self {
        Self { from: plan.from.clone(), to: plan.to.clone(), ..Self::default() }
    }
}

/// Checks a list that a system is to have.
///
/// # Errors
/// When there can be no such list.
pub fn check(system: &System, to: &[String]) -> Result<(), InvalidInput> {
    let tags = system.common().partition().tags().len();
    if system.partitions().len() != tags.max(1) {
        return Err(InvalidInput("the list is that of all partitions: without --partition".to_owned()));
    }
    if to.is_empty() && system.is_on_cluster() {
        return Err(InvalidInput("on a cluster the names of a system need tags".to_owned()));
    }
    match partition::wrong_tags(to).first() {
        Some(wrong) => Err(InvalidInput(format!("--to {wrong}"))),
        None => Ok(()),
    }
}

impl PartitionChange {
    /// Reads where the system stands, and what would move.
    ///
    /// # Errors
    /// When a partition does not answer.
    pub async fn plan(&self) -> anyhow::Result<ChangePlan> {
        let (from, to) = self.lists();
        let is_same = from == to;
        let mut plan = ChangePlan {
            from,
            to,
            outcome: PlannedChange::WouldChange,
            reason: None,
            step: None,
            vouchers: 0,
            moving: 0,
            entries: self.open_entries().await?,
            workers: self.living_workers().await?.len() as u64,
            gates: self.working_gates().await?.len() as u64,
            dead_letters: self.dead_letters().await?,
        };
        let mut limited = None;
        for place in &self.places.old {
            let vouchers = place.vouchers().await?;
            plan.vouchers += vouchers.len() as u64;
            for voucher in vouchers.into_iter().filter(|voucher| self.is_moved(*voucher)) {
                plan.moving += 1;
                if place.redis.limits().has_limits(voucher).await? {
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
            Kept::Before if self.are_workers_paused().await? => {
                let reason =
                    "the workers are paused, and would go on afterwards: tidegate resume --workers first";
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

    /// The list is to stay: whether a change is under way that can still be given up.
    async fn giving_up(&self, plan: &mut ChangePlan) -> anyhow::Result<PlannedChange> {
        let mut found: Option<ListChange> = None;
        for place in &self.places.old {
            match KeptList::read(&place.redis).await? {
                KeptList::Changing(change) if found.as_ref().is_none_or(|it| it.step < change.step) => {
                    found = Some(change);
                }
                KeptList::Settled(tags) if tags != plan.from => {
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

/// Why nothing can be done beside another change.
pub(super) fn another_change(other: &ListChange) -> String {
    format!(
        "a change of the partitions from {} to {} is under way: finish it first, with stream.partitions as it was before",
        named_list(&other.from),
        named_list(&other.to)
    )
}

/// Why nothing can be done with another list than that of the system.
pub(super) fn another_list(kept: &[String], own: &[String]) -> String {
    format!(
        "the system has the partitions {}, and stream.partitions says {}",
        named_list(kept),
        named_list(own)
    )
}
