//! Campaigns: vouchers that are sold under common limits, one voucher for each region.

pub mod load;
pub mod show;

use anyhow::Context;
use tidegate_orders::{CampaignId, limit_rows};

use crate::{
    Stores,
    change::InvalidInput,
    settings::{System, SystemSettings},
};

/// Returns the settings of the partition that holds all vouchers of the campaign.
///
/// # Errors
/// If no voucher is in the campaign, or MySQL does not answer.
pub async fn partition_of(system: &System, campaign: CampaignId) -> anyhow::Result<&SystemSettings> {
    if let [only] = system.partitions() {
        return Ok(only);
    }
    for shard in system.shards() {
        let stores = Stores::new(shard);
        let regions = limit_rows::regions(stores.mysql().await?, campaign).await;
        let regions = regions.context("Failed to read the campaign in MySQL")?;
        if let Some((_, voucher)) = regions.first() {
            return Ok(system.of_voucher(*voucher)?);
        }
    }
    Err(InvalidInput(format!("campaign {campaign} has no vouchers: check the id of the campaign")).into())
}
