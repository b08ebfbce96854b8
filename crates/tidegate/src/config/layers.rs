//! The layers of the configuration: every key with its effective value and its source.

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use tidegate_operations::redacted::RedactedUrl;

use super::{CONFIG_VARIABLE, ConfigProblem, removed, suggest::did_you_mean};

/// The commented defaults, which also define the keys and their types.
const DEFAULTS: &str = include_str!("../../../../config/default.toml");
const PREFIX: &str = "TIDEGATE_";
/// The prefixes of environment variables that only tests and their servers use.
const FOREIGN_PREFIXES: [&str; 3] = ["TIDEGATE_LAB_", "TIDEGATE_MATRIX_", "TIDEGATE_TEST_"];

/// The source of a setting's value: a default, a file, a variable or a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The compiled-in defaults of `config/default.toml`.
    Default,
    /// The configuration file at this path.
    File(String),
    /// The environment variable with this name.
    Variable(String),
    /// The command-line flag with this name.
    Flag(&'static str),
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One setting with its value and source.
#[derive(Clone)]
pub struct Setting {
    /// The key of the setting, as `section.key`. A list of tables, such as `[[tokens]]`, has no section.
    pub key: String,
    /// The effective value, which has the type of the default value.
    pub value: Value,
    /// The default, file, variable or flag from which the value comes.
    pub source: ValueSource,
}

impl Setting {
    /// The environment variable that sets this key.
    pub fn variable(&self) -> String {
        variable(&self.key)
    }

    /// Whether the value is a URL, which may hold a password.
    pub fn is_url(&self) -> bool {
        is_url(&self.key)
    }

    /// Whether the value is a secret, or may contain a secret.
    pub fn is_secret(&self) -> bool {
        is_secret(&self.key)
    }
}

/// The environment variable that sets this key.
fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "_"))
}

fn is_url(key: &str) -> bool {
    key.ends_with(".url")
}

fn is_secret(key: &str) -> bool {
    is_url(key) || ["mysql.shards", "tokens", "webhooks"].contains(&key)
}

/// Whether the value of a setting certainly holds no secret, so that it may be printed.
pub fn may_be_shown(key: &str, value: &str) -> bool {
    !is_secret(key) || (is_url(key) && RedactedUrl::new(value).hides_nothing())
}

/// All settings with their values from defaults, a file, variables and flags, and the mistakes in these sources.
pub struct Layers {
    settings: Vec<Setting>,
    problems: Vec<ConfigProblem>,
    file: Option<PathBuf>,
}

impl fmt::Debug for Layers {
    /// The debug output leaves out the values, because some are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layers").field("problems", &self.problems).finish_non_exhaustive()
    }
}

impl Layers {
    /// Creates the settings with the default values that are compiled into the program.
    pub fn defaults() -> Self {
        let table: Table = DEFAULTS.parse().expect("config/default.toml is TOML; a test parses it");
        let settings =
            flatten(table).map(|(key, value)| Setting { key, value, source: ValueSource::Default });
        let mut settings: Vec<Setting> = settings.collect();
        settings.sort_by_key(|setting| DEFAULTS.find(&format!("\n{} = ", setting.key)));
        Self { settings, problems: Vec::new(), file: None }
    }

    /// The settings, in the order of `config/default.toml`.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The configuration file, if there is one.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The mistakes that were found in the file, the variables and the flags.
    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
    }

    /// Replaces the values of settings by the values in a TOML file. Returns whether the file could be read and is TOML.
    pub fn add_file(&mut self, path: &Path) -> bool {
        let source = ValueSource::File(path.display().to_string());
        self.file = Some(path.to_owned());
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.report(&source, format!("cannot be read: {error}"));
                return false;
            }
        };
        match text.parse::<Table>() {
            Ok(table) => {
                self.add_table(table, &source);
                true
            }
            // The error itself is not shown: it quotes the line, which may hold a password.
            Err(error) => {
                let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
                self.report(&source, format!("line {line} is not TOML: {}", error.message()));
                false
            }
        }
    }

    fn add_table(&mut self, table: Table, source: &ValueSource) {
        for (section, keys) in table {
            if !self.sections().any(|known| known == section) && !removed::is_section(&section) {
                let hint = did_you_mean(&section, self.sections());
                self.report(source, format!("[{section}] is no section{hint}"));
            } else if self.settings.iter().any(|setting| setting.key == section) {
                // A list of tables has no section.
                self.set(&section, keys, source.clone());
            } else if let Value::Table(keys) = keys {
                for (key, value) in keys {
                    self.set(&format!("{section}.{key}"), value, source.clone());
                }
            } else {
                self.report(source, format!("{section} must be a section: [{section}]"));
            }
        }
    }

    fn sections(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().filter_map(|setting| setting.key.split('.').next())
    }

    /// Replaces the values of settings by the values of the `TIDEGATE_*` variables.
    pub fn add_variables(&mut self, variables: &[(OsString, OsString)]) {
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
            let source = ValueSource::Variable(name.to_owned());
            let known = self.settings.iter().find(|setting| setting.variable() == name);
            let Some(key) = known.map(|setting| setting.key.clone()) else {
                let gone = removed::keys().find(|key| variable(key) == name);
                if let Some(what) = gone.and_then(removed::of_key) {
                    self.report(&source, what);
                    continue;
                }
                let variables: Vec<String> = self.settings.iter().map(Setting::variable).collect();
                let hint = did_you_mean(name, variables.iter().map(String::as_str));
                self.report(&source, format!("is no setting{hint}"));
                continue;
            };
            // Compose files set such variables to nothing, which must not remove a list of tokens.
            let is_list = !key.contains('.');
            match value.to_str() {
                Some("") if is_list => {}
                Some(value) => self.add_text(&key, value, source),
                None => self.report(&source, format!("{key} is not UTF-8")),
            }
        }
    }

    /// Replaces the value of a setting by the value in `KEY=VALUE`, the argument of a flag.
    pub fn add_pair(&mut self, flag: &'static str, pair: &str) {
        match pair.split_once('=') {
            Some((key, value)) => self.add_flag(flag, key.trim(), value),
            // The text itself is not shown: it may be a URL with a password.
            None => self.report(&ValueSource::Flag(flag), "needs KEY=VALUE, such as worker.batch=200".into()),
        }
    }

    /// Replaces the value of a setting by the value of a flag.
    pub fn add_flag(&mut self, flag: &'static str, key: &str, value: &str) {
        self.add_text(key, value, ValueSource::Flag(flag));
    }

    /// Merges a text value. Values of variables and flags are texts; the type of the default decides how they are
    /// parsed.
    fn add_text(&mut self, key: &str, text: &str, source: ValueSource) {
        let value = match self.settings.iter().find(|setting| setting.key == key).map(|found| &found.value) {
            Some(Value::Integer(_)) => text.trim().parse().map_or_else(|_| text.into(), Value::Integer),
            Some(Value::Array(_)) => {
                // Two commas in a row are a typing error, and not a shorter list.
                let words = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
                Value::Array(words.map(Value::from).collect())
            }
            // A URL may hold commas, and no blanks.
            Some(Value::Table(_)) => {
                let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                Value::Table(pairs.map(|(key, value)| (key.to_owned(), Value::from(value))).collect())
            }
            _ => Value::String(text.to_owned()),
        };
        self.set(key, value, source);
    }

    fn set(&mut self, key: &str, value: Value, source: ValueSource) {
        let Some(setting) = self.settings.iter_mut().find(|setting| setting.key == key) else {
            if let Some(what) = removed::of_key(key) {
                return self.report(&source, what);
            }
            let hint = did_you_mean(key, self.settings.iter().map(|setting| setting.key.as_str()));
            return self.report(&source, format!("{key} is no setting{hint}"));
        };
        if !setting.value.same_type(&value) {
            let what = format!("{key} must be {}, but is {}", kind(setting), shown(setting, &value));
            return self.report(&source, what);
        }
        setting.value = value;
        setting.source = source;
    }

    fn report(&mut self, source: &ValueSource, what: String) {
        self.problems.push(ConfigProblem { place: source.to_string(), what });
    }
}

fn flatten(table: Table) -> impl Iterator<Item = (String, Value)> {
    table.into_iter().flat_map(|(section, keys)| match keys {
        Value::Table(keys) => {
            keys.into_iter().map(|(key, value)| (format!("{section}.{key}"), value)).collect::<Vec<_>>()
        }
        value => vec![(section, value)],
    })
}

/// Whether Kubernetes sets this variable in every pod for a Service whose name begins with `tidegate`:
/// TIDEGATE_SERVICE_HOST, TIDEGATE_REDIS_PORT_6379_TCP_ADDR and others. No setting of Tidegate has such a name.
fn is_of_a_service(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let has = |one: &str, other: &str| words.windows(2).any(|pair| pair == [one, other]);
    has("SERVICE", "HOST") || has("SERVICE", "PORT") || words[1..].contains(&"PORT")
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
        && name != CONFIG_VARIABLE
        && !is_of_a_service(name)
        && !FOREIGN_PREFIXES.iter().any(|foreign| name.starts_with(foreign))
}

fn kind(setting: &Setting) -> &'static str {
    match &setting.value {
        Value::Integer(_) => "a whole number",
        Value::String(_) => "a text in quotes",
        Value::Array(_) if !setting.key.contains('.') => "a list of tables, each under its name in [[ ]]",
        Value::Array(_) => "a list of texts in quotes",
        Value::Table(_) => "a table of texts in quotes",
        value => value.type_str(),
    }
}

fn shown(setting: &Setting, value: &Value) -> String {
    if setting.is_secret() { format!("a value of type {}", value.type_str()) } else { value.to_string() }
}
