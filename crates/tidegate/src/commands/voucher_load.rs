//! `tidegate voucher load`: puts a voucher on sale.

use clap::Args;

use crate::{config::Settings, exit::Exit};

/// What `tidegate voucher load` takes.
#[derive(Args, Debug)]
pub struct VoucherLoadArgs {}

/// Not built yet.
///
/// # Errors
/// Always.
pub async fn run(_settings: &Settings, _args: &VoucherLoadArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("Not built yet")
}
