//! The program accepts every command line that it prints for the reader to type.

use clap::{CommandFactory, Parser};

use super::Cli;
use crate::{command_line::CommandLine, invocation::Invocation};

impl CommandLine {
    /// The words of the command, and the arguments that the program parses from these words.
    pub fn parsed(&self) -> (Vec<&str>, Cli) {
        let words = self.argv();
        let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        (words, cli)
    }
}

fn invocation(words: &[&str]) -> Invocation {
    let (cli, command) = (Cli::try_parse_from(words).unwrap(), Cli::command());
    let matches = command.clone().try_get_matches_from(words).unwrap();
    Invocation::new(words[0].to_owned(), &cli.config, &command, &matches)
}

#[test]
fn a_line_keeps_the_configuration_and_shows_no_secret() {
    let invocation = invocation(&[
        "./tidegate",
        "--config",
        "my shop.toml",
        "prune",
        "stream",
        "--set",
        "stream.name=a b",
        "--redis-url=redis://:hunter2@host",
        "--mysql-url",
        "mysql://host/db",
        "--set=tokens=shop:order:hunter2",
        "--set",
        " mysql.url =mysql://root:hunter2@host/db",
        "--set",
        "redis.url=redis://host:7",
    ]);
    let command = CommandLine::new("export").flag("--from", Some("-2h")).flag("--to", None::<u8>);
    let command = command.switch("--json", true).switch("--yes", false);
    let line = invocation.line(&command.append_to(Some("a b.jsonl".into())));
    assert_eq!(
        line,
        "./tidegate --config 'my shop.toml' --mysql-url mysql://host/db --set 'stream.name=a b' \
         --set redis.url=redis://host:7 export --from=-2h --json >> 'a b.jsonl'"
    );
    let note = invocation.note().unwrap();
    assert!(note.contains("the same --redis-url and --set tokens and --set mysql.url:"), "{note}");
    assert!(!format!("{invocation:?}").contains("hunter2"));
}

#[test]
fn where_nothing_was_set_nothing_is_added() {
    let invocation = invocation(&["tidegate", "prune", "stream"]);
    assert_eq!(invocation.line(&CommandLine::new("prune stream")), "tidegate prune stream");
    assert_eq!(invocation.note(), None);
    assert_eq!(invocation.complete("tidegate order show 7"), "tidegate order show 7");
    assert_eq!(invocation.complete("redis-cli XADD s '*'"), "redis-cli XADD s '*'");
}

#[test]
fn a_line_can_be_typed_again_and_holds_no_password() {
    let invocation = invocation(&[
        "tidegate",
        "--redis-url=redis://:hunter2@host",
        "voucher",
        "load",
        "--begin",
        "2026-11-20 10:00",
        "--voucher=7",
        "--stock",
        "10",
        "--set",
        "mysql.url=mysql://root:hunter2@host/db",
        "--json",
    ]);
    assert_eq!(invocation.command, "voucher load");
    assert_eq!(invocation.quoted_arguments(), "--voucher 7 --stock 10 --begin '2026-11-20 10:00' --json");
}

/// Commands that continue when they are typed again.
#[test]
fn a_command_that_is_typed_again_is_the_same_command() {
    for line in [
        "tidegate prune stream --older-than 12h --yes --as 'a b'",
        "tidegate prune refusals events --older-than 90d",
        "tidegate pause --reason='--x' --json",
        "tidegate resume --workers",
        "tidegate consumers drain --wait 10m --force -- 'a b' -x",
        "tidegate consumers drain 'a b' c --wait 5m --remove",
        "tidegate pending bury --dead --crashes 2 --set-aside --limit 7 --why=-1",
        "tidegate pending bury 1-1 2-2 --why \"it's\"",
    ] {
        let first = invocation(&shlex::split(line).unwrap().iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(invocation(&first.again().argv()), first, "{line}");
    }
}

#[test]
fn units_below_zero_are_refused_with_the_range_and_not_taken_for_a_flag() {
    for line in [
        "voucher load --voucher 7 --stock -5",
        "voucher add --voucher 7 --units -5",
        "voucher take --voucher 7 --units=-5",
    ] {
        let error = Cli::try_parse_from(format!("tidegate {line}").split(' ')).unwrap_err().to_string();
        assert!(error.contains("-5 is not in 1..="), "{line}: {error}");
    }
}
