//! What would become of a letter, and what became of it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tidegate_orders::{
    UserId, VoucherId,
    gate::{GateError, UserAfter},
};
use tidegate_stream::{EntryId, Outage};

/// Letters that are named one by one, at most.
pub(super) const MOST_NAMED: usize = 20;

/// What would become of a letter, by what the stores hold now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetterDecision {
    /// It would be done.
    Done,
    /// It would be done, and its order released by it.
    Releases(PlannedRelease),
    /// It would be done, and would not help.
    DiesAgain(RequeueFailure),
    /// It would stay.
    Stays(Obstacle),
    /// It would go back behind its order, whose letter is asked for as well.
    FollowsItsOrder,
}

/// What Redis would get back of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedRelease {
    pub(super) voucher: VoucherId,
    pub(super) units: i64,
    pub(super) user: UserId,
    pub(super) user_after: UserAfter,
}

/// Why a letter that is put back would die again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequeueFailure {
    /// MySQL has no row of its voucher.
    UnknownVoucher(VoucherId),
    /// Its voucher has limits, and it does not say what it used of them.
    PastLimits(VoucherId),
    /// Its order id is another order's.
    IdTaken,
    /// It holds neither an order nor an event.
    NoOrder,
    /// Workers do not process an entry of its size.
    TooLarge,
}

/// What became of a letter.
#[derive(Debug)]
pub(super) enum LetterOutcome {
    /// It was done.
    Done(EndedLetter),
    /// There was no such letter any more: somebody else was faster.
    Gone,
    /// It is gone, and its order, which somebody else cancelled at the same time, is released now.
    Released,
    /// It stays, with what the store said, where a store refused it.
    Stays(Obstacle, Option<String>),
}

impl LetterOutcome {
    /// What an error of Redis about one letter means: that letter stays, unless Redis was not reached.
    pub(super) fn of_error(error: GateError) -> Result<Self, Outage> {
        match error {
            GateError::Unreachable(error) => Err(Outage::new("Redis", error)),
            error => Ok(Self::Stays(Obstacle::Failed, Some(error.to_string()))),
        }
    }
}

/// A letter that ended.
#[derive(Clone, Debug, Serialize)]
pub struct EndedLetter {
    /// The letter.
    pub letter: EntryId,
    /// What exactly was done, in a word.
    pub outcome: &'static str,
    /// Its order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    /// The entry that it is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryId>,
}

/// Why a letter stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// It was put back so often before that somebody has to insist.
    NeedsForce,
    /// More fields than a script can add.
    TooManyFields,
    /// Its order was released.
    Released,
    /// Its order is cancelled in MySQL.
    Cancelled,
    /// Its order is written.
    OrderExists,
    /// Its order id is another order's.
    IdTaken,
    /// It holds no order.
    NoOrder,
    /// Somebody else wrote it there.
    Foreign,
    /// It holds an order.
    HoldsOrder,
    /// It is an event, and its order is a dead letter that does not go back.
    OrderIsDead,
    /// It says that money was paid or refunded.
    HoldsPayment,
    /// By the journal, its order took units.
    HoldsUnits,
    /// MySQL refuses a row.
    Rejected,
    /// Others hold rows of MySQL that it needs.
    Contended,
    /// Redis refuses.
    Failed,
}

/// Letters that stay, by reason. As JSON it is the list of [`StayingGroup`]s.
#[derive(Clone, Debug, Default)]
pub struct StayingLetters(BTreeMap<Obstacle, StayingGroup>);

/// Letters that stay, for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct StayingGroup {
    /// The reason.
    pub why: Obstacle,
    /// How many they are.
    pub letters: u64,
    /// The first of them.
    pub first: Vec<EntryId>,
    /// What the store said of the first.
    pub error: Option<String>,
}

impl Serialize for StayingLetters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.groups())
    }
}

impl StayingLetters {
    /// By reason.
    pub fn groups(&self) -> impl Iterator<Item = &StayingGroup> {
        self.0.values()
    }

    /// How many they are.
    pub fn count(&self) -> u64 {
        self.groups().map(|group| group.letters).sum()
    }

    pub(super) fn add(&mut self, why: Obstacle, letter: EntryId, error: Option<String>) {
        let new = || StayingGroup { why, letters: 0, first: Vec::new(), error };
        let group = self.0.entry(why).or_insert_with(new);
        group.letters += 1;
        if group.first.len() < MOST_NAMED {
            group.first.push(letter);
        }
    }
}
