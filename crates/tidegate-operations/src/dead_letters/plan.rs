//! What would become of the selected letters.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{UserId, VoucherId, gate::UserAfter, wire::FieldNames};
use tidegate_stream::{EntryId, Letter};

use super::{
    buried_events::BuriedEvent,
    groups::{LetterCounter, LetterCounts},
    outcome::{PlannedRelease, LetterDecision, MOST_NAMED, RequeueFailure, Obstacle, StayingLetters},
    selection::LetterSelection,
};
use crate::change::{Next, Plan};

/// What would become of the selected letters.
#[derive(Clone, Debug, Serialize)]
pub struct LetterPlan {
    /// The stream in which they stand.
    pub stream: String,
    /// All that were selected.
    #[serde(flatten)]
    pub counts: LetterCounts,
    /// How many of them it would be done to.
    pub would: u64,
    /// Events that would go back behind their orders, whether they were selected or not.
    pub along: u64,
    /// Of those that it would be done to, the ones that it would not help, for the most frequent reasons.
    pub again: Vec<DyingAgain>,
    /// What would be released, the vouchers with the most orders first.
    pub releases: Vec<VoucherRelease>,
    /// Where no letter has the reason that was asked for: the reasons of those that are there.
    pub other_reasons: Vec<ReasonCount>,
    /// The ones that would stay.
    pub stay: StayingLetters,
    /// Ids that were asked for and are not there.
    pub missing: Vec<EntryId>,
    #[serde(skip)]
    pub(super) question: String,
    /// All that were selected, and none that came since.
    #[serde(skip)]
    pub(super) selection: LetterSelection,
}

impl LetterPlan {
    /// The reason that was asked for.
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

/// Letters of one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReasonCount {
    /// The reason.
    pub reason: String,
    /// How many they are.
    pub letters: u64,
}

/// What Redis would get back of one voucher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VoucherRelease {
    /// The voucher.
    pub voucher: VoucherId,
    /// How many orders of it.
    pub orders: u64,
    /// Units of these.
    pub units: i64,
    /// Units that Redis has now; None: it has no stock, and gets none.
    pub stock: Option<i64>,
    /// Users who may buy again.
    pub freed: u64,
    /// The first of them.
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

/// Letters that would die again, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DyingAgain {
    /// The reason that their next letters would have, or `no_order`.
    pub reason: &'static str,
    /// The voucher of which MySQL has no row, or that has limits.
    pub voucher: Option<VoucherId>,
    /// How many they are.
    pub letters: u64,
}

impl DyingAgain {
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

/// A plan that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct PlanDraft {
    counter: LetterCounter,
    pub(super) would: u64,
    pub(super) along: u64,
    again: BTreeMap<RequeueFailure, u64>,
    releases: BTreeMap<VoucherId, VoucherRelease>,
    stay: StayingLetters,
    pub(super) missing: Vec<EntryId>,
    last: Option<EntryId>,
}

impl PlanDraft {
    /// With one more letter, which is younger than those before.
    pub(super) fn add(&mut self, fields: &FieldNames, letter: &Letter, decision: LetterDecision) {
        self.counter.add(fields, letter);
        self.last = Some(letter.id);
        match decision {
            LetterDecision::Stays(obstacle) => self.stay.add(obstacle, letter.id, None),
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

    /// With the events that go back behind their order.
    pub(super) fn add_following(&mut self, events: &[BuriedEvent]) {
        self.along += events.len() as u64;
    }

    /// With the events that stay because their order does, where they were asked for.
    pub(super) fn add_staying(&mut self, events: &[BuriedEvent]) {
        for event in events.iter().filter(|event| event.is_selected) {
            self.stay.add(Obstacle::OrderIsDead, event.letter, None);
        }
    }

    /// The plan for the letters of `selection`, all of which were added.
    pub(super) fn finish(self, stream: &str, selection: LetterSelection, question: String) -> LetterPlan {
        let mut again: Vec<DyingAgain> = self.again.into_iter().map(DyingAgain::of).collect();
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
            // So many that nothing has to be counted, and none that came since.
            selection: LetterSelection {
                last: self.last.unwrap_or(selection.last),
                limit: None,
                ..selection
            },
        }
    }
}
