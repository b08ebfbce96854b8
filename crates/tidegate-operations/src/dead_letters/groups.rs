//! Letters counted by reason and voucher: one cause that kills many entries shows at a glance.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{
    VoucherId,
    wire::{FieldNames, is_event},
};
use tidegate_stream::{EntryId, Letter};

use super::letter::reason_of;

/// Groups that are told apart; letters of further ones are counted together. Whoever may write to the stream could
/// otherwise fill our memory with names.
const MOST_GROUPS: usize = 1_000;

/// Counts letters by reason and voucher.
#[derive(Debug, Default)]
pub(super) struct LetterCounter {
    by: BTreeMap<(String, Option<VoucherId>), Range>,
    events: u64,
    others: u64,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    letters: u64,
    events: u64,
    oldest: EntryId,
    newest: EntryId,
}

/// Letters, counted by reason and voucher.
#[derive(Clone, Debug, Serialize)]
pub struct LetterCounts {
    /// All letters.
    pub letters: u64,
    /// Of these, the ones that say what happened to an order.
    pub events: u64,
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
    /// Of these, the ones that say what happened to an order.
    pub events: u64,
    /// The first of them.
    pub oldest: EntryId,
    /// The last of them.
    pub newest: EntryId,
}

impl LetterCounter {
    /// Counts one more, which is younger than those before.
    pub(super) fn add(&mut self, fields: &FieldNames, letter: &Letter) {
        let entry = letter.entry();
        let key = (reason_of(letter).to_owned(), fields.peek(&entry).voucher);
        let events = u64::from(is_event(&entry));
        self.events += events;
        let is_full = self.by.len() >= MOST_GROUPS;
        match self.by.get_mut(&key) {
            Some(range) => {
                (range.letters, range.events) = (range.letters + 1, range.events + events);
                range.newest = letter.id;
            }
            None if is_full => self.others += 1,
            None => {
                let range = Range { letters: 1, events, oldest: letter.id, newest: letter.id };
                self.by.insert(key, range);
            }
        }
    }

    /// The sums.
    pub(super) fn counts(self) -> LetterCounts {
        let group = |((reason, voucher), Range { letters, events, oldest, newest })| LetterGroup {
            reason,
            voucher,
            letters,
            events,
            oldest,
            newest,
        };
        let mut groups: Vec<LetterGroup> = self.by.into_iter().map(group).collect();
        groups.sort_by_key(|group| Reverse(group.letters));
        let letters = groups.iter().map(|group| group.letters).sum::<u64>() + self.others;
        LetterCounts { letters, events: self.events, groups, others: self.others }
    }
}
