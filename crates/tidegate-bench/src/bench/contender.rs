//! A program that is compared with another one: a built file, or a commit that is built for it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{git::git, writers::tell};

/// The folder of programs that were built from commits. An existing program is not built again.
const FOLDER: &str = "target/compare";

/// A `tidegate` program, and the admission script of its gate, which is known for a commit, but not for a file.
#[derive(Clone, Debug)]
pub struct Contender {
    /// The name that was typed, with its commit.
    pub name: String,
    pub program: PathBuf,
    pub script: Option<String>,
}

impl Contender {
    /// Finds two programs, each named by a program file or by a commit, in any form that git knows.
    pub fn pair(names: [&str; 2]) -> Result<[Self; 2]> {
        // All names are checked before the first build, which takes minutes.
        let [a, b] = names.map(Named::find);
        let [a, b] = [a?, b?];
        Ok([a.contender()?, b.contender()?])
    }
}

enum Named {
    File(PathBuf),
    Commit { name: String, id: String, script: String },
}

impl Named {
    fn find(name: &str) -> Result<Self> {
        if Path::new(name).is_file() {
            return Ok(Self::File(fs::canonicalize(name)?));
        }
        let commit = format!("{name}^{{commit}}");
        let id = git(["rev-parse", "--verify", "--end-of-options", &commit])
            .with_context(|| format!("`{name}` is neither a file nor a commit"))?;
        let script = git(["show", &format!("{id}:lua/admit.lua")])?;
        Ok(Self::Commit { name: name.to_owned(), id, script })
    }

    fn contender(self) -> Result<Contender> {
        Ok(match self {
            Self::File(program) => Contender { name: program.display().to_string(), program, script: None },
            Self::Commit { name, id, script } => Contender {
                name: format!("{name} ({})", &id[..12]),
                program: fs::canonicalize(build(&id)?)?,
                script: Some(script),
            },
        })
    }
}

/// Builds the program of a commit as `just bench` does, in a separate work tree.
fn build(commit: &str) -> Result<PathBuf> {
    let folder = Path::new(FOLDER);
    fs::create_dir_all(folder)?;
    // One build at a time, because all builds use the same place.
    let alone = File::create(folder.join("lock"))?;
    alone.lock()?;
    let program = folder.join(format!("tidegate-{}-{}", &commit[..12], compiler()?));
    if program.is_file() {
        tell(&format!("{} was built before", &commit[..12]));
        return Ok(program);
    }
    tell(&format!("building {}", &commit[..12]));
    let (tree, target) = (folder.join("tree"), folder.join("build"));
    // An earlier build may have been interrupted.
    remove(&tree);
    git([OsStr::new("worktree"), "add".as_ref(), "--detach".as_ref(), tree.as_ref(), commit.as_ref()])?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "--package", "tidegate", "--manifest-path"]);
    build.arg(tree.join("Cargo.toml")).arg("--target-dir").arg(&target);
    let status = build.status();
    remove(&tree);
    let status = status.context("Failed to run cargo")?;
    ensure!(status.success(), "{commit} cannot be built: cargo ended with {status}");
    // The program appears complete or not at all.
    fs::rename(target.join("release/tidegate"), &program)?;
    Ok(program)
}

/// The name of the compiler and its flags, because the speed of a program depends on them.
fn compiler() -> Result<String> {
    let version = Command::new("rustc").arg("-vV").output().context("Failed to run rustc")?;
    let mut hasher = DefaultHasher::new();
    version.stdout.hash(&mut hasher);
    let is_flag = |name: &str| name.starts_with("RUSTFLAGS") || name.starts_with("CARGO_PROFILE_RELEASE");
    for (name, value) in std::env::vars().filter(|(name, _)| is_flag(name)) {
        (name, value).hash(&mut hasher);
    }
    Ok(format!("{:08x}", hasher.finish() as u32))
}

/// Removes a work tree in whatever state it is. If parts are left, adding it again reports an error.
fn remove(tree: &Path) {
    let force = OsStr::new("--force");
    let _may_not_be_there = git([OsStr::new("worktree"), "remove".as_ref(), force, force, tree.as_ref()]);
    let _may_not_be_there = fs::remove_dir_all(tree);
    let _only_tidies = git(["worktree", "prune"]);
}
