//! The regions of a campaign as Redis and MySQL hold them.

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{CampaignId, VoucherId, limit_rows, limits::LimitOwner};

use crate::vouchers::{
    VoucherStores,
    limits::{self, ShownRule},
};

/// A region of a campaign, as Redis and MySQL store it.
#[derive(Clone, Debug, Serialize)]
pub struct RegionView {
    /// The name of the region.
    pub region: String,
    /// The voucher that the region sells.
    pub voucher: VoucherId,
    /// The number of units that the region had at the start; None: this number is unknown.
    pub initial_stock: Option<i64>,
    /// The number of units left in MySQL; None: MySQL has no row of the voucher.
    pub mysql_stock: Option<i64>,
    /// The number of units left in Redis; None: the voucher is not on sale.
    pub redis_stock: Option<i64>,
    /// The number of the voucher's orders in MySQL that are not cancelled or refunded.
    pub live_orders: i64,
}

/// A campaign with its regions, its total stocks and its limits.
#[derive(Clone, Debug, Serialize)]
pub struct CampaignView {
    /// The campaign that is shown.
    pub campaign: CampaignId,
    /// The regions of the campaign, sorted by name.
    pub regions: Vec<RegionView>,
    /// The number of units that all regions together had at the start.
    pub initial_stock: i64,
    /// The number of units left in MySQL, of all regions together.
    pub mysql_stock: i64,
    /// The number of units left in Redis, of all regions together.
    pub redis_stock: i64,
    /// The number of orders of all regions in MySQL that are not cancelled or refunded.
    pub live_orders: i64,
    /// The limits of the campaign in MySQL, which count the orders of all regions together.
    pub limits: Vec<ShownRule>,
    /// Whether Redis has exactly the same limits of the campaign as MySQL.
    pub are_limits_shown: bool,
}

impl CampaignView {
    /// Reads a campaign from Redis and MySQL. The result has no regions if the campaign does not exist.
    ///
    /// # Errors
    /// If a store does not answer.
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
            let live_orders = live_orders.context("Failed to count the orders of the voucher")?;
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
