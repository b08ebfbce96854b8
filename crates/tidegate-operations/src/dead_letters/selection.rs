//! Which letters an operation is about, and reading them page by page: there may be a million.

use std::collections::BTreeSet;

use anyhow::Context;
use tidegate_orders::{DeadLetters, wire::FieldNames};
use tidegate_stream::{EntryId, Letter, PageSize, StreamError};

use super::letter::reason_of;
use crate::selection::EntryFilter;

/// Letters of a page at most: a step of a change, after which it can be stopped.
const MOST_LETTERS: u16 = 1_000;
/// Letters that are looked for by their ids, at once.
const NAMED_LETTERS: usize = 100;

/// Which letters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterSelection {
    /// These, whatever else is said; None: those that the rest describes.
    pub ids: Option<BTreeSet<EntryId>>,
    /// EntryFilter letters with this reason.
    pub reason: Option<String>,
    /// EntryFilter letters of this voucher or user.
    pub only: EntryFilter,
    /// No letter before this one; [`EntryId::MIN`]: from the oldest on.
    pub first: EntryId,
    /// No letter after this one.
    pub last: EntryId,
    /// The oldest so many of them.
    pub limit: Option<u64>,
}

impl LetterSelection {
    /// All letters.
    pub const ALL: Self = Self {
        ids: None,
        reason: None,
        only: EntryFilter { voucher: None, user: None },
        first: EntryId::MIN,
        last: EntryId::MAX,
        limit: None,
    };

    /// Those of them that are there now. What is buried from now on is not meant: what goes back and dies again would
    /// never end.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn up_to_now(self, dead: &DeadLetters) -> anyhow::Result<Self> {
        let end = dead.last_id().await.context("Failed to read the dead letters")?;
        Ok(Self { last: self.last.min(end), ..self })
    }

    /// Begins to read them.
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

    /// How many letters have to be looked at, at most; `all` are there.
    pub fn length(&self, all: u64) -> u64 {
        self.ids.as_ref().map_or(all, |ids| ids.len() as u64)
    }

    /// Those of them that come after this letter, but for those that are done. There must be any.
    #[must_use]
    pub fn after(&self, after: Option<EntryId>, done: &BTreeSet<EntryId>) -> Self {
        let is_left = |id: &&EntryId| after.is_none_or(|after| **id > after) && !done.contains(id);
        Self {
            ids: self.ids.as_ref().map(|ids| ids.iter().filter(is_left).copied().collect()),
            first: after.map_or(self.first, EntryId::next),
            ..self.clone()
        }
    }

    /// Whether it is one of them, the limit aside.
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

/// A piece of the dead letters.
#[derive(Debug)]
pub struct LetterPage {
    /// Those that were selected, oldest first.
    pub letters: Vec<Letter>,
    /// Ids that were asked for and are not there.
    pub missing: Vec<EntryId>,
    /// How many letters were looked at.
    pub looked_at: u64,
}

/// Reads the selected letters, oldest first.
#[derive(Debug)]
pub struct LetterPages {
    dead: DeadLetters,
    selection: LetterSelection,
    /// Ids that are still to be read, the next one last.
    ids: Vec<EntryId>,
    /// The last that was looked at.
    seen: Option<EntryId>,
    after: EntryId,
    left: u64,
    size: PageSize,
}

impl LetterPages {
    /// What comes after the pages that were read. There must be anything.
    #[must_use]
    pub fn rest(&self) -> LetterSelection {
        let limit = self.selection.limit.map(|_| self.left);
        LetterSelection { limit, ..self.selection.after(self.seen, &BTreeSet::new()) }
    }

    /// The next piece; None at the end.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
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
