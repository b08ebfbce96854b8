//! The flags that select dead letters.

use anyhow::Context;
use clap::Args;
use tidegate_operations::dead_letters::LetterSelection;
use tidegate_orders::RedisStore;
use tidegate_stream::{EntryId, server_time_ms};

use super::OnlyArgs;
use crate::{
    command_line::CommandLine,
    entry_arg::{self, EntryArg},
    exit::WrongUsage,
    times::{self, Point},
};

/// The flags that filter dead letters.
#[derive(Args, Clone, Debug)]
pub struct FilterArgs {
    /// Select only dead letters with this reason, such as unknown_voucher
    #[arg(long, value_name = "WORD")]
    reason: Option<String>,
    #[command(flatten)]
    only: OnlyArgs,
    /// Select dead letters since this time: RFC 3339, local time, -2h (two hours ago), Unix milliseconds or a letter id
    #[arg(long, value_name = "TIME", value_parser = times::parse_point, allow_hyphen_values = true)]
    from: Option<Point>,
    /// Select dead letters up to this time, in the same formats as --from
    #[arg(long, value_name = "TIME", value_parser = times::parse_point, allow_hyphen_values = true)]
    to: Option<Point>,
}

/// The arguments that select dead letters: by ids, by a filter, or all dead letters.
#[derive(Args, Clone, Debug)]
pub struct LetterSelectionArgs {
    /// The ids of the dead letters to select
    #[arg(value_name = "LETTER", conflicts_with_all = ["all", "reason", "voucher", "user", "from", "to", "limit"])]
    pub letters: Vec<EntryArg>,
    /// Select all dead letters
    #[arg(long, conflicts_with_all = ["reason", "voucher", "user", "from", "to"])]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// The most dead letters to select, the oldest first
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

impl LetterSelectionArgs {
    /// Checks that the user has selected dead letters.
    ///
    /// # Errors
    /// When the user has not selected any: a command that changes letters must not change all letters by default.
    pub fn is_said(&self) -> Result<(), WrongUsage> {
        let FilterArgs { reason, only, from, to } = &self.filter;
        let filters =
            [reason.is_some(), only.voucher.is_some(), only.user.is_some(), from.is_some(), to.is_some()];
        if !self.letters.is_empty() || self.all || filters.contains(&true) {
            return Ok(());
        }
        let message =
            "no letters are selected: give their ids, a filter such as --reason or --voucher, or --all";
        Err(WrongUsage(message.to_owned()))
    }

    /// The selection of dead letters that the arguments describe. Relative times are relative to the clock of this
    /// Redis.
    ///
    /// # Errors
    /// When Redis does not answer, or the last letter comes before the first.
    pub async fn letters(&self, redis: &RedisStore) -> anyhow::Result<LetterSelection> {
        let ids = (!self.letters.is_empty()).then(|| entry_arg::ids(&self.letters).into_iter().collect());
        Ok(LetterSelection { ids, limit: self.limit, ..self.filter.letters(redis).await? })
    }
}

impl FilterArgs {
    /// The selection of dead letters that the filter describes, like [`LetterSelectionArgs::letters`].
    pub async fn letters(&self, redis: &RedisStore) -> anyhow::Result<LetterSelection> {
        let now_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
        let (first, last) = times::range(self.from.as_ref(), self.to.as_ref(), now_ms)?;
        Ok(LetterSelection {
            ids: None,
            reason: self.reason.clone(),
            only: self.only.filter(),
            first: first.unwrap_or(EntryId::MIN),
            last: last.unwrap_or(EntryId::MAX),
            limit: None,
        })
    }
}

/// Adds to `command` the arguments that select dead letters like this selection.
pub fn typed(letters: &LetterSelection, command: CommandLine) -> CommandLine {
    if let Some(ids) = &letters.ids {
        return ids.iter().fold(command, CommandLine::word);
    }
    let from = Some(letters.first).filter(|first| *first != EntryId::MIN);
    let to = Some(letters.last).filter(|last| *last != EntryId::MAX);
    let command = super::typed(letters.only, command.flag("--reason", letters.reason.as_ref()));
    command.flag("--from", from).flag("--to", to).flag("--limit", letters.limit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidegate_operations::selection::EntryFilter;

    use super::*;
    use crate::cli::{Command, DeadCommand};

    fn id(ms: u64) -> EntryId {
        EntryId { ms: 1_763_632_800_000 + ms, seq: 0 }
    }

    #[test]
    fn the_command_for_the_rest_says_which_letters_and_not_more() {
        let only = EntryFilter { voucher: Some(7.try_into().unwrap()), user: None };
        let (reason, limit) = (Some("it's bad".to_owned()), Some(4));
        let by_filter = LetterSelection { reason, only, last: id(9), limit, ..LetterSelection::ALL };
        let by_ids = LetterSelection { ids: Some((1..=9).map(id).collect()), ..by_filter.clone() };
        let done = BTreeSet::from([id(7)]);
        for name in ["dead requeue", "dead cancel", "dead drop", "dead export"] {
            let typed = |letters: &LetterSelection, after| {
                let command = typed(&letters.after(after, &done), CommandLine::new(name));
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
