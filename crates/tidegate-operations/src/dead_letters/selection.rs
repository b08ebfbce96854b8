//! The selection of dead letters that an operation is about, read page by page, because there may be a million.

use std::collections::BTreeSet;

use anyhow::Context;
use tidegate_orders::{DeadLetters, wire::FieldNames};
use tidegate_stream::{EntryId, Letter, PageSize, StreamError};

use super::letter::reason_of;
use crate::selection::EntryFilter;

/// The letters of a page at most. A page is one step of a change, and the change can be stopped after each step.
const MOST_LETTERS: u16 = 1_000;
/// The letters that are read by their ids at once.
const NAMED_LETTERS: usize = 100;

/// The conditions by which an operation selects dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSelection {
    /// The ids of the selected letters; if set, all other conditions are ignored. None: the other conditions select the
    /// letters.
    pub ids: Option<BTreeSet<EntryId>>,
    /// The reason of the selected letters; None: any reason.
    pub reason: Option<String>,
    /// The voucher or the user of the selected letters; an empty filter accepts all letters.
    pub only: EntryFilter,
    /// The first id of the selected range; [`EntryId::MIN`]: the range begins with the oldest letter.
    pub first: EntryId,
    /// The last id of the selected range.
    pub last: EntryId,
    /// The highest number of letters to select, oldest first; None: no limit.
    pub limit: Option<u64>,
}

impl LetterSelection {
    /// The selection of all dead letters.
    pub const ALL: Self = Self {
        ids: None,
        reason: None,
        only: EntryFilter { voucher: None, user: None },
        first: EntryId::MIN,
        last: EntryId::MAX,
        limit: None,
    };

    /// Limits the selection to the dead letters that exist now. Without this limit, a requeue could select its own
    /// letters again after workers bury them again, and never end.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn up_to_now(self, dead: &DeadLetters) -> anyhow::Result<Self> {
        let end = dead.last_id().await.context("Failed to read the dead letters")?;
        Ok(Self { last: self.last.min(end), ..self })
    }

    /// Starts reading the selected letters page by page.
    pub fn pages(&self, dead: &DeadLetters) -> LetterPages {
        LetterPages {
            dead: dead.clone(),
            ids: self.ids.iter().flatten().rev().copied().collect(),
            seen: None,
            after: self.first.previous(),
            left: self.limit.unwrap_or(u64::MAX),
            size: PageSize::new(MOST_LETTERS),
            selection: self.clone(),
        }
    }

    /// Returns the highest number of dead letters that this selection reads, if the stream holds `all` letters.
    pub fn length(&self, all: u64) -> u64 {
        self.ids.as_ref().map_or(all, |ids| ids.len() as u64)
    }

    /// Returns the rest of the selection after the given letter, without the letters that are done. At least one letter
    /// must be left.
    #[must_use]
    pub fn after(&self, after: Option<EntryId>, done: &BTreeSet<EntryId>) -> Self {
        let is_left = |id: &&EntryId| after.is_none_or(|after| **id > after) && !done.contains(id);
        Self {
            ids: self.ids.as_ref().map(|ids| ids.iter().filter(is_left).copied().collect()),
            first: after.map_or(self.first, EntryId::next),
            ..self.clone()
        }
    }

    /// Returns whether the letter is selected; the limit is ignored.
    pub(super) fn includes(&self, fields: &FieldNames, letter: &Letter) -> bool {
        match &self.ids {
            Some(ids) => ids.contains(&letter.id),
            None => (self.first..=self.last).contains(&letter.id) && self.holds(fields, letter),
        }
    }

    fn holds(&self, fields: &FieldNames, letter: &Letter) -> bool {
        self.reason.as_deref().is_none_or(|reason| reason == reason_of(letter))
            && fields.are_named(&letter.entry(), self.only.voucher, self.only.user)
    }
}

/// A page of selected dead letters, with the number of letters that were read.
#[derive(Debug)]
pub struct LetterPage {
    /// The selected letters of the page, oldest first.
    pub letters: Vec<Letter>,
    /// The requested ids for which no dead letter exists.
    pub missing: Vec<EntryId>,
    /// The number of letters that were read to fill this page.
    pub looked_at: u64,
}

/// The reader of the selected dead letters, page by page, oldest first.
#[derive(Debug)]
pub struct LetterPages {
    dead: DeadLetters,
    selection: LetterSelection,
    /// The ids that are still to be read, the next one last.
    ids: Vec<EntryId>,
    /// The last letter that was read.
    seen: Option<EntryId>,
    after: EntryId,
    left: u64,
    size: PageSize,
}

impl LetterPages {
    /// Returns the selection of the letters that were not read yet. At least one letter must be left.
    #[must_use]
    pub fn rest(&self) -> LetterSelection {
        let limit = self.selection.limit.map(|_| self.left);
        LetterSelection { limit, ..self.selection.after(self.seen, &BTreeSet::new()) }
    }

    /// Reads the next page of letters; None: all letters were read.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn next(&mut self) -> Result<Option<LetterPage>, StreamError> {
        if self.left == 0 {
            return Ok(None);
        }
        let page =
            if self.selection.ids.is_some() { self.next_ids().await? } else { self.next_page().await? };
        Ok(page.map(|mut page| {
            page.letters.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= page.letters.len() as u64;
            page
        }))
    }

    async fn next_ids(&mut self) -> Result<Option<LetterPage>, StreamError> {
        let rest = self.ids.len().saturating_sub(NAMED_LETTERS);
        let ids = self.ids.split_off(rest);
        self.seen = ids.first().copied().or(self.seen);
        let mut page = LetterPage { letters: Vec::new(), missing: Vec::new(), looked_at: ids.len() as u64 };
        for id in ids.iter().rev() {
            match self.dead.find(*id).await? {
                Some(letter) => page.letters.push(letter),
                None => page.missing.push(*id),
            }
        }
        Ok((page.looked_at > 0).then_some(page))
    }

    async fn next_page(&mut self) -> Result<Option<LetterPage>, StreamError> {
        if self.after >= self.selection.last {
            return Ok(None);
        }
        let count = self.size.count(u64::MAX);
        let mut letters = self.dead.page((self.after, self.selection.last), count).await?;
        self.size.learn(letters.iter().map(|letter| &letter.fields));
        let Some(last) = letters.last() else { return Ok(None) };
        (self.after, self.seen) = (last.id, Some(last.id));
        let looked_at = letters.len() as u64;
        letters.retain(|letter| self.selection.holds(self.dead.fields(), letter));
        Ok(Some(LetterPage { letters, missing: Vec::new(), looked_at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64) -> EntryId {
        EntryId { ms: 1_763_632_800_000 + ms, seq: 0 }
    }

    #[test]
    fn the_rest_is_what_comes_after_a_letter_but_for_what_is_done() {
        let by_filter = LetterSelection { last: id(9), limit: Some(4), ..LetterSelection::ALL };
        let done = BTreeSet::from([id(7)]);
        assert_eq!(by_filter.after(None, &done), by_filter);
        let rest = LetterSelection { first: id(5).next(), ..by_filter.clone() };
        assert_eq!(by_filter.after(Some(id(5)), &done), rest);
        let by_ids = LetterSelection { ids: Some((1..=9).map(id).collect()), ..by_filter };
        let rest = by_ids.after(Some(id(5)), &done);
        assert_eq!(rest.ids, Some(BTreeSet::from([id(6), id(8), id(9)])));
    }
}
