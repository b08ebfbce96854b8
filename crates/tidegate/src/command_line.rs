//! Commands that are shown to be typed: pasted into the same shell, they work as they are.

use std::{env, path::PathBuf};

use clap::Parser;

use crate::cli::Cli;

/// A command of this program, without the flags of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
    append_to: Option<PathBuf>,
}

impl CommandLine {
    /// Its name, such as `dead requeue`.
    pub fn new(name: &str) -> Self {
        Self { words: name.split(' ').map(str::to_owned).collect(), append_to: None }
    }

    /// With one more word.
    pub fn word(mut self, word: impl ToString) -> Self {
        self.words.push(word.to_string());
        self
    }

    /// With a flag and its value, where there is one.
    pub fn flag(mut self, flag: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            add_flag(&mut self.words, flag, value.to_string());
        }
        self
    }

    /// With a flag that has no value, where it is set.
    pub fn switch(self, flag: &str, is_set: bool) -> Self {
        if is_set { self.word(flag) } else { self }
    }

    /// What it prints goes to the end of this file.
    pub fn append_to(mut self, path: Option<PathBuf>) -> Self {
        self.append_to = path;
        self
    }

    /// Its words, as the program gets them, and what it takes them for.
    #[cfg(test)]
    pub fn parsed(&self) -> (Vec<&str>, Cli) {
        let words = ["tidegate"].into_iter().chain(self.words.iter().map(String::as_str));
        let words: Vec<&str> = words.collect();
        let cli = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        (words, cli)
    }
}

/// Adds a flag with its value. One that looks like a flag itself would be taken for one.
pub fn add_flag(words: &mut Vec<String>, flag: &str, value: String) {
    if value.starts_with('-') {
        words.push(format!("{flag}={value}"));
    } else {
        words.extend([flag.to_owned(), value]);
    }
}

/// The shell that has started this program: under which name, and with which configuration.
#[derive(Clone, Debug)]
pub struct Shell {
    /// As it was typed: where the program is in no folder of `PATH`, its bare name would not be found.
    program: String,
    configuration: Vec<String>,
    hidden: Vec<String>,
}

impl Shell {
    /// As this process was started.
    pub fn here() -> Self {
        let program = env::args().next().unwrap_or_else(|| "tidegate".to_owned());
        Self::of(program, &Cli::parse())
    }

    fn of(program: String, cli: &Cli) -> Self {
        let (configuration, hidden) = cli.config.without_secrets();
        Self { program, configuration, hidden }
    }

    /// The line to paste.
    pub fn line(&self, command: &CommandLine) -> String {
        let words = [self.program.as_str()].into_iter();
        let words = words.chain(self.configuration.iter().chain(&command.words).map(String::as_str));
        let line = words.map(quoted).collect::<Vec<_>>().join(" ");
        match &command.append_to {
            Some(path) => format!("{line} >> {}", quoted(&path.to_string_lossy())),
            None => line,
        }
    }

    /// The line to paste for a command that is ready but for its surroundings; what is no `tidegate ...` stays as it is.
    pub fn complete(&self, command: &str) -> String {
        let Some(rest) = command.strip_prefix("tidegate ") else { return command.to_owned() };
        format!("{} {rest}", self.line(&CommandLine { words: Vec::new(), append_to: None }))
    }

    /// What is missing in these lines.
    pub fn note(&self) -> Option<String> {
        let hidden = self.hidden.join(" and ");
        (!hidden.is_empty())
            .then(|| format!("Add the same {hidden}: not shown here, because it may hold a password."))
    }
}

/// Quoted only where a shell would change it: what is read before it is pasted is to be plain.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(words: &[&str]) -> Shell {
        Shell::of(words[0].to_owned(), &Cli::try_parse_from(words).unwrap())
    }

    #[test]
    fn a_line_keeps_the_configuration_and_shows_no_secret() {
        let shell = shell(&[
            "./tidegate",
            "--config",
            "my shop.toml",
            "trim",
            "--set",
            "stream.name=a b",
            "--redis-url=redis://:hunter2@host",
            "--mysql-url",
            "mysql://host/db",
            "--set=admin.token=hunter2",
            "--set",
            " mysql.url =mysql://root:hunter2@host/db",
            "--set",
            "redis.url=redis://host:7",
        ]);
        let command = CommandLine::new("export").flag("--from", Some("-2h")).flag("--to", None::<u8>);
        let command = command.switch("--json", true).switch("--yes", false);
        let line = shell.line(&command.append_to(Some("a b.jsonl".into())));
        assert_eq!(
            line,
            "./tidegate --config 'my shop.toml' --mysql-url mysql://host/db --set 'stream.name=a b' \
             --set redis.url=redis://host:7 export --from=-2h --json >> 'a b.jsonl'"
        );
        let note = shell.note().unwrap();
        assert!(note.contains("the same --redis-url and --set admin.token and --set mysql.url:"), "{note}");
        assert!(!format!("{shell:?}").contains("hunter2"));
    }

    #[test]
    fn where_nothing_was_set_nothing_is_added() {
        let shell = shell(&["tidegate", "trim"]);
        assert_eq!(shell.line(&CommandLine::new("trim")), "tidegate trim");
        assert_eq!(shell.note(), None);
        assert_eq!(shell.complete("tidegate order show 7"), "tidegate order show 7");
        assert_eq!(shell.complete("redis-cli XADD s '*'"), "redis-cli XADD s '*'");
    }
}
