//! `tidegate worker`: writes the stream's orders to MySQL until told to stop.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate worker` takes.
#[derive(Args, Debug)]
pub struct WorkerArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &WorkerArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
