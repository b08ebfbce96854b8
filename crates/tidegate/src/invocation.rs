//! The command line of this process. `main` sets it once, for code that logs the command or prints one to be typed.

use std::sync::OnceLock;

use clap::{ArgMatches, Args, Command, parser::ValueSource};
use nix::unistd::{Uid, User};

use crate::{
    command_line::{CommandLine, add_flag},
    config::ConfigArgs,
};

static CURRENT: OnceLock<Invocation> = OnceLock::new();

/// The command line of this process after parsing, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The program as it was typed: if it is in no folder of `PATH`, a shell would not find its bare name.
    program: String,
    /// The flags of the configuration, as they can be typed again.
    configuration: Vec<String>,
    /// The names of the flags that are left out, because they may hold a secret.
    hidden: Vec<String>,
    /// The words of the command, such as `voucher load`.
    pub command: String,
    /// The flags and values of the command itself.
    arguments: Vec<String>,
}

impl Invocation {
    /// Creates the invocation from `matches`, the result of parsing the command line with `command`.
    pub fn new(program: String, config: &ConfigArgs, command: &Command, matches: &ArgMatches) -> Self {
        let (configuration, hidden) = config.without_secrets();
        let (command, arguments) = command_and_arguments(command, matches);
        Self { program, configuration, hidden, command, arguments }
    }

    /// Stores this command line as the command line of the process. Only the first call has an effect.
    pub fn make_current(self) {
        let _first = CURRENT.set(self);
    }

    /// The command line of this process. If `main` has not stored one, as in a test, this is `tidegate` without
    /// arguments.
    pub fn current() -> &'static Self {
        CURRENT.get_or_init(|| Self {
            program: "tidegate".to_owned(),
            configuration: Vec::new(),
            hidden: Vec::new(),
            command: String::new(),
            arguments: Vec::new(),
        })
    }

    /// The arguments of the command, quoted for a shell.
    pub fn quoted_arguments(&self) -> String {
        let words = self.arguments.iter();
        let quoted = words.map(|word| shlex::try_quote(word).unwrap_or_else(|_| word.into()));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// The command line with which an operator can repeat this command.
    pub fn again(&self) -> CommandLine {
        self.arguments.iter().fold(CommandLine::new(&self.command), CommandLine::word)
    }

    /// The command line for an operator to paste: a command of this program, with the configuration flags of this
    /// process.
    pub fn line(&self, command: &CommandLine) -> String {
        command.pasted_after(&self.program, &self.configuration)
    }

    /// The command line for an operator to paste: adds the configuration flags to a command that begins with
    /// `tidegate`. Any other command stays unchanged.
    pub fn complete(&self, command: &str) -> String {
        let Some(rest) = command.strip_prefix("tidegate ") else { return command.to_owned() };
        format!("{} {rest}", self.line(&CommandLine::new("")))
    }

    /// The note which says that printed command lines lack some flags, because the values of these flags may be secret.
    pub fn note(&self) -> Option<String> {
        let hidden = self.hidden.join(" and ");
        (!hidden.is_empty()).then(|| {
            format!("Add the same {hidden}: the value is not shown, because it may hold a password.")
        })
    }
}

/// The account that runs the program, as USER@HOST. Under sudo, it is the account that called sudo.
pub fn account() -> String {
    let of_process = || User::from_uid(Uid::current()).ok().flatten().map(|user| user.name);
    let user = std::env::var("SUDO_USER").ok().or_else(of_process);
    let user = user.unwrap_or_else(|| Uid::current().to_string());
    format!("{user}@{}", gethostname::gethostname().to_string_lossy())
}

/// The words of the command and its arguments, without the flags of the configuration, because a URL may hold a
/// password.
fn command_and_arguments(mut command: &Command, mut matches: &ArgMatches) -> (String, Vec<String>) {
    let mut path = Vec::new();
    while let Some((name, inner)) = matches.subcommand() {
        path.push(name);
        command = command.find_subcommand(name).expect("what was parsed is a command");
        matches = inner;
    }
    let configuration = ConfigArgs::augment_args(Command::new("configuration"));
    let is_own = |id: &clap::Id| configuration.get_arguments().all(|arg| arg.get_id() != id);
    let (mut arguments, mut operands) = (Vec::new(), Vec::new());
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
                None if value.starts_with('-') => operands.push(value),
                None => arguments.push(value),
            }
        }
    }
    if !operands.is_empty() {
        arguments.push("--".to_owned());
        arguments.append(&mut operands);
    }
    (path.join(" "), arguments)
}
