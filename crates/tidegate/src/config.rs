//! The configuration: defaults, then a file, then `TIDEGATE_*` variables, then flags. It is checked as a whole, so that
//! every mistake is reported at once, each with its source.

mod layers;
mod list_entry;
mod reader;
mod removed;
mod settings;
mod show;
mod suggest;
#[cfg(test)]
mod tests;
mod urls;
mod value_source;

use std::{ffi::OsString, fmt, path::PathBuf};

use clap::Args;

pub use self::settings::{LogFormat, LogSettings, Settings};
use self::{layers::Layers, reader::SettingsReader};
use crate::command_line::add_flag;

/// The variable that names the configuration file, as `--config` does.
const CONFIG_VARIABLE: &str = "TIDEGATE_CONFIG";

/// The flags that change the configuration, which may come before or after the command.
#[derive(Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// The configuration file (TOML), with the settings that differ from the defaults [env: TIDEGATE_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,
    /// URL of Redis: redis://, rediss://, redis-sentinel://, redis-cluster://, redis+unix:// [env: TIDEGATE_REDIS_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = "Configuration")]
    pub redis_url: Option<SecretArg>,
    /// URL of MySQL or MariaDB: mysql://user:password@host:port/database [env: TIDEGATE_MYSQL_URL]
    #[arg(long, global = true, value_name = "URL", help_heading = "Configuration")]
    pub mysql_url: Option<SecretArg>,
    /// Run the command only on the partition with this tag (see the setting stream.partitions)
    #[arg(long, global = true, value_name = "TAG", help_heading = "Configuration")]
    pub partition: Option<String>,
    /// Change any setting. You can give --set several times; `tidegate config` lists all settings
    #[arg(long, global = true, value_name = "KEY=VALUE", help_heading = "Configuration")]
    pub set: Vec<SecretArg>,
}

impl ConfigArgs {
    /// The configuration flags that may be shown to an operator, and the names of flags that are left out because they
    /// may contain a secret.
    pub fn without_secrets(&self) -> (Vec<String>, Vec<String>) {
        let (mut typed, mut hidden) = (Vec::new(), Vec::new());
        if let Some(path) = &self.config {
            add_flag(&mut typed, "--config", path.to_string_lossy().into_owned());
        }
        for (flag, key, value) in self.urls() {
            let Some(SecretArg(value)) = value else { continue };
            match layers::may_be_shown(key, value) {
                true => add_flag(&mut typed, flag, value.clone()),
                false => hidden.push(flag.to_owned()),
            }
        }
        if let Some(tag) = &self.partition {
            add_flag(&mut typed, "--partition", tag.clone());
        }
        for SecretArg(pair) in &self.set {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match layers::may_be_shown(key.trim(), value) {
                true => add_flag(&mut typed, "--set", pair.clone()),
                false => hidden.push(format!("--set {}", key.trim())),
            }
        }
        (typed, hidden)
    }

    fn urls(&self) -> [(&'static str, &'static str, &Option<SecretArg>); 2] {
        [("--redis-url", "redis.url", &self.redis_url), ("--mysql-url", "mysql.url", &self.mysql_url)]
    }
}

/// The value of a flag that may contain a password. `Debug` shows nothing of the value.
#[derive(Clone)]
pub struct SecretArg(String);

impl From<&str> for SecretArg {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for SecretArg {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A mistake in the configuration, and the file, variable or flag that contains the mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file, variable or flag that contains the mistake: `file x.toml`, `variable TIDEGATE_...`, `flag --set` or
    /// `default`.
    pub place: String,
    /// The description of the mistake and of a correct value. It never contains a secret.
    pub what: String,
}

/// All mistakes in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidConfig(pub Vec<ConfigProblem>);

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => f.write_str("The configuration has 1 problem:")?,
            count => write!(f, "The configuration has {count} problems:")?,
        }
        self.0.iter().try_for_each(|problem| write!(f, "\n  {}: {}", problem.place, problem.what))
    }
}

/// The settings that the program uses, after merging defaults, a file, variables and flags.
#[derive(Debug)]
pub struct Config {
    /// The settings as typed values, which the program uses.
    pub settings: Settings,
    layers: Layers,
}

impl Config {
    /// Merges the default values, the file, the variables and the flags, and checks the resulting settings.
    ///
    /// # Errors
    /// All problems of all layers.
    pub fn load(
        args: &ConfigArgs,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, InvalidConfig> {
        let variables: Vec<_> = variables.into_iter().collect();
        let mut layers = Layers::defaults();
        if let Some(path) = args.config.clone().or_else(|| config_variable(&variables)) {
            layers.add_file(&path);
        }
        layers.add_variables(&variables);
        for (flag, key, value) in args.urls() {
            if let Some(value) = value {
                layers.add_flag(flag, key, &value.0);
            }
        }
        args.set.iter().for_each(|pair| layers.add_pair("--set", &pair.0));
        let mut config = Self::check(layers)?;
        if let Some(tag) = &args.partition {
            let narrowed = config.settings.system.narrowed(tag).map_err(|error| {
                InvalidConfig(vec![ConfigProblem {
                    place: "flag --partition".to_owned(),
                    what: error.to_string(),
                }])
            })?;
            config.settings.system = narrowed;
        }
        Ok(config)
    }

    fn check(mut layers: Layers) -> Result<Self, InvalidConfig> {
        layers.read_secret_files();
        let mut reader = SettingsReader::new(&layers);
        let settings = Settings::read(&mut reader);
        let problems = [layers.problems().to_vec(), reader.into_problems()].concat();
        if problems.is_empty() { Ok(Self { settings, layers }) } else { Err(InvalidConfig(problems)) }
    }

    /// The settings that the program uses, as TOML, with the source of each value and with secrets hidden.
    #[must_use]
    pub fn to_toml(&self) -> String {
        show::toml(&self.layers)
    }

    /// The settings that the program uses, as JSON: `{section: {key: {value, source}}}`.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        show::json(&self.layers)
    }
}

fn config_variable(variables: &[(OsString, OsString)]) -> Option<PathBuf> {
    let found = variables.iter().find(|(name, _)| name == CONFIG_VARIABLE);
    found.map(|(_, path)| PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty())
}
