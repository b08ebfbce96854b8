//! The layers of the configuration: every key with its effective value and its source.

use std::{
    ffi::OsString,
    fmt, fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

use tidegate_operations::redacted::RedactedUrl;

use super::{
    CONFIG_VARIABLE, ConfigProblem, InvalidConfig, removed,
    suggest::{did_you_mean, for_setting},
    value_source::{self, FILE_SUFFIX, ValueSource},
};

/// The commented defaults, which also define the keys and their types.
const DEFAULTS: &str = include_str!("../../../../config/default.toml");
const PREFIX: &str = "TIDEGATE_";
/// The prefixes of environment variables that only tests and their servers use.
const FOREIGN_PREFIXES: [&str; 3] = ["TIDEGATE_LAB_", "TIDEGATE_MATRIX_", "TIDEGATE_TEST_"];

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
pub fn variable(key: &str) -> String {
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
        let known = self.keys();
        for (section, keys) in table {
            let sections = known.iter().filter_map(|key| key.split('.').next());
            if known.contains(&section) {
                // A list of tables has no section, and neither has the file of a list.
                self.set(&section, keys, source.clone());
            } else if !removed::is_section(&section) && !sections.clone().any(|known| known == section) {
                let hint = did_you_mean(&section, sections);
                self.report(source, format!("[{section}] is no section{hint}"));
            } else if let Value::Table(keys) = keys {
                for (key, value) in keys {
                    self.set(&format!("{section}.{key}"), value, source.clone());
                }
            } else {
                self.report(source, format!("{section} must be a section: [{section}]"));
            }
        }
    }

    /// The keys of all settings, and the keys that name files with the values of settings.
    pub fn keys(&self) -> Vec<String> {
        let files = self.settings.iter().filter(|setting| setting.is_secret());
        let files = files.map(|setting| format!("{}{FILE_SUFFIX}", setting.key));
        self.settings.iter().map(|setting| setting.key.clone()).chain(files).collect()
    }

    /// Replaces the values of settings by the values of the `TIDEGATE_*` variables.
    pub fn add_variables(&mut self, variables: &[(OsString, OsString)]) {
        let keys = self.keys();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| is_ours(name)) else { continue };
            let source = ValueSource::Variable(name.to_owned());
            let Some(key) = keys.iter().find(|key| variable(key) == name) else {
                let gone = removed::keys().find(|key| variable(key) == name);
                if let Some(what) = gone.and_then(removed::of_key) {
                    self.report(&source, what);
                    continue;
                }
                let variables: Vec<String> = keys.iter().map(|key| variable(key)).collect();
                self.report(&source, format!("is no setting{}", for_setting(name, &variables)));
                continue;
            };
            // Compose files set such variables to nothing, which must not remove a list of tokens. Programs in
            // containers also take an empty variable with the path of a secret as unset.
            let may_be_empty = !key.contains('.') || self.setting_of_file(key).is_some();
            match value.to_str() {
                Some("") if may_be_empty => {}
                Some(value) => self.add_text(key, value, source),
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
        if let Some(of) = self.setting_of_file(key) {
            return match value_source::path_of(&value) {
                Ok(path) => {
                    self.replace(of, None, ValueSource::SecretFile { named_by: Box::new(source), path });
                }
                Err(why) => self.report(&source, format!("{key} {why}")),
            };
        }
        let Some(setting) = self.settings.iter().find(|setting| setting.key == key) else {
            let unknown = || format!("{key} is no setting{}", for_setting(key, &self.keys()));
            return self.report(&source, removed::of_key(key).unwrap_or_else(unknown));
        };
        if !setting.value.same_type(&value) {
            let what = format!("{key} must be {}, but is {}", kind(setting), shown(setting, &value));
            return self.report(&source, what);
        }
        self.replace(key, Some(value), source);
    }

    /// Replaces the source of a setting and its value. If the value is in a file, [`Layers::read_secret_files`] reads it.
    fn replace(&mut self, key: &str, value: Option<Value>, source: ValueSource) {
        let Some(setting) = self.settings.iter_mut().find(|setting| setting.key == key) else { return };
        if setting.source.contradicts(&source) {
            let what = format!("{key} and {key}{FILE_SUFFIX} are both set: remove one of them");
            return self.report(source.given_by(), what);
        }
        setting.source = source;
        if let Some(value) = value {
            setting.value = value;
        }
    }

    /// The setting whose value is in the file that this key names. None: the key does not name a file.
    fn setting_of_file<'a>(&self, key: &'a str) -> Option<&'a str> {
        let is_secret =
            |key: &&str| is_secret(key) && self.settings.iter().any(|setting| setting.key == *key);
        key.strip_suffix(FILE_SUFFIX).filter(is_secret)
    }

    /// Reads the values that are in files of their own. If a later layer replaces a value, its file is not read, and
    /// need not exist.
    pub fn read_secret_files(&mut self) {
        for index in 0..self.settings.len() {
            let Setting { key, source, .. } = self.settings[index].clone();
            let ValueSource::SecretFile { named_by, path } = &source else { continue };
            match value_source::read_value(path) {
                Ok(text) => self.add_text(&key, &text, source),
                Err(why) => {
                    self.report(named_by, format!("{key}{FILE_SUFFIX} = {path:?} {why}"));
                    // A value of an earlier layer is not in effect, so its mistakes are not reported.
                    self.settings[index] = Self::defaults().settings.swap_remove(index);
                }
            }
        }
    }

    /// Returns a function that reads a setting again from its files, with no other layers. None: a variable or a flag
    /// has the value itself.
    pub fn reread(&self, key: &'static str) -> Option<impl Fn() -> Result<Self, InvalidConfig> + use<>> {
        let source = self.settings.iter().find(|setting| setting.key == key)?.source.clone();
        let file = match (&source, source.given_by()) {
            (_, ValueSource::Default | ValueSource::File(_)) => Some(self.file.clone()?),
            (ValueSource::SecretFile { .. }, _) => None,
            _ => return None,
        };
        Some(move || {
            let mut layers = Self::defaults();
            let is_read = match &file {
                Some(file) => layers.add_file(file),
                None => {
                    layers.replace(key, None, source.clone());
                    true
                }
            };
            layers.read_secret_files();
            let is_of_key = |problem: &ConfigProblem| problem.what.starts_with(key);
            match is_read && !layers.problems.iter().any(is_of_key) {
                true => Ok(layers),
                false => Err(InvalidConfig(layers.problems)),
            }
        })
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
