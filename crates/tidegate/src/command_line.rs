//! Command lines that are printed for operators to type. They work unchanged if they are pasted into the same shell.

use std::{fmt, path::PathBuf};

/// A command of this program to show to an operator, without the flags of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
    append_to: Option<PathBuf>,
}

impl CommandLine {
    /// Creates a command by its name, such as `dead requeue`.
    pub fn new(name: &str) -> Self {
        Self { words: name.split_whitespace().map(str::to_owned).collect(), append_to: None }
    }

    /// Returns the command with one more word at its end.
    pub fn word(mut self, word: impl ToString) -> Self {
        self.words.push(word.to_string());
        self
    }

    /// Returns the command with a last argument that is no flag, such as an id. A value that begins with `-` is not
    /// read as a flag either.
    pub fn operand(self, word: &str) -> Self {
        self.switch("--", word.starts_with('-')).word(word)
    }

    /// Returns the command with a flag and its value, or unchanged if there is no value.
    pub fn flag(mut self, flag: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            add_flag(&mut self.words, flag, value.to_string());
        }
        self
    }

    /// Returns the command with a flag that has no value, or unchanged if the flag is not set.
    pub fn switch(self, flag: &str, is_set: bool) -> Self {
        if is_set { self.word(flag) } else { self }
    }

    /// Returns the command line with a redirection that appends the output to this file.
    pub fn append_to(mut self, path: Option<PathBuf>) -> Self {
        self.append_to = path;
        self
    }

    /// The command line for an operator to paste: `program`, the flags of the configuration, and the command, quoted
    /// for a shell.
    pub fn pasted_after(&self, program: &str, configuration: &[String]) -> String {
        let words = configuration.iter().chain(&self.words).map(String::as_str);
        let line = [program].into_iter().chain(words).map(quoted).collect::<Vec<_>>().join(" ");
        match &self.append_to {
            Some(path) => format!("{line} >> {}", quoted(&path.to_string_lossy())),
            None => line,
        }
    }

    /// The words of the command, as the program receives them.
    #[cfg(test)]
    pub fn argv(&self) -> Vec<&str> {
        ["tidegate"].into_iter().chain(self.words.iter().map(String::as_str)).collect()
    }
}

/// Shows the command inside a sentence, without the configuration of this process.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pasted_after("tidegate", &[]))
    }
}

/// Adds a flag with its value. If the value looks like a flag, the two are joined by `=`, because clap would read the
/// value as a flag.
pub fn add_flag(words: &mut Vec<String>, flag: &str, value: String) {
    if value.starts_with('-') {
        words.push(format!("{flag}={value}"));
    } else {
        words.extend([flag.to_owned(), value]);
    }
}

/// Quotes a word only where a shell would change it, because the reader should see plain text before pasting it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}
