//! The program that is shown and measured.

use std::{path::Path, process::Command};

/// A command of the program, without the settings of the caller's environment.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command
}
