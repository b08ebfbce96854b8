//! The program that is shown and measured.

use std::{path::Path, process::Command};

/// A command of it that knows none of the caller's settings.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command
}
