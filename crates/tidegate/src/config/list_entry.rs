//! The entries of a list of tables, such as `[[tokens]]`, and the reading of their members.

use std::fmt::Display;

use toml::{Table, Value};

use super::suggest::did_you_mean;

/// One table of a list such as `[[tokens]]`. Each member is read once; [`ListEntry::finish`] finds the members that
/// were not read.
#[derive(Clone, Debug)]
pub struct ListEntry {
    number: usize,
    name: Option<String>,
    members: Table,
    known: Vec<&'static str>,
    problems: Vec<String>,
}

impl ListEntry {
    /// Creates an entry from its number in the list (counted from 1) and its value. A text, from a variable or a flag,
    /// is converted to a table by `of_text`, which returns None for a text without meaning.
    pub fn new(number: usize, value: &Value, of_text: impl Fn(&str) -> Result<Table, &'static str>) -> Self {
        let (members, problems) = match value {
            Value::Table(members) => (members.clone(), Vec::new()),
            Value::String(text) => match of_text(text) {
                Ok(members) => (members, Vec::new()),
                Err(why) => (Table::new(), vec![why.to_owned()]),
            },
            _ => (Table::new(), vec!["must be a table".to_owned()]),
        };
        let name = members.get("name").and_then(Value::as_str).map(str::to_owned);
        Self { number, name, members, known: Vec::new(), problems }
    }

    /// The name of the entry as the configuration has it, even if it is not a valid name.
    pub fn name_as_sent(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads a member that is a text. None: the entry lacks the member, or the member is no text.
    pub fn text(&mut self, member: &'static str) -> Option<String> {
        match self.take(member)? {
            Value::String(text) => Some(text),
            _ => self.wrong(member, "must be a text in quotes"),
        }
    }

    /// Reads a member that is true or false. None: the entry lacks the member, or the member is neither.
    pub fn flag(&mut self, member: &'static str) -> Option<bool> {
        match self.take(member)? {
            Value::Boolean(flag) => Some(flag),
            _ => self.wrong(member, "must be true or false"),
        }
    }

    /// Reads a member that is a list of texts. None: the entry lacks the member, or the member is no such list.
    pub fn words(&mut self, member: &'static str) -> Option<Vec<String>> {
        let value = self.take(member)?;
        let words = value.as_array().and_then(|words| {
            words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        words.or_else(|| self.wrong(member, "must be a list of texts in quotes"))
    }

    /// Reads the member `name`, which every entry needs: 1 to 32 lower-case letters, digits or the characters _ and -.
    pub fn name(&mut self) -> Option<String> {
        let Some(name) = self.text("name") else { return self.missing("name") };
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
        match (1..=32).contains(&name.len()) && name.bytes().all(is_letter) {
            true => Some(name),
            false => {
                self.wrong("name", "must have 1 to 32 lower-case letters, digits or the characters _ and -")
            }
        }
    }

    /// Records that a member is wrong. The message must contain no secret.
    pub fn wrong<T>(&mut self, member: &'static str, what: impl Display) -> Option<T> {
        self.problems.push(format!("`{member}` {what}"));
        None
    }

    /// Records that the entry lacks a member that it needs, unless the entry has other problems, which may be the cause.
    pub fn missing<T>(&mut self, member: &'static str) -> Option<T> {
        if self.problems.is_empty() {
            self.problems.push(format!("needs `{member}`"));
        }
        None
    }

    /// Returns the mistakes of the entry, each with the place of the entry in its list. A member that was not read is a
    /// mistake.
    pub fn finish(mut self) -> Vec<String> {
        for member in self.members.keys() {
            let hint = did_you_mean(member, self.known.iter().copied());
            self.problems.push(format!("has the unknown member {member:?}{hint}"));
        }
        let name = self.name.map_or_else(String::new, |name| format!(" ({name:?})"));
        self.problems.into_iter().map(|what| format!("entry {}{name} {what}", self.number)).collect()
    }

    fn take(&mut self, member: &'static str) -> Option<Value> {
        self.known.push(member);
        self.members.remove(member)
    }
}
