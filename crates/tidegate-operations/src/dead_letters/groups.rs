//! Dead letters counted by reason and voucher, so that a cause that affects many entries is easy to see.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{
    VoucherId,
    wire::{FieldNames, is_event},
};
use tidegate_stream::{EntryId, Letter};

use super::letter::reason_of;

/// The groups that are counted separately; letters of further groups are counted together. Otherwise a program that may
/// write to the stream could fill the process's memory with names.
const MOST_GROUPS: usize = 1_000;

/// Counts dead letters by reason and voucher.
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

/// The number of dead letters, grouped by reason and voucher.
#[derive(Clone, Debug, Serialize)]
pub struct LetterCounts {
    /// The total number of dead letters in all groups.
    pub letters: u64,
    /// The number of dead letters that hold an event of an order.
    pub events: u64,
    /// The groups of dead letters, the largest group first.
    pub groups: Vec<LetterGroup>,
    /// The number of dead letters in the groups that are not in the list `groups`.
    pub others: u64,
}

/// A group of dead letters that have the same reason and voucher.
#[derive(Clone, Debug, Serialize)]
pub struct LetterGroup {
    /// The reason why the letters of the group were buried, in one word.
    pub reason: String,
    /// The voucher of all letters in the group; None: the voucher cannot be read from the letters.
    pub voucher: Option<VoucherId>,
    /// The number of letters in the group.
    pub letters: u64,
    /// The number of the group's letters that hold an event of an order.
    pub events: u64,
    /// The id of the oldest letter of the group.
    pub oldest: EntryId,
    /// The id of the newest letter of the group.
    pub newest: EntryId,
}

impl LetterCounter {
    /// Counts one more letter, which must be younger than those before.
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

    /// Returns the counts of all letters that were added.
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
