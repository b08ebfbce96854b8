//! `tidegate audit`: counts every order on both sides.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate audit` takes.
#[derive(Args, Debug)]
pub struct AuditArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &AuditArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
