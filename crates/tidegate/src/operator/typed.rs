//! Who typed what.

use clap::{ArgMatches, Args, Command, CommandFactory, parser::ValueSource};
use nix::unistd::{Uid, User};

use crate::{
    cli::Cli,
    command_line::{CommandLine, add_flag},
    config::ConfigArgs,
};

/// A command as it was typed, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// USER@HOST, or the name that was given.
    pub who: String,
    /// Its words, such as `voucher load`.
    pub command: String,
    /// The flags and values of the command itself. Those of the configuration are left out: a URL holds a password.
    pub arguments: Vec<String>,
}

impl Typed {
    /// What this process was started with, by `who`.
    pub fn here(who: String) -> Self {
        let cli = Cli::command();
        let (command, arguments) = words(&cli, &cli.clone().get_matches());
        Self { who, command, arguments }
    }

    /// Its arguments as a shell takes them.
    pub fn quoted(&self) -> String {
        let words = self.arguments.iter();
        let quoted = words.map(|word| shlex::try_quote(word).unwrap_or_else(|_| word.into()));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// The same once more.
    pub fn again(&self) -> CommandLine {
        self.arguments.iter().fold(CommandLine::new(&self.command), CommandLine::word)
    }
}

/// The account at this host; behind sudo, the one who called it.
pub fn who() -> String {
    let account = || User::from_uid(Uid::current()).ok().flatten().map(|user| user.name);
    let user = std::env::var("SUDO_USER").ok().or_else(account);
    let user = user.unwrap_or_else(|| Uid::current().to_string());
    format!("{user}@{}", gethostname::gethostname().to_string_lossy())
}

fn words(mut command: &Command, mut matches: &ArgMatches) -> (String, Vec<String>) {
    let mut path = Vec::new();
    while let Some((name, inner)) = matches.subcommand() {
        path.push(name);
        command = command.find_subcommand(name).expect("what was parsed is a command");
        matches = inner;
    }
    let configuration = ConfigArgs::augment_args(Command::new("configuration"));
    let is_own = |id: &clap::Id| configuration.get_arguments().all(|arg| arg.get_id() != id);
    let mut arguments = Vec::new();
    for arg in command.get_arguments().filter(|arg| is_own(arg.get_id())) {
        let id = arg.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let flag = arg.get_long().map(|long| format!("--{long}"));
        if !arg.get_action().takes_values() {
            arguments.extend(flag);
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            let value = value.to_string_lossy().into_owned();
            match &flag {
                Some(flag) => add_flag(&mut arguments, flag, value),
                None => arguments.push(value),
            }
        }
    }
    (path.join(" "), arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &[&str]) -> Typed {
        let cli = Cli::command();
        let (command, arguments) = words(&cli, &cli.clone().try_get_matches_from(line).unwrap());
        Typed { who: String::new(), command, arguments }
    }

    #[test]
    fn a_line_can_be_typed_again_and_holds_no_password() {
        let typed = typed(&[
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
        assert_eq!(typed.command, "voucher load");
        assert_eq!(typed.quoted(), "--voucher 7 --stock 10 --begin '2026-11-20 10:00' --json");
    }

    /// Commands that go on by being typed again.
    #[test]
    fn a_command_that_is_typed_again_is_the_same_command() {
        for line in [
            "tidegate trim --older-than 12h --yes --as 'a b'",
            "tidegate pause --reason='--x' --json",
            "tidegate resume --workers",
            "tidegate pending claim --consumer=-x --consumer 'a b' --wait 10m --force",
            "tidegate consumers remove 'a b' c --wait 5m",
            "tidegate pending bury --dead --deaths 2 --set-aside --limit 7 --why=-1",
            "tidegate pending bury 1-1 2-2 --why \"it's\"",
        ] {
            let first = typed(&shlex::split(line).unwrap().iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(typed(&first.again().parsed().0), first, "{line}");
        }
    }
}
