//! `tidegate admit`: admits one order.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate admit` takes.
#[derive(Args, Debug)]
pub struct AdmitArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &AdmitArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
