//! The outcomes of replayed entries, predicted or actual.

use std::collections::HashSet;

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::OrderId;
use tidegate_stream::{DeadLetterReason, EntryId};

use super::{ReplayPlan, ReplayRequest};
use crate::change::{Ending, Report};

/// The entries that are named one by one, at most.
const MOST_REMARKS: usize = 20;

/// The number of replayed entries with each outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReplayCounts {
    /// The total number of entries in the replay.
    pub entries: u64,
    /// The number of entries whose orders were already in MySQL.
    pub already_there: u64,
    /// The number of entries whose orders were written to MySQL now.
    pub created: u64,
    /// The number of entries whose orders were refused now.
    pub refused: u64,
    /// The number of entries whose orders were already refused.
    pub refused_before: u64,
    /// The number of entries whose orders were released (units returned to the stock) before they were written. These
    /// entries were not replayed.
    pub released: u64,
    /// The number of entries with events that were recorded now.
    pub events: u64,
    /// The number of entries with events that were already recorded.
    pub events_before: u64,
    /// The number of pending entries that can never be written, and that are dead letters now.
    pub buried: u64,
    /// The number of entries that can never be written and that are not pending, so that the replay does not change
    /// them.
    pub dead: u64,
    /// The number of entries that cannot be written now, and that a living worker is processing or will try again
    /// later. A plan counts them here. A run counts them in [`ReplayReport::left`].
    pub in_progress: u64,
}

/// A replayed entry that an operator should check, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryWarning {
    /// The id of the entry.
    pub entry: EntryId,
    /// The outcome of the entry in the replay.
    pub what: WarningKind,
    /// The reason for the entry's outcome.
    pub why: String,
}

/// The outcome of a replayed entry that an operator should check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The entry can never be written, and is not pending.
    Dead,
    /// The order was released without having been written.
    Released,
    /// A living worker has the entry in progress.
    InProgress,
    /// The entry is not done yet.
    Left,
}

/// The number of replayed entries with each outcome, and the entries that an operator should check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayOutcomes {
    /// The number of entries with each outcome.
    #[serde(flatten)]
    pub counts: ReplayCounts,
    /// The first entries that an operator should check.
    #[serde(rename = "notes")]
    pub remarks: Vec<EntryWarning>,
}

impl ReplayOutcomes {
    fn remark(&mut self, entry: EntryId, what: WarningKind, why: impl Into<String>) {
        if self.remarks.len() < MOST_REMARKS {
            self.remarks.push(EntryWarning { entry, what, why: why.into() });
        }
    }

    /// Counts one more replayed entry.
    pub(super) fn add(&mut self, counter: impl FnOnce(&mut ReplayCounts) -> &mut u64) {
        self.counts.entries += 1;
        *counter(&mut self.counts) += 1;
    }

    pub(super) fn add_released(&mut self, id: EntryId) {
        self.add(|counts| &mut counts.released);
        self.remark(id, WarningKind::Released, "the order was released, so its entry is not replayed");
    }

    pub(super) fn add_dead(&mut self, id: EntryId, DeadLetterReason { reason, error }: &DeadLetterReason) {
        self.add(|counts| &mut counts.dead);
        let why = format!("{reason}: {error}; the entry is not pending, so it does not become a dead letter");
        self.remark(id, WarningKind::Dead, why);
    }

    pub(super) fn add_in_progress(
        &mut self,
        id: EntryId,
        DeadLetterReason { reason, error }: &DeadLetterReason,
    ) {
        self.add(|counts| &mut counts.in_progress);
        let why =
            format!("{reason}: {error}; a living worker is processing the entry, so wait for this worker");
        self.remark(id, WarningKind::InProgress, why);
    }
}

/// The report of a replay of entries.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// The name of the stream, or the path of the file.
    pub source: String,
    /// The number of entries with each outcome, and the entries that an operator should check.
    #[serde(flatten)]
    pub outcomes: ReplayOutcomes,
    /// The number of entries that were not replayed, because other processes locked the users, vouchers or entries for
    /// too long, or because Redis refused a dead letter.
    pub left: u64,
    /// The number of pending entries that the replay acknowledged, without the buried entries.
    pub acknowledged: u64,
    #[serde(skip)]
    request: ReplayRequest,
    #[serde(skip)]
    is_sorted: bool,
    #[serde(skip)]
    first_left: Option<EntryId>,
    /// The orders with an entry that is not done, for which later events have to wait.
    #[serde(skip)]
    pub(super) orders_left: HashSet<OrderId>,
    /// Whether the entries before the first one were read.
    #[serde(skip)]
    pub(super) has_looked_before: bool,
    /// The first entry that is not replayed yet.
    #[serde(skip)]
    next: EntryId,
}

impl ReplayReport {
    /// Creates a report in which no entry is replayed yet.
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

    /// Returns the request that continues this replay. For an unsorted file, the new request covers the whole file,
    /// because a new replay recognizes finished entries.
    #[must_use]
    pub fn rest(&self) -> ReplayRequest {
        // An entry that other processes held comes first; entries after it that were replayed since are found done.
        let next = self.first_left.map_or(self.next, |left| left.min(self.next));
        let first = if self.is_sorted { Some(next) } else { self.request.first };
        ReplayRequest { first, ..self.request.clone() }
    }

    /// Notes that all entries before this one were replayed, or are left.
    pub(super) fn is_at(&mut self, next: EntryId) {
        self.next = next;
    }

    /// Returns whether events of this order have to wait for one of its entries.
    pub(super) fn has_left(&self, order: OrderId) -> bool {
        self.orders_left.contains(&order)
    }

    /// Notes an entry that is left, with its `order` if it names one.
    pub(super) fn leave(&mut self, id: EntryId, order: Option<OrderId>, why: impl Into<String>) {
        self.left += 1;
        self.orders_left.extend(order);
        self.first_left = Some(self.first_left.map_or(id, |first| first.min(id)));
        self.outcomes.remark(id, WarningKind::Left, why);
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
