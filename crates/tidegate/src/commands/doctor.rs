//! `tidegate doctor`: checks both stores.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate doctor` takes.
#[derive(Args, Debug)]
pub struct DoctorArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &DoctorArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
