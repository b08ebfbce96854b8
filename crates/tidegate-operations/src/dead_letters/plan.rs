//! The plan of a requeue, cancel or drop of the selected letters.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{UserId, VoucherId, scripts::UserAfter, wire::FieldNames};
use tidegate_stream::{EntryId, Letter};

use super::{
    buried_events::BuriedEvent,
    groups::{LetterCounter, LetterCounts},
    outcome::{LetterBlocker, LetterDecision, MOST_NAMED, PlannedRelease, RequeueFailure, RetainedLetters},
    selection::LetterSelection,
};
use crate::change::{Next, Plan};

/// The plan to change dead letters: the predicted outcome for the selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterPlan {
    /// The key of the stream that holds the dead letters.
    pub stream: String,
    /// The counts of all selected letters.
    #[serde(flatten)]
    pub counts: LetterCounts,
    /// The number of letters that would be requeued, cancelled or dropped.
    pub would: u64,
    /// The number of dead letters that hold events, and that would be requeued after the orders of these events.
    /// Letters that were not selected also count.
    pub along: u64,
    /// The number of letters that workers would bury again after a requeue, for the most frequent reasons.
    pub again: Vec<PredictedFailures>,
    /// The units that would return to the stock, and the users who could buy again, for each voucher. The voucher with
    /// the most orders is first.
    pub releases: Vec<VoucherRelease>,
    /// The reasons of the existing dead letters, if no dead letter has the reason of the request.
    pub other_reasons: Vec<ReasonCount>,
    /// The selected dead letters that the command would not change.
    pub stay: RetainedLetters,
    /// The ids in the request for which no dead letter exists.
    pub missing: Vec<EntryId>,
    #[serde(skip)]
    pub(super) question: String,
    /// All letters that were selected, without those that were added since.
    #[serde(skip)]
    pub(super) selection: LetterSelection,
}

impl LetterPlan {
    /// Returns the reason by which the operator selected dead letters.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.selection.reason.as_deref()
    }
}

impl Plan for LetterPlan {
    fn next(&self) -> Next {
        match (self.would, self.counts.letters, self.missing.len()) {
            (0, 0, 0) => Next::NothingToDo,
            (0, ..) => Next::Refused,
            _ => Next::Ask(self.question.clone()),
        }
    }
}

/// The number of dead letters that were buried for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    /// The reason of the letters.
    pub reason: String,
    /// The number of letters with this reason.
    pub letters: u64,
}

/// The units and users of one voucher that a cancellation of dead letters would release in Redis: units return to the
/// stock, users can buy again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherRelease {
    /// The voucher to whose stock the units would return.
    pub voucher: VoucherId,
    /// The number of the voucher's orders whose units would return to the stock.
    pub orders: u64,
    /// The number of units that would return to the stock.
    pub units: i64,
    /// The number of units left in Redis now; None: Redis has no stock of the voucher, and no unit would be returned.
    pub stock: Option<i64>,
    /// The number of users who could buy the voucher again.
    pub freed: u64,
    /// The first few users who could buy the voucher again.
    pub first_freed: Vec<UserId>,
}

impl VoucherRelease {
    fn add(&mut self, release: &PlannedRelease) {
        self.orders += 1;
        self.units += release.units;
        if release.user_after == UserAfter::Freed {
            self.freed += 1;
            self.first_freed.extend((self.first_freed.len() < MOST_NAMED).then_some(release.user));
        }
    }
}

/// The predicted number of letters that workers would bury again after a requeue, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PredictedFailures {
    /// The reason why workers would bury the letters again; `no_order`: the letters hold no order.
    pub reason: &'static str,
    /// The voucher that has no row in MySQL, or that has limits; None: the reason is not about a voucher.
    pub voucher: Option<VoucherId>,
    /// The number of letters that would be buried again for this reason.
    pub letters: u64,
}

impl PredictedFailures {
    fn of((failure, letters): (RequeueFailure, u64)) -> Self {
        let (reason, voucher) = match failure {
            RequeueFailure::UnknownVoucher(voucher) => ("unknown_voucher", Some(voucher)),
            RequeueFailure::PastLimits(voucher) => ("past_limits", Some(voucher)),
            RequeueFailure::IdTaken => ("id_taken", None),
            RequeueFailure::NoOrder => ("no_order", None),
            RequeueFailure::TooLarge => ("too_large", None),
        };
        Self { reason, voucher, letters }
    }
}

/// A plan to which letters are still added.
#[derive(Debug, Default)]
pub(super) struct PlanDraft {
    counter: LetterCounter,
    pub(super) would: u64,
    pub(super) along: u64,
    again: BTreeMap<RequeueFailure, u64>,
    releases: BTreeMap<VoucherId, VoucherRelease>,
    stay: RetainedLetters,
    pub(super) missing: Vec<EntryId>,
    last: Option<EntryId>,
}

impl PlanDraft {
    /// Adds one more letter, which must be younger than those before.
    pub(super) fn add(&mut self, fields: &FieldNames, letter: &Letter, decision: LetterDecision) {
        self.counter.add(fields, letter);
        self.last = Some(letter.id);
        match decision {
            LetterDecision::Stays(blocker) => self.stay.add(blocker, letter.id, None),
            LetterDecision::FollowsItsOrder => {}
            LetterDecision::Done => self.would += 1,
            LetterDecision::Releases(release) => {
                self.would += 1;
                let voucher = release.voucher;
                let new = || VoucherRelease {
                    voucher,
                    orders: 0,
                    units: 0,
                    stock: None,
                    freed: 0,
                    first_freed: Vec::new(),
                };
                self.releases.entry(voucher).or_insert_with(new).add(&release);
            }
            LetterDecision::DiesAgain(failure) => {
                self.would += 1;
                *self.again.entry(failure).or_default() += 1;
            }
        }
    }

    /// Adds the events that would be requeued after their order.
    pub(super) fn add_following(&mut self, events: &[BuriedEvent]) {
        self.along += events.len() as u64;
    }

    /// Adds the selected events that stay because their order stays.
    pub(super) fn add_staying(&mut self, events: &[BuriedEvent]) {
        for event in events.iter().filter(|event| event.is_selected) {
            self.stay.add(LetterBlocker::OrderIsDead, event.letter, None);
        }
    }

    /// Completes the plan for the letters of `selection`, which must all have been added.
    pub(super) fn finish(self, stream: &str, selection: LetterSelection, question: String) -> LetterPlan {
        let mut again: Vec<PredictedFailures> = self.again.into_iter().map(PredictedFailures::of).collect();
        again.sort_by_key(|again| Reverse(again.letters));
        again.truncate(MOST_NAMED);
        let mut releases: Vec<VoucherRelease> = self.releases.into_values().collect();
        releases.sort_by_key(|release| Reverse(release.orders));
        LetterPlan {
            stream: stream.to_owned(),
            counts: self.counter.counts(),
            would: self.would,
            along: self.along,
            again,
            releases,
            other_reasons: Vec::new(),
            stay: self.stay,
            missing: self.missing,
            question,
            // The last id bounds the selection, so that no limit is needed and later letters are excluded.
            selection: LetterSelection {
                last: self.last.unwrap_or(selection.last),
                limit: None,
                ..selection
            },
        }
    }
}
