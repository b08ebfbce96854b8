//! The source of a setting's value, which may be a file of its own, such as a mounted secret.

use std::{
    fmt,
    mem::discriminant,
    path::{Path, PathBuf},
};

use toml::Value;

use tidegate_http::secret_file;

/// The ending of the keys that name files with the values of settings, such as `redis.url_file`.
pub const FILE_SUFFIX: &str = "_file";

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
    /// A file whose text is the value.
    SecretFile {
        /// The source that names the file.
        named_by: Box<Self>,
        /// The path of the file.
        path: PathBuf,
    },
}

impl ValueSource {
    /// The configuration file, the variable or the flag, even if it only names the file with the value.
    pub fn given_by(&self) -> &Self {
        if let Self::SecretFile { named_by, .. } = self { named_by } else { self }
    }

    /// Whether both sources belong to the same layer, and one of them gives the value, the other a file with the value.
    pub fn contradicts(&self, other: &Self) -> bool {
        let is_file = |source: &Self| matches!(source, Self::SecretFile { .. });
        discriminant(self.given_by()) == discriminant(other.given_by()) && is_file(self) != is_file(other)
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::SecretFile { named_by, path } => write!(f, "{named_by} ({})", path.display()),
        }
    }
}

/// Converts the value of a key such as `redis.url_file` to a path. The error does not show the value, which may be the
/// secret itself.
pub fn path_of(value: &Value) -> Result<PathBuf, &'static str> {
    // A URL, and an entry such as `shop:order:DIGEST`.
    let is_secret = |text: &str| text.contains(':') && !text.starts_with(['/', '.']);
    match value.as_str() {
        None => Err("must be the path of a file, in quotes"),
        Some("") => Err("is empty: give the path of a file"),
        Some(text) if is_secret(text) => Err("must be the path of a file, and not the value itself"),
        Some(path) => Ok(path.into()),
    }
}

/// Reads the value of a setting from its file. The error does not show the text of the file.
pub fn read_value(path: &Path) -> Result<String, String> {
    let text = secret_file::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.trim() {
        "" => Err("is empty: write the value of the setting into the file".to_owned()),
        value => Ok(value.to_owned()),
    }
}
