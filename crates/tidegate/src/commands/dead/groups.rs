//! Letters counted by reason and voucher: a wave of poison is seen at a glance.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use tidegate_orders::{VoucherId, wire::FieldNames};
use tidegate_stream::{EntryId, Letter};

use super::letter::{or_dash, plain, reason_of, shown_time};
use crate::output::table;

/// Groups that are told apart; letters of further ones are counted together. Whoever may write to the stream could
/// otherwise fill our memory with names.
const MOST_GROUPS: usize = 1_000;
/// Groups in a table.
const SHOWN_GROUPS: usize = 20;

/// Letters by reason and voucher.
#[derive(Debug, Default)]
pub struct Groups {
    by: BTreeMap<(String, Option<VoucherId>), Range>,
    others: u64,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    letters: u64,
    oldest: EntryId,
    newest: EntryId,
}

/// What was counted.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// All letters.
    pub letters: u64,
    /// The largest groups first.
    groups: Vec<Group>,
    /// Letters of still more groups.
    others: u64,
}

/// Letters that share reason and voucher.
#[derive(Debug, Serialize)]
struct Group {
    reason: String,
    /// None: it cannot be read.
    voucher: Option<VoucherId>,
    letters: u64,
    oldest: String,
    newest: String,
    #[serde(skip)]
    range: Range,
}

impl Groups {
    /// Counts one more, which is younger than those before.
    pub fn add(&mut self, fields: &FieldNames, letter: &Letter) {
        let key = (reason_of(letter).to_owned(), fields.glimpse(&letter.entry()).voucher);
        let is_full = self.by.len() >= MOST_GROUPS;
        match self.by.get_mut(&key) {
            Some(range) => (range.letters, range.newest) = (range.letters + 1, letter.id),
            None if is_full => self.others += 1,
            None => _ = self.by.insert(key, Range { letters: 1, oldest: letter.id, newest: letter.id }),
        }
    }

    /// The sums.
    pub fn counted(self) -> Counted {
        let group = |((reason, voucher), range): ((String, Option<VoucherId>), Range)| Group {
            reason,
            voucher,
            letters: range.letters,
            oldest: range.oldest.to_string(),
            newest: range.newest.to_string(),
            range,
        };
        let mut groups: Vec<Group> = self.by.into_iter().map(group).collect();
        groups.sort_by_key(|group| Reverse(group.letters));
        let letters = groups.iter().map(|group| group.letters).sum::<u64>() + self.others;
        Counted { letters, groups, others: self.others }
    }
}

impl Counted {
    /// A table; empty without letters.
    pub fn text(&self) -> String {
        if self.letters == 0 {
            return String::new();
        }
        let mut table = table(&["reason", "voucher", "letters", "oldest", "newest"]);
        for Group { reason, voucher, letters, range, .. } in self.groups.iter().take(SHOWN_GROUPS) {
            table.add_row([
                plain(reason),
                or_dash(voucher.as_ref()),
                letters.to_string(),
                shown_time(range.oldest),
                shown_time(range.newest),
            ]);
        }
        let unshown: u64 = self.groups.iter().skip(SHOWN_GROUPS).map(|group| group.letters).sum();
        let rest = match unshown + self.others {
            0 => String::new(),
            letters => format!("\nand {letters} of other reasons and vouchers"),
        };
        format!("{table}{rest}")
    }
}
