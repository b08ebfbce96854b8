//! A program that is compared with another one: as it was built, or of a commit that is built for it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{admission::ADMIT, writers::tell};

/// What commits are built into; a program that is there is not built again.
const FOLDER: &str = "target/compare";

/// `tidegate`, and the script by which its gate admits.
#[derive(Clone, Debug)]
pub struct Contender {
    pub program: PathBuf,
    pub admit: String,
}

impl Contender {
    /// Of a program's file, with the script of this program; or of a commit, by whatever name git knows it.
    pub fn find(name: &str) -> Result<Self> {
        if Path::new(name).is_file() {
            return Ok(Self { program: fs::canonicalize(name)?, admit: ADMIT.to_owned() });
        }
        let commit = git(["rev-parse", "--verify", "--short=12", &format!("{name}^{{commit}}")])
            .with_context(|| format!("`{name}` is neither a file nor a commit"))?;
        let admit = git(["show", &format!("{commit}:lua/admit.lua")])?;
        Ok(Self { program: fs::canonicalize(build(&commit)?)?, admit })
    }
}

/// Builds the program of a commit as `just bench` does, in a work tree of its own.
fn build(commit: &str) -> Result<PathBuf> {
    let folder = Path::new(FOLDER);
    let (tree, target) = (folder.join("tree"), folder.join("build"));
    let program = folder.join(format!("tidegate-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    tell(&format!("building {commit}"));
    // An earlier build may have been interrupted.
    let _nothing_there = remove(&tree);
    git([OsStr::new("worktree"), "add".as_ref(), "--detach".as_ref(), tree.as_ref(), commit.as_ref()])?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--locked", "--package", "tidegate", "--manifest-path"]);
    build.arg(tree.join("Cargo.toml")).arg("--target-dir").arg(&target);
    let status = build.status().context("Failed to run cargo")?;
    ensure!(status.success(), "{commit} cannot be built: cargo ended with {status}");
    // Whole or not at all.
    fs::rename(target.join("release/tidegate"), &program)?;
    remove(&tree)?;
    Ok(program)
}

fn remove(tree: &Path) -> Result<String> {
    git([OsStr::new("worktree"), "remove".as_ref(), "--force".as_ref(), tree.as_ref()])
}

/// What git answers, without the end of the last line.
fn git<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Result<String> {
    let output =
        Command::new("git").args(words).stdin(Stdio::null()).output().context("Failed to run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
