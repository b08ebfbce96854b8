//! The program of a server: one of the system, or one that `fetch-matrix.sh` has fetched.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A program that speaks the protocol of Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedisFlavour {
    /// The system's `redis-server` (Debian 12: 7.0).
    Redis,
    /// Redis 6.2, the oldest that Tidegate accepts.
    Redis62,
    /// Redis 8.
    Redis8,
    /// Valkey 8.
    Valkey8,
    /// Valkey 9.
    Valkey9,
}

/// A program that speaks the protocol of MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlFlavour {
    /// The system's MariaDB (Debian 12: 10.11).
    MariaDb,
    /// MariaDB 11.
    MariaDb11,
    /// MySQL 9.
    Mysql,
}

impl RedisFlavour {
    const NAMES: [(&str, Self); 5] = [
        ("redis", Self::Redis),
        ("redis62", Self::Redis62),
        ("redis8", Self::Redis8),
        ("valkey8", Self::Valkey8),
        ("valkey9", Self::Valkey9),
    ];

    /// The program that `TIDEGATE_LAB_REDIS` names; the system's Redis if it is not set.
    pub fn from_env() -> Result<Self> {
        chosen("TIDEGATE_LAB_REDIS", &Self::NAMES)
    }

    pub(crate) fn program(self) -> Result<Program> {
        match self {
            Self::Redis => Program::of_system("redis-server"),
            Self::Redis62 => Program::of_wheel("redis62", "usr/bin/redis-server"),
            Self::Redis8 => Program::of_tree("sid", "usr/bin/redis-server"),
            Self::Valkey8 => Program::of_tree("trixie", "usr/bin/valkey-server"),
            Self::Valkey9 => Program::of_tree("sid", "usr/bin/valkey-server"),
        }
    }
}

impl MysqlFlavour {
    const NAMES: [(&str, Self); 3] =
        [("mariadb", Self::MariaDb), ("mariadb11", Self::MariaDb11), ("mysql", Self::Mysql)];

    /// The program that `TIDEGATE_LAB_MYSQL` names; the system's MariaDB if it is not set.
    pub fn from_env() -> Result<Self> {
        chosen("TIDEGATE_LAB_MYSQL", &Self::NAMES)
    }

    /// Whether this program is installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        self.program().is_ok()
    }

    pub(crate) fn program(self) -> Result<Program> {
        match self {
            Self::MariaDb => Program::of_system("mariadbd"),
            Self::MariaDb11 => Program::of_tree("trixie", "usr/sbin/mariadbd"),
            Self::Mysql => Program::of_tree("sid", "usr/sbin/mysqld"),
        }
    }
}

/// The flavour that the variable names; the first one if the variable is not set.
fn chosen<F: Copy>(variable: &str, names: &[(&str, F)]) -> Result<F> {
    let value = env::var(variable).unwrap_or_default();
    if value.is_empty() {
        return Ok(names[0].1);
    }
    let found = names.iter().find(|(name, _)| *name == value).map(|(_, flavour)| *flavour);
    found.with_context(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("{variable} is {value:?}, expected one of {}", names.join(", "))
    })
}

/// The command of a server: the words before its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub words: Vec<OsString>,
    /// The folder that contains the program's `usr`.
    pub root: PathBuf,
}

impl Program {
    /// A program of this system, including the `sbin` folders that a user's `PATH` lacks.
    pub fn of_system(name: &str) -> Result<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/sbin")])
            .map(|folder| folder.join(name))
            .find(|candidate| candidate.is_file())
            .with_context(|| format!("{name} is not installed; run `just servers`"))?;
        Ok(Self { words: vec![found.into()], root: PathBuf::from("/") })
    }

    /// A program that `fetch-matrix.sh` has taken from a wheel. It uses the libraries of the system.
    fn of_wheel(tree: &str, path_inside: &str) -> Result<Self> {
        let (root, program) = fetched(tree, path_inside)?;
        Ok(Self { words: vec![program.into()], root })
    }

    /// A program of a Debian tree that `fetch-matrix.sh` has fetched. It runs through the loader and the libraries of
    /// that tree. So it needs neither chroot nor root, sees the same files as every process, and receives our signals
    /// itself.
    fn of_tree(tree: &str, path_inside: &str) -> Result<Self> {
        let (root, program) = fetched(tree, path_inside)?;
        let loader = find_one(&root.join("usr/lib64"), "ld-linux-")
            .or_else(|_| find_one(&root.join("usr/lib"), "ld-linux-"))?;
        let libraries = find_one_ending(&root.join("usr/lib"), "-linux-gnu")?;
        let search = [libraries, root.join("usr/lib/mysql/private")];
        let search = env::join_paths(search).context("The matrix folder's name must not contain a colon")?;
        let words = vec![
            loader.into(),
            "--library-path".into(),
            search,
            "--argv0".into(),
            program.clone().into(),
            program.into(),
        ];
        Ok(Self { words, root })
    }
}

/// The folder of a tree, and a program in it.
fn fetched(tree: &str, path_inside: &str) -> Result<(PathBuf, PathBuf)> {
    let first = matrix_dir()?;
    let root = if tree == "sid" { first } else { first.with_file_name(tree) };
    if !root.join(path_inside).is_file() {
        let recipe = if tree == "sid" { "just matrix" } else { "just matrix-older" };
        bail!("{} does not exist; run `{recipe}`", root.join(path_inside).display());
    }
    let root = root.canonicalize().context("Failed to resolve the matrix folder")?;
    let program = root.join(path_inside);
    Ok((root, program))
}

/// The folder of the first tree; the other trees are beside it.
fn matrix_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("TIDEGATE_MATRIX_DIR") {
        return Ok(dir.into());
    }
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("Neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(cache.join("tidegate/sid"))
}

fn find_one(folder: &Path, prefix: &str) -> Result<PathBuf> {
    find(folder, |name| name.starts_with(prefix))
}

fn find_one_ending(folder: &Path, suffix: &str) -> Result<PathBuf> {
    find(folder, |name| name.ends_with(suffix))
}

fn find(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    fs::read_dir(folder)
        .with_context(|| format!("Failed to read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&fits))
        .with_context(|| {
            format!("{} lacks a file it needs; delete the tree and run `just matrix`", folder.display())
        })
}
