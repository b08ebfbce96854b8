//! Vouchers: putting one on sale, changing its stock while it is sold, and comparing it in both stores.

pub mod delist;
pub mod limits;
pub mod load;
pub mod publish;
pub mod schedule;
pub mod show;
pub mod stock_change;

use anyhow::Context;
use sqlx::MySqlPool;
use tidegate_orders::{
    Records, RedisStore, VoucherId,
    records::vouchers::{self, VoucherRow},
    scripts::VoucherState,
};

use crate::{change::InvalidInput, stores::Stores};

/// The highest number of units that a voucher can have, because the admission script cannot count more units.
pub const MAX_STOCK: i64 = 9_999_999_999_999;
/// The reason why MySQL refuses units that its column cannot hold. The column is an INT unless an operator has changed
/// it.
pub(crate) const COLUMN_TOO_SMALL: &str = "the column `stock` in MySQL cannot hold so many units";

/// Creates the error for a voucher id that neither store knows.
#[must_use]
pub fn unknown(voucher: VoucherId) -> InvalidInput {
    InvalidInput(format!("neither Redis nor MySQL knows voucher {voucher}: check the id"))
}

/// The connections to Redis and MySQL of the partition that holds a voucher.
#[derive(Clone, Debug)]
pub struct VoucherStores {
    pub(crate) redis: RedisStore,
    pub(crate) mysql: MySqlPool,
}

impl VoucherStores {
    /// Creates the connections from those of a running process.
    #[must_use]
    pub const fn new(redis: RedisStore, mysql: MySqlPool) -> Self {
        Self { redis, mysql }
    }

    /// Connects to Redis and MySQL of the partition.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn connect(stores: &Stores) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        Ok(Self { redis: redis.clone(), mysql: mysql.clone() })
    }

    /// Returns the pool of MySQL connections to the database that holds the vouchers.
    #[must_use]
    pub const fn mysql(&self) -> &MySqlPool {
        &self.mysql
    }

    /// Returns the records of orders in MySQL.
    pub(crate) fn records(&self) -> Records<'_> {
        Records::new(&self.mysql, self.redis.keys().partition())
    }

    pub(crate) async fn state(&self, voucher: VoucherId) -> anyhow::Result<VoucherState> {
        self.redis.sales().read_voucher(voucher).await.context("Failed to read the voucher in Redis")
    }

    pub(crate) async fn row(&self, voucher: VoucherId) -> anyhow::Result<Option<VoucherRow>> {
        vouchers::find(&self.mysql, voucher).await.context("Failed to read the voucher in MySQL")
    }
}
