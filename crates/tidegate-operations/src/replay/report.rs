//! What became of entries that were run again, or would become of them.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::OrderId;
use tidegate_stream::{DeadLetterReason, EntryId};

use super::{ReplayPlan, ReplayRequest};
use crate::change::{Ending, Report};

/// Entries that are named one by one, at most.
const MOST_REMARKS: usize = 20;

/// Entries, counted by what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplayCounts {
    /// All of them.
    pub entries: u64,
    /// Their orders are in MySQL since before.
    pub already_there: u64,
    /// Their orders were written.
    pub created: u64,
    /// Their orders were refused.
    pub refused: u64,
    /// Their orders had been refused before.
    pub refused_before: u64,
    /// Their orders were released without having been written: they were not run.
    pub released: u64,
    /// They are events, and are recorded since now.
    pub events: u64,
    /// They are events that were recorded before.
    pub events_before: u64,
    /// They can never be written, were pending, and are dead letters now.
    pub buried: u64,
    /// They can never be written, and are not pending: nothing is done about them.
    pub dead: u64,
    /// They could not be written now, and a living worker has them in progress or has set them aside: nobody else buries
    /// them. Only in a plan; those that the worker keeps to the end are left.
    pub in_progress: u64,
}

/// An entry that needs a look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryRemark {
    /// Which entry.
    pub entry: EntryId,
    /// What became of it.
    pub what: RemarkKind,
    /// Why.
    pub why: String,
}

/// What became of an entry that needs a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemarkKind {
    /// It can never be written, and is not pending.
    Dead,
    /// Its order was released without having been written.
    Released,
    /// A living worker has it in progress.
    InProgress,
    /// It is still to be done.
    Left,
}

/// What became of entries, with those that need a look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayOutcomes {
    /// By what became of them.
    #[serde(flatten)]
    pub counts: ReplayCounts,
    /// The first of those that need a look.
    #[serde(rename = "notes")]
    pub remarks: Vec<EntryRemark>,
}

impl ReplayOutcomes {
    fn remark(&mut self, entry: EntryId, what: RemarkKind, why: impl Into<String>) {
        if self.remarks.len() < MOST_REMARKS {
            self.remarks.push(EntryRemark { entry, what, why: why.into() });
        }
    }

    /// Counts one more entry.
    pub(super) fn add(&mut self, counter: impl FnOnce(&mut ReplayCounts) -> &mut u64) {
        self.counts.entries += 1;
        *counter(&mut self.counts) += 1;
    }

    pub(super) fn add_released(&mut self, id: EntryId) {
        self.add(|counts| &mut counts.released);
        self.remark(id, RemarkKind::Released, "its unit is free again, so it is not run");
    }

    pub(super) fn add_dead(&mut self, id: EntryId, DeadLetterReason { reason, error }: &DeadLetterReason) {
        self.add(|counts| &mut counts.dead);
        let why = format!("{reason}: {error}; it is not pending, so it is not buried");
        self.remark(id, RemarkKind::Dead, why);
    }

    pub(super) fn add_in_progress(&mut self, id: EntryId, DeadLetterReason { reason, error }: &DeadLetterReason) {
        self.add(|counts| &mut counts.in_progress);
        let why = format!("{reason}: {error}; a living worker has it, so a replay waits for that");
        self.remark(id, RemarkKind::InProgress, why);
    }
}

/// What a replay did.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The stream, or the file.
    pub source: String,
    /// What became of entries.
    #[serde(flatten)]
    pub outcomes: ReplayOutcomes,
    /// Entries that are still to be done: others hold their users, their vouchers or themselves for too long, or Redis
    /// takes no dead letter.
    pub left: u64,
    /// How many of all were pending in the group and are acknowledged now, buried ones not counted.
    pub acknowledged: u64,
    #[serde(skip)]
    request: ReplayRequest,
    #[serde(skip)]
    is_sorted: bool,
    #[serde(skip)]
    first_left: Option<EntryId>,
    /// Orders with an entry that is still to be done, and behind which events have to wait.
    #[serde(skip)]
    pub(super) orders_left: HashSet<OrderId>,
    /// Whether entries before the first one were looked at.
    #[serde(skip)]
    pub(super) has_looked_before: bool,
    /// This one and all after it are still to be run.
    #[serde(skip)]
    next: EntryId,
}

impl ReplayReport {
    /// Nothing is done yet.
    #[must_use]
    pub fn new(plan: &ReplayPlan) -> Self {
        Self {
            source: plan.source.clone(),
            outcomes: ReplayOutcomes::default(),
            left: 0,
            acknowledged: 0,
            request: plan.request.clone(),
            is_sorted: plan.is_sorted,
            first_left: None,
            orders_left: HashSet::new(),
            has_looked_before: false,
            next: plan.request.first.unwrap_or_default(),
        }
    }

    /// What is still to be run. Of a file that is not sorted that is all of it: what is done is found done.
    #[must_use]
    pub fn rest(&self) -> ReplayRequest {
        // What others were in the way of comes first: what was done since is found done.
        let next = self.first_left.map_or(self.next, |left| left.min(self.next));
        let first = if self.is_sorted { Some(next) } else { self.request.first };
        ReplayRequest { first, ..self.request.clone() }
    }

    /// All before this one was run, or is left.
    pub(super) fn is_at(&mut self, next: EntryId) {
        self.next = next;
    }

    /// Whether events of this order have to wait for one of its entries.
    pub(super) fn has_left(&self, order: OrderId) -> bool {
        self.orders_left.contains(&order)
    }

    /// `order`: of the entry, if it names one.
    pub(super) fn leave(&mut self, id: EntryId, order: Option<OrderId>, why: impl Into<String>) {
        self.left += 1;
        self.orders_left.extend(order);
        self.first_left = Some(self.first_left.map_or(id, |first| first.min(id)));
        self.outcomes.remark(id, RemarkKind::Left, why);
    }
}

impl Report for ReplayReport {
    fn counts(&self) -> Json {
        let mut counts = serde_json::to_value(&self.outcomes.counts).unwrap_or_default();
        counts["acknowledged"] = json!(self.acknowledged);
        counts["left"] = json!(self.left);
        counts
    }

    fn ending(&self) -> Ending {
        if self.left > 0 { Ending::Left } else { Ending::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        replay::{ReplayPlan, ReplaySource},
        selection::EntryFilter,
    };

    fn id(ms: u64) -> EntryId {
        EntryId { ms, seq: 0 }
    }

    fn report(is_sorted: bool) -> ReplayReport {
        let request = ReplayRequest {
            source: ReplaySource::Stream,
            first: Some(id(1)),
            last: Some(id(9)),
            filter: EntryFilter::default(),
            rate: None,
            publish: false,
            predict: false,
        };
        ReplayReport::new(&ReplayPlan { is_sorted, ..ReplayPlan::new(String::new(), (None, None), request) })
    }

    #[test]
    fn the_rest_begins_at_the_first_entry_that_is_left_or_not_run() {
        let mut report = report(true);
        assert_eq!((report.rest().first, report.rest().last), (Some(id(1)), Some(id(9))));
        report.is_at(id(5));
        assert_eq!(report.rest().first, Some(id(5)));
        report.leave(id(7), None, "held");
        report.leave(id(4), None, "held");
        report.is_at(id(8));
        assert_eq!((report.rest().first, report.ending()), (Some(id(4)), Ending::Left));
    }

    #[test]
    fn what_is_not_sorted_is_run_again_from_its_first_entry() {
        let mut report = report(false);
        report.is_at(id(5));
        assert_eq!(report.rest(), report.request);
    }
}
