//! A reader of typed values that collects all mistakes in the layers, instead of stopping at the first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    ops::RangeInclusive,
    time::Duration,
};

use toml::{Table, Value};

use super::{
    ConfigProblem, InvalidConfig,
    layers::{Layers, Setting},
    list_entry::ListEntry,
};

/// A reader that converts settings to typed values. If a value is wrong, the reader records the mistake and returns a
/// harmless value.
pub struct SettingsReader<'a> {
    layers: &'a Layers,
    problems: Vec<ConfigProblem>,
    read: BTreeSet<&'static str>,
    wrong: BTreeSet<&'static str>,
}

impl<'a> SettingsReader<'a> {
    /// Creates a reader that has read no settings yet.
    pub fn new(layers: &'a Layers) -> Self {
        Self { layers, problems: Vec::new(), read: BTreeSet::new(), wrong: BTreeSet::new() }
    }

    /// Returns the mistakes that the reader has found.
    pub fn into_problems(self) -> Vec<ConfigProblem> {
        self.problems
    }

    /// The keys of the settings that were read.
    #[cfg(test)]
    pub fn keys_read(&self) -> &BTreeSet<&'static str> {
        &self.read
    }

    fn setting(&mut self, key: &'static str) -> &'a Setting {
        self.read.insert(key);
        let found = self.layers.settings().iter().find(|setting| setting.key == key);
        found.unwrap_or_else(|| panic!("{key} is missing in config/default.toml"))
    }

    /// Reads a text setting with at least one character, and without spaces and control characters.
    pub fn word(&mut self, key: &'static str) -> String {
        let word = self.text(key);
        if word.is_empty() {
            self.wrong(key, "must not be empty");
        } else if word.chars().any(|c| c.is_whitespace() || c.is_control()) {
            self.wrong(key, "must not hold spaces or control characters");
        }
        word
    }

    /// Reads a text setting, and accepts every text.
    pub fn text(&mut self, key: &'static str) -> String {
        self.setting(key).value.as_str().unwrap_or_default().to_owned()
    }

    /// Reads a setting that is a list of texts.
    pub fn words(&mut self, key: &'static str) -> Vec<String> {
        let Value::Array(values) = &self.setting(key).value else { return Vec::new() };
        let words: Vec<String> = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if words.len() < values.len() {
            self.wrong(key, "must be a list of texts in quotes");
        }
        words
    }

    /// Reads a setting that is a table from names to texts.
    pub fn table(&mut self, key: &'static str) -> BTreeMap<String, String> {
        let Value::Table(values) = &self.setting(key).value else { return BTreeMap::new() };
        let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
        let texts: BTreeMap<_, _> = values.iter().filter_map(text).collect();
        if texts.len() < values.len() {
            self.wrong(key, "must be a table of texts in quotes");
        }
        texts
    }

    /// Reads a setting that is a list of tables, such as `[[tokens]]`. `read` reads one entry, and returns None if the
    /// entry has mistakes, which it records in the entry. `of_text` converts an entry from a variable or a flag, where
    /// an entry is a text. Two entries must not have the same name.
    pub fn entries<T>(
        &mut self,
        key: &'static str,
        of_text: impl Fn(&str) -> Result<Table, &'static str>,
        mut read: impl FnMut(&mut ListEntry) -> Option<T>,
    ) -> Vec<T> {
        let Value::Array(values) = &self.setting(key).value else { return Vec::new() };
        let (mut all, mut names) = (Vec::new(), BTreeSet::new());
        for (index, value) in values.iter().enumerate() {
            let mut entry = ListEntry::new(index + 1, value, &of_text);
            all.extend(read(&mut entry));
            if entry.name_as_sent().is_some_and(|name| !names.insert(name.to_owned())) {
                entry.wrong::<()>("name", "is already the name of another entry");
            }
            entry.finish().into_iter().for_each(|what| self.wrong(key, what));
        }
        all
    }

    /// Returns a function that reads this setting again, as [`Layers::reread`] does.
    pub fn reread(&self, key: &'static str) -> Option<impl Fn() -> Result<Layers, InvalidConfig> + use<>> {
        self.layers.reread(key)
    }

    /// Reads a setting that is a whole number within a range.
    pub fn number<T: TryFrom<i64>>(&mut self, key: &'static str, range: RangeInclusive<i64>) -> T {
        let value = self.setting(key).value.as_integer().unwrap_or_default();
        if !range.contains(&value) {
            self.wrong(key, format!("must be within {} ..= {}", range.start(), range.end()));
        }
        let value = value.clamp(*range.start(), *range.end());
        T::try_from(value).unwrap_or_else(|_| panic!("the range of {key} does not fit its type"))
    }

    /// Reads a setting that is a number of milliseconds within a range.
    pub fn millis(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Duration {
        Duration::from_millis(self.number(key, range))
    }

    /// Reads a word that must be one of several permitted words, and returns the value that belongs to the word.
    pub fn choice<T: Copy>(&mut self, key: &'static str, choices: &[(&str, T)]) -> T {
        let word = self.text(key);
        let chosen = choices.iter().find(|(name, _)| *name == word);
        chosen.map_or_else(
            || {
                let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
                self.wrong(key, format!("must be one of {}", names.join(", ")));
                choices[0].1
            },
            |(_, choice)| *choice,
        )
    }

    /// Reads a template of a Redis key, which must contain its placeholder exactly once and no other placeholder.
    pub fn template(&mut self, key: &'static str, placeholder: &'static str) -> String {
        let template = self.word(key);
        if template.matches(placeholder).count() != 1 {
            self.wrong(key, format!("must hold {placeholder} exactly once"));
        } else if let Some(other) = other_placeholder(&template, placeholder) {
            self.wrong(key, format!("holds {other}; the only placeholder of this setting is {placeholder}"));
        }
        template
    }

    /// Records a mistake if two settings contradict each other, unless one of them is already known to be wrong.
    pub fn rule(&mut self, holds: bool, key: &'static str, other: &'static str, what: impl Display) {
        if !holds && !self.wrong.contains(key) && !self.wrong.contains(other) {
            let other = self.setting(other);
            let place = format!("{} = {} ({})", other.key, other.value, other.source);
            self.wrong(key, format!("{what}; {place}"));
        }
    }

    /// Records that the value of a setting is wrong. The message must contain no secret and no URL, because a broken
    /// URL may show its password.
    pub fn wrong(&mut self, key: &'static str, what: impl Display) {
        let setting = self.setting(key);
        let shown = match &setting.value {
            _ if setting.is_secret() => String::new(),
            Value::String(text) => format!(" = {text:?}"),
            value => format!(" = {value}"),
        };
        self.wrong.insert(key);
        self.problems
            .push(ConfigProblem { place: setting.source.to_string(), what: format!("{key}{shown} {what}") });
    }
}

fn other_placeholder<'a>(template: &'a str, placeholder: &str) -> Option<&'a str> {
    let mut rest = template;
    while let Some(start) = rest.find('<') {
        let Some(length) = rest[start..].find('>') else { break };
        let found = &rest[start..=start + length];
        if found != placeholder {
            return Some(found);
        }
        rest = &rest[start + length + 1..];
    }
    None
}
