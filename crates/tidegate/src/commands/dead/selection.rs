//! Which letters a command is about, and reading them page by page: there may be a million.

use std::collections::BTreeSet;

use anyhow::Context;
use clap::Args;
use fred::clients::Pool;
use tidegate_orders::{DeadLetters, wire::FieldNames};
use tidegate_stream::{EntryId, Letter, PageSize, StreamError, server_time_ms};

use super::letter::reason_of;
use crate::{
    command_line::CommandLine,
    exit::WrongUsage,
    moment::{self, Point},
    selection::OnlyArgs,
};

/// Letters of a page at most: a step of a change, after which it can be stopped.
const MOST_LETTERS: u16 = 1_000;
/// Letters that are looked for by their ids, at once.
const NAMED_LETTERS: usize = 100;

/// Flags that leave letters out.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Only letters with this reason, such as unknown_voucher
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
    #[command(flatten)]
    only: OnlyArgs,
    /// Only letters of this time or later: RFC 3339, local time, -2h (so long ago), Unix milliseconds or a letter
    #[arg(long, value_name = "TIME", value_parser = moment::parse_point, allow_hyphen_values = true)]
    from: Option<Point>,
    /// Only letters of this time or earlier, in the same ways
    #[arg(long, value_name = "TIME", value_parser = moment::parse_point, allow_hyphen_values = true)]
    to: Option<Point>,
}

/// Letters by their ids, by filter, or all.
#[derive(Args, Clone, Debug)]
pub struct SelectionArgs {
    /// Letters, by their ids
    #[arg(value_name = "LETTER", conflicts_with_all = ["all", "reason", "voucher", "user", "from", "to", "limit"])]
    letters: Vec<EntryId>,
    /// All letters
    #[arg(long, conflicts_with_all = ["reason", "voucher", "user", "from", "to"])]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// The oldest so many of them
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl SelectionArgs {
    /// Whether it was said which letters are meant.
    ///
    /// # Errors
    /// When it was not: what changes letters does not begin with all of them by itself.
    pub fn is_said(&self) -> Result<(), WrongUsage> {
        let FilterArgs { reason, only, from, to } = &self.filter;
        let filters =
            [reason.is_some(), only.voucher.is_some(), only.user.is_some(), from.is_some(), to.is_some()];
        if !self.letters.is_empty() || self.all || filters.contains(&true) {
            return Ok(());
        }
        let message = "say which letters: their ids, a filter such as --reason or --voucher, or --all";
        Err(WrongUsage(message.to_owned()))
    }

    /// The letters that are meant, of those that are there now.
    ///
    /// # Errors
    /// When Redis does not answer, or the key of the dead letters holds no stream.
    pub async fn resolve(&self, redis: &Pool, dead: &DeadLetters) -> anyhow::Result<Selection> {
        let mut selection = self.filter.resolve(redis, dead).await?;
        selection.ids = (!self.letters.is_empty()).then(|| self.letters.iter().copied().collect());
        selection.limit = self.limit;
        Ok(selection)
    }
}

impl FilterArgs {
    /// As [`SelectionArgs::resolve`].
    pub async fn resolve(&self, redis: &Pool, dead: &DeadLetters) -> anyhow::Result<Selection> {
        let now_ms = server_time_ms(redis).await.context("Failed to read the clock of Redis")?;
        let first = self.from.map_or(EntryId::MIN, |from| from.first(now_ms));
        // What is buried from now on is not meant: what goes back and dies again would never end.
        let end = dead.last_id().await.context("Failed to read the dead letters")?;
        let last = self.to.map_or(end, |to| to.last(now_ms).min(end));
        Ok(Selection { ids: None, reason: self.reason.clone(), only: self.only, first, last, limit: None })
    }
}

/// The letters that are meant.
#[derive(Clone, Debug)]
pub struct Selection {
    /// These, or those that the rest describes.
    ids: Option<BTreeSet<EntryId>>,
    reason: Option<String>,
    only: OnlyArgs,
    first: EntryId,
    last: EntryId,
    limit: Option<u64>,
}

impl Selection {
    /// Begins to read them.
    pub fn walk<'a>(&self, dead: &'a DeadLetters) -> Walk<'a> {
        let mut ids: Vec<EntryId> = self.ids.iter().flatten().rev().copied().collect();
        ids.shrink_to_fit();
        Walk {
            dead,
            selection: self.clone(),
            ids,
            seen: None,
            after: self.first.previous(),
            left: self.limit.unwrap_or(u64::MAX),
            size: PageSize::new(MOST_LETTERS),
        }
    }

    /// How many letters have to be looked at, at most; `all` are there.
    pub fn length(&self, all: u64) -> u64 {
        self.ids.as_ref().map_or(all, |ids| ids.len() as u64)
    }

    /// The same, but none after this letter, which was the last of them; and so many that nothing has to be counted.
    pub fn up_to(self, last: Option<EntryId>) -> Self {
        Self { last: last.unwrap_or(self.last), limit: None, ..self }
    }

    /// `command` for those of them that come after this letter, but for those that are done. There must be any.
    pub fn typed_after(
        &self,
        after: Option<EntryId>,
        done: &BTreeSet<EntryId>,
        command: CommandLine,
    ) -> CommandLine {
        if let Some(ids) = &self.ids {
            let rest = ids.iter().filter(|id| after.is_none_or(|after| **id > after) && !done.contains(id));
            return rest.fold(command, CommandLine::word);
        }
        let from = after.map(EntryId::next).or(Some(self.first)).filter(|from| *from != EntryId::MIN);
        let command = self.only.typed(command.flag("--reason", self.reason.as_ref()));
        command.flag("--from", from).flag("--to", Some(self.last)).flag("--limit", self.limit)
    }

    fn holds(&self, fields: &FieldNames, letter: &Letter) -> bool {
        self.reason.as_deref().is_none_or(|reason| reason == reason_of(letter))
            && fields.are_named(&letter.entry(), self.only.voucher, self.only.user)
    }
}

/// A piece of the dead letters.
#[derive(Debug)]
pub struct Page {
    /// Those that were selected, oldest first.
    pub letters: Vec<Letter>,
    /// Ids that were asked for and are not there.
    pub missing: Vec<EntryId>,
    /// How many letters were looked at.
    pub looked_at: u64,
}

/// Reads the selected letters, oldest first.
#[derive(Debug)]
pub struct Walk<'a> {
    dead: &'a DeadLetters,
    selection: Selection,
    /// Ids that are still to be read, the next one last.
    ids: Vec<EntryId>,
    /// The last that was looked at.
    seen: Option<EntryId>,
    after: EntryId,
    left: u64,
    size: PageSize,
}

impl Walk<'_> {
    /// `command` for what comes after the pages that were read. There must be anything.
    pub fn typed_rest(&self, command: CommandLine) -> CommandLine {
        let limit = self.selection.limit.map(|_| self.left);
        Selection { limit, ..self.selection.clone() }.typed_after(self.seen, &BTreeSet::new(), command)
    }

    /// The next piece; None at the end.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn next(&mut self) -> Result<Option<Page>, StreamError> {
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

    async fn next_ids(&mut self) -> Result<Option<Page>, StreamError> {
        let rest = self.ids.len().saturating_sub(NAMED_LETTERS);
        let ids = self.ids.split_off(rest);
        self.seen = ids.first().copied().or(self.seen);
        let mut page = Page { letters: Vec::new(), missing: Vec::new(), looked_at: ids.len() as u64 };
        for id in ids.iter().rev() {
            match self.dead.find(*id).await? {
                Some(letter) => page.letters.push(letter),
                None => page.missing.push(*id),
            }
        }
        Ok((page.looked_at > 0).then_some(page))
    }

    async fn next_page(&mut self) -> Result<Option<Page>, StreamError> {
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
        Ok(Some(Page { letters, missing: Vec::new(), looked_at }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, DeadCommand};

    fn id(ms: u64) -> EntryId {
        EntryId { ms: 1_763_632_800_000 + ms, seq: 0 }
    }

    #[test]
    fn the_command_for_the_rest_says_which_letters_and_not_more() {
        let only = OnlyArgs { voucher: Some(7.try_into().unwrap()), user: None };
        let (reason, limit) = (Some("it's bad".to_owned()), Some(4));
        let by_filter = Selection { ids: None, reason, only, first: EntryId::MIN, last: id(9), limit };
        let by_ids = Selection { ids: Some((1..=9).map(id).collect()), ..by_filter.clone() };
        let done = BTreeSet::from([id(7)]);
        for name in ["dead requeue", "dead cancel", "dead drop", "dead export"] {
            let typed = |selection: &Selection, after| {
                let command = selection.typed_after(after, &done, CommandLine::new(name));
                let (words, cli) = command.parsed();
                let Command::Dead(command) = cli.command else { panic!("{words:?}") };
                let is_said = match command {
                    DeadCommand::Requeue(args) => args.selection.is_said(),
                    DeadCommand::Cancel(args) => args.selection.is_said(),
                    DeadCommand::Drop(args) => args.selection.is_said(),
                    _ => Ok(()),
                };
                assert!(is_said.is_ok(), "{words:?}");
                words[3..].join(" ")
            };
            let filter = "--reason it's bad --voucher 7";
            let rest = format!("--to {} --limit 4", id(9));
            assert_eq!(typed(&by_filter, None), format!("{filter} {rest}"));
            let from = id(5).next();
            assert_eq!(typed(&by_filter, Some(id(5))), format!("{filter} --from {from} {rest}"));
            assert_eq!(typed(&by_ids, Some(id(5))), format!("{} {} {}", id(6), id(8), id(9)));
        }
    }
}
