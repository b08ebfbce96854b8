//! A program that is compared with another one: as it was built, or of a commit that is built for it.

use std::{
    ffi::OsStr,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{git::git, writers::tell};

/// Holds the programs that were built of commits. One that is there is not built again.
const FOLDER: &str = "target/compare";

/// `tidegate`, and the script by which its gate admits: known of a commit, not of a file.
#[derive(Clone, Debug)]
pub struct Contender {
    /// As it was asked for, with the commit that this is.
    pub name: String,
    pub program: PathBuf,
    pub script: Option<String>,
}

impl Contender {
    /// Two of them, each named by the file of a program or by a commit, in whatever way git knows it.
    pub fn pair(names: [&str; 2]) -> Result<[Self; 2]> {
        // All that may be wrong with a name is found before the first one is built, which takes minutes.
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

/// Builds the program of a commit as `just bench` does, in a work tree of its own.
fn build(commit: &str) -> Result<PathBuf> {
    let folder = Path::new(FOLDER);
    fs::create_dir_all(folder)?;
    // One at a time: all build in the same place.
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
    // Whole or not at all.
    fs::rename(target.join("release/tidegate"), &program)?;
    Ok(program)
}

/// What else the speed of a program depends on, as a name: the compiler and its flags.
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

/// Removes a work tree in whatever state it is. What is left of it, adding it again complains of.
fn remove(tree: &Path) {
    let force = OsStr::new("--force");
    let _may_not_be_there = git([OsStr::new("worktree"), "remove".as_ref(), force, force, tree.as_ref()]);
    let _may_not_be_there = fs::remove_dir_all(tree);
    let _only_tidies = git(["worktree", "prune"]);
}
