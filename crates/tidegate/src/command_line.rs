//! Commands that are shown to be typed: pasted into the same shell, they work as they are.

use std::{fmt, path::PathBuf};

/// A command of this program, without the flags of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine {
    words: Vec<String>,
    append_to: Option<PathBuf>,
}

impl CommandLine {
    /// Its name, such as `dead requeue`.
    pub fn new(name: &str) -> Self {
        Self { words: name.split_whitespace().map(str::to_owned).collect(), append_to: None }
    }

    /// With one more word.
    pub fn word(mut self, word: impl ToString) -> Self {
        self.words.push(word.to_string());
        self
    }

    /// With a last word that is no flag, even if it looks like one.
    pub fn operand(self, word: &str) -> Self {
        self.switch("--", word.starts_with('-')).word(word)
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

    /// The line to paste: after `program` with the flags of its configuration, quoted where a shell needs it.
    pub fn pasted_after(&self, program: &str, configuration: &[String]) -> String {
        let words = configuration.iter().chain(&self.words).map(String::as_str);
        let line = [program].into_iter().chain(words).map(quoted).collect::<Vec<_>>().join(" ");
        match &self.append_to {
            Some(path) => format!("{line} >> {}", quoted(&path.to_string_lossy())),
            None => line,
        }
    }

    /// Its words, as the program gets them.
    #[cfg(test)]
    pub fn argv(&self) -> Vec<&str> {
        ["tidegate"].into_iter().chain(self.words.iter().map(String::as_str)).collect()
    }
}

/// As it stands within a sentence: without the configuration of this process.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pasted_after("tidegate", &[]))
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

/// Quoted only where a shell would change it: what is read before it is pasted is to be plain.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), std::borrow::Cow::into_owned)
}
