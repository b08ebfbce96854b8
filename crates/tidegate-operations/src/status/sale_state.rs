//! The state of a voucher's sale. Only this module decides it, for `status`, for `top`, and for whether a worker is
//! needed.

use serde::Serialize;
use tidegate_orders::{RedisStore, VoucherId, records::vouchers::VoucherRow, sale, scripts::Pause};

/// The sale of a voucher, as it is stored in Redis.
#[derive(Clone, Copy, Debug)]
pub struct SaleInRedis {
    /// The number of units left in Redis; None: Redis has no stock of the voucher.
    pub stock: Option<i64>,
    /// Whether an operator paused the sale; None: the pause cannot be read.
    pub is_paused: Option<bool>,
}

impl SaleInRedis {
    /// Reads the sales of these vouchers from Redis, and returns one sale for each voucher, in the given sequence.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn read(redis: &RedisStore, vouchers: &[VoucherId]) -> anyhow::Result<Vec<Self>> {
        let stocks = async { anyhow::Ok(sale::read_stocks(redis, vouchers).await?) };
        let pauses = async { anyhow::Ok(redis.sales().read_pauses(vouchers).await) };
        let (stocks, pauses) = tokio::try_join!(stocks, pauses)?;
        let both = stocks.into_iter().zip(pauses);
        Ok(both.map(|(stock, pause)| Self { stock, is_paused: pause.ok().map(Pause::is_paused) }).collect())
    }
}

/// The state of the sale of a voucher, such as on, paused or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SaleState {
    /// Callers can buy the voucher now.
    On,
    /// Redis has no units left.
    SoldOut,
    /// Redis holds no stock: it was not loaded, or Redis lost it.
    NoStock,
    /// An operator paused the sale.
    Paused,
    /// The sale has not begun yet.
    NotBegun,
    /// The sale window is over.
    Over,
    /// The voucher is delisted: its sale has ended forever.
    Delisted,
    /// Redis is unavailable, or a key of the voucher cannot be read.
    Unknown,
}

impl SaleState {
    /// Returns the state of a sale, from the row in MySQL, the sale in Redis, and the current time in Unix
    /// milliseconds.
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

    /// Returns the words that stand for the state of a sale in tables.
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
