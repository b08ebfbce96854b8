//! `tidegate status`: how far the stream is behind.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate status` takes.
#[derive(Args, Debug)]
pub struct StatusArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &StatusArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
