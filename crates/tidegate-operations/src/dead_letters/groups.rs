//! Letters counted by reason and voucher: one cause that kills many entries shows at a glance.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{VoucherId, wire::FieldNames};
use tidegate_stream::{EntryId, Letter};

use super::letter::reason_of;

/// Groups that are told apart; letters of further ones are counted together. Whoever may write to the stream could
/// otherwise fill our memory with names.
const MOST_GROUPS: usize = 1_000;

/// Counts letters by reason and voucher.
#[derive(Debug, Default)]
pub(super) struct LetterCounter {
    by: BTreeMap<(String, Option<VoucherId>), Range>,
    others: u64,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    letters: u64,
    oldest: EntryId,
    newest: EntryId,
}

/// Letters, counted by reason and voucher.
#[derive(Clone, Debug, Serialize)]
pub struct LetterCounts {
    /// All letters.
    pub letters: u64,
    /// The largest groups first.
    pub groups: Vec<LetterGroup>,
    /// Letters of still more groups.
    pub others: u64,
}

/// Letters that share reason and voucher.
#[derive(Clone, Debug, Serialize)]
pub struct LetterGroup {
    /// Why they died, in a word.
    pub reason: String,
    /// None: it cannot be read.
    pub voucher: Option<VoucherId>,
    /// How many they are.
    pub letters: u64,
    /// The first of them.
    pub oldest: EntryId,
    /// The last of them.
    pub newest: EntryId,
}

impl LetterCounter {
    /// Counts one more, which is younger than those before.
    pub(super) fn add(&mut self, fields: &FieldNames, letter: &Letter) {
        let key = (reason_of(letter).to_owned(), fields.glimpse(&letter.entry()).voucher);
        let is_full = self.by.len() >= MOST_GROUPS;
        match self.by.get_mut(&key) {
            Some(range) => (range.letters, range.newest) = (range.letters + 1, letter.id),
            None if is_full => self.others += 1,
            None => _ = self.by.insert(key, Range { letters: 1, oldest: letter.id, newest: letter.id }),
        }
    }

    /// The sums.
    pub(super) fn counts(self) -> LetterCounts {
        let group = |((reason, voucher), Range { letters, oldest, newest })| LetterGroup {
            reason,
            voucher,
            letters,
            oldest,
            newest,
        };
        let mut groups: Vec<LetterGroup> = self.by.into_iter().map(group).collect();
        groups.sort_by_key(|group| Reverse(group.letters));
        let letters = groups.iter().map(|group| group.letters).sum::<u64>() + self.others;
        LetterCounts { letters, groups, others: self.others }
    }
}
