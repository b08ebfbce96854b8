//! The program of a server: one of the system, or one that `just matrix` has fetched.

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
    /// Redis 8, fetched by `just matrix`.
    Redis8,
    /// Valkey 9, fetched by `just matrix`.
    Valkey9,
}

/// A program that speaks the protocol of MySQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MysqlFlavour {
    /// The system's MariaDB (Debian 12: 10.11).
    MariaDb,
    /// MySQL 9, fetched by `just matrix`.
    Mysql,
}

impl RedisFlavour {
    /// The program that `TIDEGATE_LAB_REDIS` names; the system's Redis if it is not set.
    pub fn from_env() -> Result<Self> {
        match env::var("TIDEGATE_LAB_REDIS").as_deref() {
            Err(_) | Ok("" | "redis") => Ok(Self::Redis),
            Ok("redis8") => Ok(Self::Redis8),
            Ok("valkey9") => Ok(Self::Valkey9),
            Ok(other) => bail!("TIDEGATE_LAB_REDIS is {other:?}, expected redis, redis8 or valkey9"),
        }
    }

    pub(crate) fn program(self) -> Result<Program> {
        match self {
            Self::Redis => Program::of_system("redis-server"),
            Self::Redis8 => Program::of_matrix("usr/bin/redis-server"),
            Self::Valkey9 => Program::of_matrix("usr/bin/valkey-server"),
        }
    }
}

impl MysqlFlavour {
    /// The program that `TIDEGATE_LAB_MYSQL` names; the system's MariaDB if it is not set.
    pub fn from_env() -> Result<Self> {
        match env::var("TIDEGATE_LAB_MYSQL").as_deref() {
            Err(_) | Ok("" | "mariadb") => Ok(Self::MariaDb),
            Ok("mysql") => Ok(Self::Mysql),
            Ok(other) => bail!("TIDEGATE_LAB_MYSQL is {other:?}, expected mariadb or mysql"),
        }
    }

    /// Whether this program is installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        self.program().is_ok()
    }

    pub(crate) fn program(self) -> Result<Program> {
        match self {
            Self::MariaDb => Program::of_system("mariadbd"),
            Self::Mysql => Program::of_matrix("usr/sbin/mysqld"),
        }
    }
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

    /// A program of the Debian tree that `just matrix` has fetched. It runs through the loader and the libraries of
    /// that tree. So it needs neither chroot nor root, sees the same files as every process, and receives our signals
    /// itself.
    fn of_matrix(path_inside: &str) -> Result<Self> {
        let root = matrix_dir()?;
        if !root.join(path_inside).is_file() {
            bail!("{} does not exist; run `just matrix`", root.join(path_inside).display());
        }
        let root = root.canonicalize().context("Failed to resolve the matrix folder")?;
        let program = root.join(path_inside);
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
