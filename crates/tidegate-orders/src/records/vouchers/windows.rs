//! The sale windows in the rows of vouchers, and the windows that Redis last got from them.

use jiff::{SignedDuration, Timestamp};
use sqlx::{MySqlPool, Row};

use super::{
    BEGIN_MS, COLUMNS, END_MS, RecordsError, VoucherRow, listed, named, of_partition, parse, select_rows,
    to_seconds,
};
use crate::{lists::MOST_LISTED, order::VoucherId, partition::Partition, sale_window::SaleWindow};

/// The time after the end of a sale for which a change of its window is still found, in milliseconds: 7 days.
const FOUND_FOR_MS: i64 = 7 * 24 * 3_600_000;
/// The number of changed windows that one query returns.
const PAGE: u32 = 1_000;

/// A voucher whose window in MySQL is not the window that Redis last got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedWindow {
    /// The row of the voucher, with the new window.
    pub row: VoucherRow,
    /// The window that Redis last got.
    pub carried: SaleWindow,
}

/// Reads the rows of the given vouchers, in no order.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn find_all(pool: &MySqlPool, vouchers: &[VoucherId]) -> Result<Vec<VoucherRow>, RecordsError> {
    let mut found = Vec::new();
    for vouchers in vouchers.chunks(MOST_LISTED) {
        let sql = select_rows(&format!("WHERE voucher_id IN ({})", listed(vouchers)));
        for row in sqlx::query(named(&sql)).persistent(false).fetch_all(pool).await? {
            found.push(parse(&row)?);
        }
    }
    Ok(found)
}

/// Changes the window in the row of a voucher that is not delisted. A bound that is `None` stays. `end_ms` may be
/// [`super::NO_END_MS`]. Returns whether there was a row to change.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn schedule(
    pool: &MySqlPool,
    voucher: VoucherId,
    begin_ms: Option<i64>,
    end_ms: Option<i64>,
) -> Result<bool, RecordsError> {
    let bounds = [("begin_time", begin_ms), ("end_time", end_ms)];
    let set = bounds
        .iter()
        .filter_map(|(column, ms)| Some(format!("{column} = FROM_UNIXTIME({})", to_seconds((*ms)?))));
    let set = set.collect::<Vec<_>>().join(", ");
    let sql = format!("UPDATE {{vouchers}} SET {set} WHERE voucher_id = ? AND delisted_at IS NULL");
    let update = sqlx::query(named(&sql)).bind(voucher.get()).persistent(false);
    // This counts the rows found, changed or not: sqlx always asks for that.
    Ok(update.execute(pool).await?.rows_affected() > 0)
}

/// Finds the vouchers of a partition whose windows changed in MySQL since Redis last got them. Skips delisted vouchers,
/// and vouchers whose last window ended more than seven days ago.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn changed(pool: &MySqlPool, partition: &Partition) -> Result<Vec<ChangedWindow>, RecordsError> {
    let sql = format!(
        "SELECT STRAIGHT_JOIN {COLUMNS}, w.begin_ms AS carried_begin_ms, w.end_ms AS carried_end_ms \
         FROM tidegate_carried_window w JOIN {{vouchers}} USING (voucher_id) \
         WHERE (w.end_ms IS NULL OR w.end_ms > UNIX_TIMESTAMP() * 1000 - ?) AND delisted_at IS NULL \
         AND NOT (w.begin_ms <=> {BEGIN_MS} AND w.end_ms <=> {END_MS}) AND w.voucher_id > ?{{own}} \
         ORDER BY w.voucher_id LIMIT ?"
    );
    let mut found = Vec::new();
    loop {
        let after = found.last().map_or(0, |last: &ChangedWindow| last.row.voucher.get());
        let page = sqlx::query(of_partition(&sql, partition)).bind(FOUND_FOR_MS).bind(after).bind(PAGE);
        let page = page.fetch_all(pool).await?;
        for row in &page {
            let carried = SaleWindow::of_ms(row.try_get("carried_begin_ms")?, row.try_get("carried_end_ms")?);
            found.push(ChangedWindow { row: parse(row)?, carried });
        }
        if page.len() < PAGE as usize {
            return Ok(found);
        }
    }
}

/// Notes that Redis has the window of this row now.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn note(pool: &MySqlPool, row: &VoucherRow) -> Result<(), RecordsError> {
    let sql = "INSERT INTO tidegate_carried_window (voucher_id, begin_ms, end_ms) VALUES (?, ?, ?) \
               ON DUPLICATE KEY UPDATE begin_ms = VALUES(begin_ms), end_ms = VALUES(end_ms)";
    let note = sqlx::query(sql).bind(row.voucher.get()).bind(row.begin_ms).bind(row.end_ms);
    note.execute(pool).await?;
    Ok(())
}

/// Notes for each given voucher that Redis has the window of its row. An older note of a voucher stays.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn note_first(pool: &MySqlPool, vouchers: &[VoucherId]) -> Result<(), RecordsError> {
    for vouchers in vouchers.chunks(MOST_LISTED) {
        let sql = format!(
            "INSERT INTO tidegate_carried_window (voucher_id, begin_ms, end_ms) \
             SELECT v.voucher_id, {BEGIN_MS}, {END_MS} FROM {{vouchers}} v WHERE v.voucher_id IN ({}) \
             ON DUPLICATE KEY UPDATE voucher_id = tidegate_carried_window.voucher_id",
            listed(vouchers),
        );
        sqlx::query(named(&sql)).persistent(false).execute(pool).await?;
    }
    Ok(())
}

/// A begin of a sale in a column without a time zone, and its two readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWithoutZone {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The time as the column has it.
    pub stored: String,
    /// The time as this session reads it, by the setting `mysql.time_zone`.
    pub by_setting: Timestamp,
    /// The time as a session in the time zone of the server reads it.
    pub by_server: Timestamp,
}

/// Reads the begin of a voucher of a partition, if the column of the table has no time zone (DATETIME). Without a voucher,
/// reads the begin of the voucher with the highest id.
///
/// # Errors
/// Fails like [`super::find`].
pub async fn time_without_zone(
    pool: &MySqlPool,
    partition: &Partition,
    voucher: Option<VoucherId>,
) -> Result<Option<TimeWithoutZone>, RecordsError> {
    let (lowest, highest) = voucher.map_or((1, i64::MAX), |voucher| (voucher.get(), voucher.get()));
    let sql = format!(
        "SELECT CAST(voucher_id AS SIGNED), CAST(begin_time AS CHAR), {BEGIN_MS}, \
         CAST(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', @@global.time_zone)) - \
         TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) AS SIGNED) FROM {{vouchers}} WHERE begin_time + 0 > 0 AND \
         EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND \
         table_name = '{{vouchers}}' AND column_name = 'begin_time' AND data_type = 'datetime') \
         AND voucher_id BETWEEN ? AND ?{{own}} ORDER BY voucher_id DESC LIMIT 1"
    );
    let row = sqlx::query(of_partition(&sql, partition)).bind(lowest).bind(highest);
    let row = row.fetch_optional(pool).await?;
    let time = row.and_then(|row| {
        let voucher = VoucherId::try_from(row.try_get::<i64, _>(0).ok()?).ok()?;
        let by_setting = Timestamp::from_millisecond(row.try_get(2).ok()?).ok()?;
        // A server further east reads the same text as an earlier time.
        let by_server = by_setting - SignedDuration::from_secs(row.try_get(3).ok()?);
        Some(TimeWithoutZone { voucher, stored: row.try_get(1).ok()?, by_setting, by_server })
    });
    Ok(time)
}
