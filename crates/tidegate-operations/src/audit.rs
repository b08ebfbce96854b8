//! The audit: finds out where every order is that Redis admitted, and compares the sums with MySQL.
//!
//! It wants a quiet moment but needs none. An order moves one way, admitted → in flight → written, released or
//! buried, and each side is read in that direction: what has left one place by the time it is read is found in
//! the next. An id that is found nowhere is looked for once more before it is called lost.
//!
//! What Redis offers too much is measured from below, so that a busy sale raises no false alarm: MySQL's stocks are read
//! first, then the end of the stream, then the stocks in Redis, then all else. What stood in the stream by then and has no
//! row at the end had left the stock in Redis and not that of MySQL. Whatever moves meanwhile makes the surplus look smaller,
//! by no more than was on its way at the beginning.
//!
//! The surplus of a quiet voucher is told only if a second look finds every number of the voucher the same. Beside a sale, one
//! look reads the two stocks at two moments.

mod admission;
mod admissions;
mod input;
mod mysql_reader;
mod redis_reader;
mod report;
mod surplus;
mod unreadable;

use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_compare::{CompareError, Pace, limit_counters::LimitCounterCheck};
use tidegate_stream::{StreamInspector, StreamNames};
use tokio_util::sync::CancellationToken;

use tidegate_orders::{Gate, Keys, Records, VoucherId};

use input::AuditInput;
use mysql_reader::MysqlReader;
use redis_reader::RedisReader;
pub use report::{AuditReport, LostSpan, Misnamed, Offenders, StateCounts, Unreadable, VoucherAudit};

/// Audits all vouchers, or `only` one. Reads all of the streams, journals and orders; changes nothing.
///
/// It takes about 50 bytes of memory for each order that Redis knows, and none for those that only MySQL knows.
///
/// # Errors
/// When a store cannot be read. What is wrong with the orders stands in the report.
pub async fn audit(
    redis: &Pool,
    mysql: &MySqlPool,
    keys: &Keys,
    names: &StreamNames,
    only: Option<VoucherId>,
) -> Result<AuditReport, CompareError> {
    let mut report = look(redis, mysql, keys, names, only).await?;
    if report.has_possible_surplus() {
        let earlier = std::mem::replace(&mut report, look(redis, mysql, keys, names, only).await?);
        report.compare_with(&earlier);
    }
    // After a change of the partitions, streams still hold entries of vouchers that moved away. Their partition speaks for these.
    let partition = keys.partition();
    report.vouchers.retain(|own| partition.owns(own.voucher) || !own.is_settled());
    let own = report.vouchers.iter().map(|own| own.voucher).filter(|own| partition.owns(*own));
    let gate = Gate::new(redis.clone(), keys.clone(), names.stream.as_str());
    let never = CancellationToken::new();
    let check = LimitCounterCheck::new(&gate, mysql, Pace::Full, &never);
    report.set_limits(check.compare(&own.collect::<Vec<_>>()).await?);
    Ok(report)
}

/// Looks at both sides once.
async fn look(
    redis: &Pool,
    mysql: &MySqlPool,
    keys: &Keys,
    names: &StreamNames,
    only: Option<VoucherId>,
) -> Result<AuditReport, CompareError> {
    let inspector = StreamInspector::new(redis.clone(), names.clone());
    let mut redis = RedisReader::new(redis, inspector, keys, only);
    let records = Records::new(mysql, keys.partition());
    let mysql = MysqlReader::new(records, only);
    let mut input = AuditInput::default();

    redis.read_open_before().await?;
    input.set_stocks_before(records.stocks().all(only).await?);
    redis.read_redis_stocks(&mut input).await?;
    redis.read_stream(&mut input).await?;
    redis.read_in_flight(&mut input).await?;
    redis.read_dead(&mut input).await?;
    input.add_stocked(&records.stocks().all(only).await?);
    input.add_vouchers(redis.vouchers().await?);
    redis.read_journals(&mut input).await?;
    mysql.read(&mut input).await?;

    let unresolved = input.unresolved();
    if !unresolved.is_empty() || input.has_lost_unreadable() {
        redis.look_again(&mut input, &unresolved).await?;
        mysql.look_again(&mut input, &unresolved).await?;
    }
    Ok(input.into_report())
}

#[cfg(test)]
mod tests;
