//! Calls of the installed git.

use std::{
    ffi::OsStr,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Returns the output of git, without the end of the last line.
pub fn git<Word: AsRef<OsStr>>(words: impl IntoIterator<Item = Word>) -> Result<String> {
    let output =
        Command::new("git").args(words).stdin(Stdio::null()).output().context("Failed to run git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git: {}", said.trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
