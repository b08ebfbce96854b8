//! The comparison of sale windows in Redis and MySQL.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::MySqlPool;
use tidegate_orders::{
    RedisStore, VoucherId,
    records::vouchers::windows,
    scripts::{SaleCalendar, SaleWindow},
};
use tidegate_stream::server_time_ms;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::CompareError;

/// The time after which a difference is read again. Meanwhile, workers carry a window that a shop changed in MySQL to
/// Redis, and a command that was changing both stores has ended.
const SETTLED_AFTER: Duration = Duration::from_secs(6);

/// A sale that Redis begins or ends at other times than MySQL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WindowMismatch {
    /// The id of the voucher.
    #[serde(skip)]
    pub voucher: VoucherId,
    /// The window by which Redis sells the voucher.
    pub redis: SaleWindow,
    /// The window of the voucher in MySQL.
    pub mysql: SaleWindow,
}

impl WindowMismatch {
    /// The difference as a sentence for an operator, without a full stop.
    #[must_use]
    pub fn sentence(&self) -> String {
        format!("Redis sells the voucher {}, but MySQL has: {}", self.redis, self.mysql)
    }
}

/// Compares the windows of the given sales. A difference that a second read, some seconds later, does not confirm is no
/// difference. Sales that Redis does not sell by a window are left out. A sale whose keys cannot be read is left out,
/// too: other checks report it.
///
/// # Errors
/// Fails if a store does not answer, or if `stop` is cancelled.
pub async fn mismatches(
    (redis, mysql): (&RedisStore, &MySqlPool),
    vouchers: &[VoucherId],
    stop: &CancellationToken,
) -> Result<Vec<WindowMismatch>, CompareError> {
    let first = read((redis, mysql), vouchers).await?;
    if first.is_empty() {
        return Ok(first);
    }
    stop.run_until_cancelled(sleep(SETTLED_AFTER)).await.ok_or(CompareError::Stopped)?;
    let differing: Vec<VoucherId> = first.iter().map(|found| found.voucher).collect();
    let again = read((redis, mysql), &differing).await?;
    Ok(again.into_iter().filter(|found| first.contains(found)).collect())
}

async fn read(
    (redis, mysql): (&RedisStore, &MySqlPool),
    vouchers: &[VoucherId],
) -> Result<Vec<WindowMismatch>, CompareError> {
    let in_redis = SaleCalendar::of(redis).read_windows(vouchers).await?;
    let sold: Vec<VoucherId> = in_redis.keys().copied().collect();
    if sold.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = i64::try_from(server_time_ms(redis.pool()).await?).unwrap_or(i64::MAX);
    let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::MAX);
    let rows = windows::find_all(mysql, &sold).await?.into_iter().filter(|row| row.delisted_ms.is_none());
    let compared = rows.filter_map(|row| {
        let (voucher, mysql) = (row.voucher, row.window());
        let redis = *in_redis.get(&voucher)?;
        let says_nothing = mysql.is_default_of_table() && !redis.has_bounds();
        let differ = !says_nothing && redis.differs_from(&mysql, now);
        differ.then_some(WindowMismatch { voucher, redis, mysql })
    });
    let mut found: Vec<_> = compared.collect();
    found.sort_by_key(|found| found.voucher);
    Ok(found)
}
