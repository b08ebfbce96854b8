//! `tidegate migrate`: creates or takes over the MySQL tables.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate migrate` takes.
#[derive(Args, Debug)]
pub struct MigrateArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &MigrateArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
