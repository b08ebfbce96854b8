//! The command `tidegate config`: the effective configuration, and the source of each value.

use clap::Args;

use crate::{config::Config, exit::Exit, output::OutputArgs};

const EXAMPLES: &str = "\
Examples:
  tidegate config
  tidegate config --config tidegate.toml --set worker.batch=200
  tidegate config --json | jq .worker.batch";

/// The arguments of `tidegate config`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ConfigCommandArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the configuration, which `main` has already checked.
///
/// # Errors
/// When stdout cannot be written to.
pub fn run(config: &Config, args: &ConfigCommandArgs) -> anyhow::Result<Exit> {
    args.output.print(&config.to_json(), |_| config.to_toml())?;
    Ok(Exit::Ok)
}
