//! The predicted and the actual outcome of a dead letter.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tidegate_orders::{
    UserId, VoucherId,
    scripts::{ScriptError, UserAfter},
};
use tidegate_stream::{EntryId, Outage};

/// The number of letters that a report names one by one, at most.
pub(super) const MOST_NAMED: usize = 20;

/// The outcome that a letter would have by the current state of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterDecision {
    /// The letter would be ended.
    Done,
    /// The letter would be ended, and its order would be released.
    Releases(PlannedRelease),
    /// The letter would be requeued, and would become a dead letter again.
    DiesAgain(RequeueFailure),
    /// The letter would stay a dead letter.
    Stays(LetterBlocker),
    /// The letter would be requeued after its order, whose letter is selected as well.
    FollowsItsOrder,
}

/// The units and the user that Redis would get back from an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedRelease {
    pub(super) voucher: VoucherId,
    pub(super) units: i64,
    pub(super) user: UserId,
    pub(super) user_after: UserAfter,
}

/// The reason why a requeued letter would become a dead letter again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequeueFailure {
    /// MySQL has no row of the letter's voucher.
    UnknownVoucher(VoucherId),
    /// The voucher has limits, and the letter does not hold what its order used of them.
    PastLimits(VoucherId),
    /// The letter's order id belongs to another order.
    IdTaken,
    /// The letter holds neither an order nor an event.
    NoOrder,
    /// Workers do not process an entry of this size.
    TooLarge,
}

/// The actual outcome of a dead letter.
#[derive(Debug)]
pub(super) enum LetterOutcome {
    /// The letter was ended as requested.
    Done(EndedLetter),
    /// The letter did not exist any more: another program was faster.
    Gone,
    /// The letter did not exist any more. Another program cancelled its order at the same time, and this command
    /// released the order.
    Released,
    /// The letter stays, with the store's message if a store refused it.
    Stays(LetterBlocker, Option<String>),
}

impl LetterOutcome {
    /// Maps an error of Redis about one letter to an outcome: the letter stays, unless Redis could not be reached.
    pub(super) fn of_error(error: ScriptError) -> Result<Self, Outage> {
        match error {
            ScriptError::Unreachable(error) => Err(Outage::new("Redis", error)),
            error => Ok(Self::Stays(LetterBlocker::Failed, Some(error.to_string()))),
        }
    }
}

/// A dead letter that the command requeued, cancelled or dropped.
#[derive(Clone, Debug, Serialize)]
pub struct EndedLetter {
    /// The id of the dead letter.
    pub letter: EntryId,
    /// The change of the dead letter, in one word, such as `requeued`.
    pub outcome: &'static str,
    /// The id of the order that the dead letter held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The id of the stream entry that a requeue added; None: the letter was not requeued.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

/// The reason why a command does not change a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LetterBlocker {
    /// The letter was requeued so often that an operator has to force it.
    NeedsForce,
    /// The letter has more fields than a script can add.
    TooManyFields,
    /// The letter's order was already released.
    Released,
    /// The letter's order is cancelled in MySQL.
    Cancelled,
    /// MySQL already has the letter's order.
    OrderExists,
    /// The letter's order id belongs to another order.
    IdTaken,
    /// The letter does not hold an order.
    NoOrder,
    /// Another program wrote this entry into the stream of dead letters.
    Foreign,
    /// The letter holds an order, which must not be lost.
    HoldsOrder,
    /// The letter is an event, and its order is a dead letter that is not requeued.
    OrderIsDead,
    /// The letter reports a payment or a refund.
    HoldsPayment,
    /// According to the journal, the letter's order took units.
    HoldsUnits,
    /// MySQL refuses a row for the letter's order.
    Rejected,
    /// Other transactions lock rows of MySQL that the change needs.
    Contended,
    /// Redis refuses the change of this letter.
    Failed,
}

/// The dead letters that a command does not change, grouped by reason. As JSON, this is the list of [`RetainedGroup`]s.
#[derive(Clone, Debug, Default)]
pub struct RetainedLetters(BTreeMap<LetterBlocker, RetainedGroup>);

/// A group of dead letters that a command does not change, all for the same reason.
#[derive(Clone, Debug, Serialize)]
pub struct RetainedGroup {
    /// The reason why the letters are not changed.
    pub why: LetterBlocker,
    /// The number of letters in the group.
    pub letters: u64,
    /// The ids of the first letters in the group.
    pub first: Vec<EntryId>,
    /// The error that the store returned for the first letter of the group.
    pub error: Option<String>,
}

impl Serialize for RetainedLetters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.groups())
    }
}

impl RetainedLetters {
    /// Returns the groups, sorted by reason.
    pub fn groups(&self) -> impl Iterator<Item = &RetainedGroup> {
        self.0.values()
    }

    /// Returns the total number of dead letters that are not changed.
    pub fn count(&self) -> u64 {
        self.groups().map(|group| group.letters).sum()
    }

    pub(super) fn add(&mut self, why: LetterBlocker, letter: EntryId, error: Option<String>) {
        let new = || RetainedGroup { why, letters: 0, first: Vec::new(), error };
        let group = self.0.entry(why).or_insert_with(new);
        group.letters += 1;
        if group.first.len() < MOST_NAMED {
            group.first.push(letter);
        }
    }
}
