//! `tidegate voucher show`: what both sides hold of a voucher.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate voucher show` takes.
#[derive(Args, Debug)]
pub struct VoucherShowArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &VoucherShowArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
