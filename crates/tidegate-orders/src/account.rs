//! What is told of a batch of orders to whoever follows single ones, as traces do. The tally counts them all.

use std::fmt::Debug;

use tidegate_stream::{Entry, Stage};

use crate::ledger::Verdict;

/// Wants an account of batches. A handler that has none of these keeps no accounts.
pub trait Accountant: Debug + Send + Sync + 'static {
    /// Whether it wants one of this batch.
    fn wants(&self, batch: &[Entry]) -> bool;

    /// The account of a batch that it wanted, also when a store failed; before the batch is settled. It must be quick.
    fn take(&self, account: Account);
}

/// How a batch was handled. A store that fails ends it early: the last stage here is where it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The users of the batch were locked.
    pub locking: Option<Stage>,
    /// The orders of those users were written and committed.
    pub writing: Option<Stage>,
    /// What the ledger said, one an entry. None where it was not asked: the entry is no order, or another worker has
    /// locked its user.
    pub verdicts: Vec<Option<Verdict>>,
}

impl Account {
    pub(crate) fn of(entries: usize) -> Self {
        Self { locking: None, writing: None, verdicts: vec![None; entries] }
    }

    pub(crate) fn wrote(&mut self, places: &[usize], verdicts: &[Verdict]) {
        for (at, verdict) in places.iter().zip(verdicts) {
            self.verdicts[*at] = Some(verdict.clone());
        }
    }
}
