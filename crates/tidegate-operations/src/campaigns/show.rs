//! What both sides hold of the regions of a campaign.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{CampaignId, VoucherId, limit_rows, limits::LimitOwner};

use crate::vouchers::{
    VoucherStores,
    limits::{self, ShownRule},
};

/// A region by both sides.
#[derive(Clone, Debug, Serialize)]
pub struct RegionView {
    /// Its name.
    pub region: String,
    /// Its voucher.
    pub voucher: VoucherId,
    /// Units at the start, where it is known.
    pub initial_stock: Option<i64>,
    /// Units left by MySQL; None: it has no row.
    pub mysql_stock: Option<i64>,
    /// Units left by Redis; None: it is not on sale.
    pub redis_stock: Option<i64>,
    /// Live orders in MySQL.
    pub live_orders: i64,
}

/// A campaign.
#[derive(Clone, Debug, Serialize)]
pub struct CampaignView {
    /// The campaign.
    pub campaign: CampaignId,
    /// Its regions, by name.
    pub regions: Vec<RegionView>,
    /// Of all regions together: units at the start.
    pub initial_stock: i64,
    /// Units left by MySQL.
    pub mysql_stock: i64,
    /// Units left by Redis.
    pub redis_stock: i64,
    /// Live orders in MySQL.
    pub live_orders: i64,
    /// The limits that they have in common.
    pub limits: Vec<ShownRule>,
    /// Redis has just these.
    pub are_limits_shown: bool,
}

impl CampaignView {
    /// Reads it. No region: there is no such campaign.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn read(stores: &VoucherStores, campaign: CampaignId) -> anyhow::Result<Self> {
        let list = limits::list(stores, LimitOwner::Campaign(campaign)).await?;
        let rows = limit_rows::regions(stores.mysql(), campaign).await;
        let mut view = Self {
            campaign,
            regions: Vec::new(),
            initial_stock: 0,
            mysql_stock: 0,
            redis_stock: 0,
            live_orders: 0,
            limits: list.limits,
            are_limits_shown: list.is_shown,
        };
        for (region, voucher) in rows.context("Failed to read the campaign in MySQL")? {
            let (sale, row) = (stores.state(voucher).await?, stores.row(voucher).await?);
            let live_orders = stores.records().counts().live_of_voucher(voucher).await;
            let live_orders = live_orders.context("Failed to count its orders")?;
            let initial_stock = row.as_ref().and_then(|row| row.initial_stock);
            let (mysql_stock, redis_stock) = (row.map(|row| row.stock), sale.stock);
            view.initial_stock += initial_stock.unwrap_or(0);
            view.mysql_stock += mysql_stock.unwrap_or(0);
            view.redis_stock += redis_stock.unwrap_or(0);
            view.live_orders += live_orders;
            view.regions.push(RegionView {
                region,
                voucher,
                initial_stock,
                mysql_stock,
                redis_stock,
                live_orders,
            });
        }
        Ok(view)
    }
}
