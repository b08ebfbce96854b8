//! Checks whether Redis still holds the keys of delisted vouchers.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::MySqlPool;
use tidegate_compare::text::{counted, error_chain, size, span};
use tidegate_orders::{RedisStore, VoucherId, records::vouchers, scripts::VoucherState};
use tidegate_stream::server_time_ms;

use crate::{SystemSettings, finding::Findings};

/// The vouchers that are read at once.
const AT_ONCE: usize = 50;
/// The vouchers that are named one by one.
const NAMED: usize = 5;
/// The number of comparison intervals after which the keys of a delisted voucher should be gone.
const LATE: u32 = 3;

/// Reports delisted vouchers whose keys still exist, or whose sale continues in Redis.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) {
    if let Err(error) = look(settings, findings, redis, mysql).await {
        let chain = error_chain(&error);
        findings.warning(
            format!("Failed to read the delisted vouchers whose keys Redis still holds: {chain}"),
            "see docs/delist.md",
        );
    }
}

async fn look(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) -> anyhow::Result<()> {
    let mut left: Vec<(VoucherId, VoucherState)> = Vec::new();
    for vouchers in vouchers::delisted(mysql, settings.partition()).await?.chunks(AT_ONCE) {
        let states = join_all(vouchers.iter().map(|voucher| redis.sales().read_voucher(*voucher))).await;
        // The check of the sales reports a key of another type.
        let states = vouchers.iter().zip(states).filter_map(|(voucher, state)| Some((*voucher, state.ok()?)));
        left.extend(states.filter(|(_, state)| state.stock.is_some() || state.buyers + state.journaled > 0));
    }
    let now_ms = i64::try_from(server_time_ms(redis.pool()).await?).unwrap_or(i64::MAX);
    for (voucher, state) in left.iter().take(NAMED) {
        let Some(since_ms) = state.delisted_ms else {
            findings.error(
                format!("voucher {voucher} is delisted in MySQL, but Redis may still sell it"),
                format!("tidegate voucher delist --voucher {voucher}"),
            );
            continue;
        };
        let age = Duration::from_millis((now_ms - since_ms).max(0).unsigned_abs());
        let bytes = size(redis.sales().weigh(*voucher).await.map_or(0, |keys| keys.bytes));
        let what = format!(
            "voucher {voucher} was delisted {} ago, and its keys use about {bytes} of Redis memory",
            span(age)
        );
        let late = settings.reconcile.remove_delisted_after
            + settings.reconcile.every * LATE
            + Duration::from_secs(600);
        if settings.reconcile.every.is_zero() || age > late {
            findings.warning(
                what,
                format!("to remove the keys, run tidegate voucher delist --voucher {voucher} --remove-keys"),
            );
        } else {
            findings.ok(format!("{what}; workers remove the keys when Redis and MySQL agree"));
        }
    }
    let more = left.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.ok(format!("Redis also has keys of {}", counted(more, "more delisted voucher")));
    }
    Ok(())
}
