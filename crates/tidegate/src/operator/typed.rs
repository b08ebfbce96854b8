//! Who typed what.

use clap::{ArgMatches, Args, Command, CommandFactory, parser::ValueSource};
use nix::unistd::{Uid, User};

use crate::{cli::Cli, config::ConfigArgs};

/// A command as it was typed, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// USER@HOST, or the name that was given.
    pub who: String,
    /// Its words, such as `voucher load`.
    pub command: String,
    /// The flags and values of the command itself. Those of the configuration are left out: a URL holds a password.
    pub arguments: String,
}

impl Typed {
    /// What this process was started with, by `who`.
    pub fn here(who: String) -> Self {
        let cli = Cli::command();
        let (command, arguments) = words(&cli, &cli.clone().get_matches());
        Self { who, command, arguments }
    }
}

/// The account at this host; behind sudo, the one who called it.
pub fn who() -> String {
    let account = || User::from_uid(Uid::current()).ok().flatten().map(|user| user.name);
    let user = std::env::var("SUDO_USER").ok().or_else(account);
    let user = user.unwrap_or_else(|| Uid::current().to_string());
    format!("{user}@{}", gethostname::gethostname().to_string_lossy())
}

fn words(mut command: &Command, mut matches: &ArgMatches) -> (String, String) {
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
            arguments.extend(flag.clone());
            arguments.push(value.to_string_lossy().into_owned());
        }
    }
    let quoted = arguments.iter().map(|word| shlex::try_quote(word).unwrap_or_else(|_| word.into()));
    (path.join(" "), quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &[&str]) -> (String, String) {
        let cli = Cli::command();
        words(&cli, &cli.clone().try_get_matches_from(line).unwrap())
    }

    #[test]
    fn a_line_can_be_typed_again_and_holds_no_password() {
        let (command, arguments) = typed(&[
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
        assert_eq!(command, "voucher load");
        assert_eq!(arguments, "--voucher 7 --stock 10 --begin '2026-11-20 10:00' --json");
    }
}
