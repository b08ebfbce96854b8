//! How the sale of a voucher stands: the one place that decides it for `status`, `top`, and for whether a worker is needed.

use serde::Serialize;
use tidegate_orders::{RedisStore, VoucherId, gate::Pause, records::vouchers::VoucherRow, sale};

/// What Redis says of the sale of a voucher.
#[derive(Clone, Copy, Debug)]
pub struct SaleInRedis {
    /// Units left; None: no stock is loaded.
    pub stock: Option<i64>,
    /// An operator stopped the sale; None: that cannot be read.
    pub is_paused: Option<bool>,
}

impl SaleInRedis {
    /// Reads the sales of these vouchers, in their order.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn read(redis: &RedisStore, vouchers: &[VoucherId]) -> anyhow::Result<Vec<Self>> {
        let stocks = async { anyhow::Ok(sale::read_stocks(redis, vouchers).await?) };
        let pauses = async { anyhow::Ok(redis.sales().read_pauses(vouchers).await) };
        let (stocks, pauses) = tokio::try_join!(stocks, pauses)?;
        let both = stocks.into_iter().zip(pauses);
        Ok(both.map(|(stock, pause)| Self { stock, is_paused: pause.ok().map(Pause::is_paused) }).collect())
    }
}

/// How the sale of a voucher stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SaleState {
    /// Callers can buy.
    On,
    /// Redis has no unit left.
    SoldOut,
    /// Redis holds no stock: it was not loaded, or Redis lost it.
    NoStock,
    /// An operator stopped it.
    Paused,
    /// Its time has not come.
    NotBegun,
    /// Its time is over.
    Over,
    /// It is over for good.
    Delisted,
    /// Redis is away, or a key of the voucher cannot be read.
    Unknown,
}

impl SaleState {
    /// By the row in MySQL, by what Redis says, and by the time in Unix milliseconds.
    #[must_use]
    pub fn of(row: &VoucherRow, redis: Option<SaleInRedis>, now_ms: i64) -> Self {
        if row.delisted_ms.is_some() {
            return Self::Delisted;
        }
        if row.end_ms.is_some_and(|end_ms| end_ms <= now_ms) {
            return Self::Over;
        }
        match redis {
            None => Self::Unknown,
            Some(SaleInRedis { is_paused: Some(true), .. }) => Self::Paused,
            Some(SaleInRedis { stock: None, .. }) => Self::NoStock,
            Some(SaleInRedis { is_paused: None, .. }) => Self::Unknown,
            Some(_) if row.begin_ms.is_some_and(|begin_ms| begin_ms > now_ms) => Self::NotBegun,
            Some(SaleInRedis { stock: Some(..=0), .. }) => Self::SoldOut,
            Some(_) => Self::On,
        }
    }

    /// For tables.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::SoldOut => "sold out",
            Self::NoStock => "no stock",
            Self::Paused => "paused",
            Self::NotBegun => "not begun",
            Self::Over => "over",
            Self::Delisted => "delisted",
            Self::Unknown => "-",
        }
    }
}
