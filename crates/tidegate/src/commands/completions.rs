//! The command `tidegate completions`: a completion script for a shell.

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::{exit::Exit, output};

const EXAMPLES: &str = "\
Examples:
  tidegate completions bash > /etc/bash_completion.d/tidegate
  tidegate completions zsh > \"${fpath[1]}/_tidegate\"";

/// The arguments of `tidegate completions`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell that the script is for
    shell: Shell,
}

/// Prints a shell completion script for all commands of `program`.
///
/// # Errors
/// When stdout cannot be written to.
pub fn run(args: &CompletionsArgs, program: &mut Command) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    generate(args.shell, program, "tidegate", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
