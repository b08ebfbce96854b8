//! Checks whether any worker is alive. If none is, that is an error while orders need one, and otherwise a warning,
//! because a new system is checked before its first worker starts.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_compare::text::counted;
use tidegate_orders::{
    RedisStore, VoucherId,
    records::vouchers::{self, VoucherRow},
    work_in_progress,
};
use tokio::time::sleep;

use super::{SaleInRedis, SaleState, StreamView};
use crate::{
    SystemSettings,
    finding::{Finding, Level},
};

/// The vouchers inside their sale window whose sales are checked, the highest ids first. Hardly any system has more on
/// sale at once.
const MOST_VOUCHERS: u32 = 1_000;
/// The time within which a living worker writes a new heartbeat if Redis has lost the previous one, by an outage or
/// with its data.
const REAPPEARS_WITHIN: Duration = Duration::from_millis(1_500);
/// The advice if no worker is alive.
pub(crate) const ADVICE: &str = "start a worker (tidegate worker); see docs/runbook/nothing-is-written.md";

/// Whether any sale is open, so that users can buy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSale {
    /// This voucher can be bought, and perhaps others.
    Of(VoucherId),
    /// None of the checked vouchers can be bought.
    None,
    /// MySQL does not answer which vouchers there are.
    Unknown,
}

impl OpenSale {
    /// Returns the first of these vouchers whose sale is open, so that users can buy.
    pub fn among<'a>(
        sales: impl Iterator<Item = (&'a VoucherRow, Option<SaleInRedis>)>,
        now_ms: i64,
    ) -> Self {
        let mut on = sales.filter(|(row, redis)| SaleState::of(row, *redis, now_ms) == SaleState::On);
        on.next().map_or(Self::None, |(row, _)| Self::Of(row.voucher))
    }
}

/// Checks whether any worker is alive; None: a worker is alive. Otherwise, waits up to half of `within`, checks again,
/// and returns a warning or an error. `mysql` is None while MySQL is unavailable.
///
/// # Errors
/// If Redis does not answer, or does not allow SCAN.
pub async fn check(
    settings: &SystemSettings,
    (redis, mysql): (&RedisStore, Option<&MySqlPool>),
    stream: &StreamView,
    within: Duration,
) -> anyhow::Result<Option<Finding>> {
    if is_any_alive_soon(redis, stream, within).await? {
        return Ok(None);
    }
    let rows = match mysql {
        Some(mysql) => vouchers::open(mysql, settings.partition(), MOST_VOUCHERS).await.ok(),
        None => None,
    };
    let Some(rows) = rows else { return Ok(Some(judge(stream, &OpenSale::Unknown))) };
    let ids: Vec<VoucherId> = rows.iter().map(|row| row.voucher).collect();
    let sales = SaleInRedis::read(redis, &ids).await.context("Failed to read the sales in Redis")?;
    let sales = rows.iter().zip(sales.into_iter().map(Some));
    Ok(Some(judge(stream, &OpenSale::among(sales, Timestamp::now().as_millisecond()))))
}

/// Returns whether any worker is alive. If none is, waits up to half of `within`, and checks again.
///
/// # Errors
/// As for [`check`].
pub(crate) async fn is_any_alive_soon(
    redis: &RedisStore,
    stream: &StreamView,
    within: Duration,
) -> anyhow::Result<bool> {
    if is_any_alive(redis, stream).await? {
        return Ok(true);
    }
    sleep(REAPPEARS_WITHIN.min(within / 2)).await;
    is_any_alive(redis, stream).await
}

/// Returns whether any worker process has a heartbeat, even if the worker has not read any entry yet.
///
/// # Errors
/// As for [`check`].
pub async fn is_any_alive(redis: &RedisStore, stream: &StreamView) -> anyhow::Result<bool> {
    if stream.consumers.iter().any(|consumer| consumer.alive) {
        return Ok(true);
    }
    let has_sign_of_life = work_in_progress::has_sign_of_life(redis).await;
    has_sign_of_life.with_context(|| {
        format!(
            "Failed to search for heartbeats of workers (keys {}); if Redis answers NOPERM, give Tidegate's user +scan",
            redis.keys().fleet().heartbeat("*").as_str_lossy()
        )
    })
}

/// Returns the warning or the error that no worker is alive. The result is an error if a sale is open or an entry
/// waits.
#[must_use]
pub fn judge(stream: &StreamView, open: &OpenSale) -> Finding {
    let are = |count: u64| if count == 1 { "is" } else { "are" };
    let waiting = |count: u64, how: &str| {
        (count > 0).then(|| format!("{} {} {how}", counted(count, "entry"), are(count)))
    };
    let on_sale = match open {
        OpenSale::Of(voucher) => Some(format!("voucher {voucher} is on sale")),
        OpenSale::None | OpenSale::Unknown => None,
    };
    let needs = [
        waiting(stream.backlog.undelivered, "undelivered"),
        waiting(stream.backlog.pending, "pending"),
        on_sale,
    ];
    let needs: Vec<String> = needs.into_iter().flatten().collect();
    let (level, why) = match (needs.is_empty(), open) {
        (false, _) => (Level::Error, format!(", and {}", needs.join(", "))),
        (true, OpenSale::Unknown) => {
            (Level::Warning, "; MySQL does not answer, so it is unknown whether a sale is open".to_owned())
        }
        (true, _) => (Level::Warning, "; no sale is open, and no entry waits".to_owned()),
    };
    Finding {
        store: "redis",
        level,
        what: format!("no worker is alive{why}"),
        advice: Some(ADVICE.to_owned()),
    }
}
