//! Checks whether Redis sells the vouchers that are on sale in MySQL.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use jiff::Timestamp;
use sqlx::MySqlPool;
use tidegate_compare::text::{counted, error_chain, printable};
use tidegate_orders::{
    Records, RecordsError, RedisStore, Sum, VoucherId,
    records::vouchers::{self, VoucherRow},
    sale,
    scripts::{ScriptError, SumCheck, VoucherState},
};
use tokio::time::timeout;

use super::failover;
use crate::{SystemSettings, finding::Findings};

/// The vouchers on sale that are compared at most, the highest ids first. Hardly any system has more on sale at once.
const MOST_VOUCHERS: u32 = 1_000;
/// The vouchers whose keys are read at once.
const AT_ONCE: usize = 100;
/// The entries of a journal that are read at most; `tidegate reconcile` reads larger journals.
const MOST_FIELDS: u64 = 100_000;
/// The vouchers that are named one by one.
const NAMED: usize = 5;

/// The problems in Redis with vouchers that MySQL knows.
#[derive(Debug, Default)]
struct Mismatches {
    /// The vouchers that have orders, are inside their sale window and have units left.
    on_sale: u64,
    /// The vouchers among these that have no key in Redis. Sold-out vouchers are left out, because Redis would hold
    /// nothing about them that MySQL does not have.
    forgotten: Vec<VoucherRow>,
    /// The units that Redis offers in excess of MySQL's stock, for each voucher.
    risks: Vec<(VoucherId, i64)>,
    /// The units by which the stock differs from its journal; positive: the stock is larger.
    mismatches: Vec<(VoucherId, i64)>,
    /// The vouchers whose journals are too large to be read here, with the number of fields.
    unread: Vec<(VoucherId, u64)>,
    /// The largest journal of all vouchers that were read.
    largest: Option<(VoucherId, u64)>,
    /// Whether there may be more vouchers on sale than were compared.
    has_more: bool,
    /// The vouchers that have a key of a wrong type, with the error of Redis, which names the key.
    wrong_keys: Vec<(VoucherId, String)>,
}

/// Compares the vouchers on sale in MySQL with what Redis offers.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: &MySqlPool,
) {
    let within = settings.mysql.statement_timeout;
    let read = async {
        let on_sale = vouchers::on_sale_with_orders(mysql, settings.partition(), MOST_VOUCHERS).await?;
        Ok((on_sale, vouchers::latest(mysql, settings.partition(), MOST_VOUCHERS).await?))
    };
    let found = match timeout(within, read).await {
        Ok(Ok((on_sale, latest))) => compare(redis, on_sale, latest).await,
        // The check of the tables reports this.
        Ok(Err(RecordsError::NotMigrated(_))) => return,
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(anyhow::anyhow!("no answer within {} ms", within.as_millis())),
    };
    match found {
        Ok(found) => {
            if found.on_sale > 0 && found.forgotten.is_empty() && found.wrong_keys.is_empty() {
                findings.ok(format!(
                    "Redis has all vouchers that are on sale in MySQL ({} with orders)",
                    counted(found.on_sale, "voucher")
                ));
            }
            if found.has_more {
                findings.not_read(
                    format!("only the {MOST_VOUCHERS} vouchers on sale with the highest ids were checked"),
                    "run tidegate audit to check all vouchers",
                );
            }
            report_wrong_keys(findings, &found.wrong_keys);
            report_oversell_risks(findings, &found.risks);
            report_journals(findings, &found);
            failover::check_sizes(settings, findings, redis, found.largest).await;
            report_forgotten(settings, findings, (redis, mysql), &found.forgotten).await;
        }
        Err(error) => findings.warning(
            format!("Failed to compare the vouchers on sale with Redis: {}", error_chain(&error)),
            "run tidegate voucher show --voucher ID for each voucher on sale",
        ),
    }
}

/// Compares the vouchers on sale in both stores. MySQL is read first. Admissions that come later only lower the stock
/// in Redis, so an excess in Redis is an error even while orders are being processed. For vouchers without orders, only
/// the types of the keys are checked, because a sale need not be loaded before it begins.
async fn compare(
    redis: &RedisStore,
    on_sale: Vec<VoucherRow>,
    latest: Vec<VoucherRow>,
) -> anyhow::Result<Mismatches> {
    let mut found = Mismatches { has_more: on_sale.len() == MOST_VOUCHERS as usize, ..Mismatches::default() };
    for rows in on_sale.chunks(AT_ONCE) {
        for (row, state) in rows.iter().zip(read_vouchers(redis, rows).await) {
            found.on_sale += u64::from(row.stock > 0);
            let Some(state) = found.keep(row.voucher, state)? else { continue };
            match redis.journals().check_sum(row.voucher, MOST_FIELDS).await {
                Ok(SumCheck::Checked(_, Sum::Mismatch(units))) => found.mismatches.push((row.voucher, units)),
                Ok(SumCheck::TooLarge(fields)) => found.unread.push((row.voucher, fields)),
                Err(error @ ScriptError::Unreachable(_)) => return Err(error.into()),
                // The check of the streams reports a stream of another type.
                Ok(SumCheck::Checked(..) | SumCheck::NotComplete) | Err(_) => {}
            }
            match state.stock {
                Some(stock) if stock > row.stock => found.risks.push((row.voucher, stock - row.stock)),
                None if row.stock > 0 && state.buyers + state.journaled == 0 => {
                    found.forgotten.push(row.clone())
                }
                _ => {}
            }
        }
    }
    let is_looked_at: BTreeSet<VoucherId> = on_sale.iter().map(|row| row.voucher).collect();
    let now_ms = Timestamp::now().as_millisecond();
    let is_new = |row: &VoucherRow| {
        row.end_ms.is_none_or(|end_ms| end_ms > now_ms) && !is_looked_at.contains(&row.voucher)
    };
    let others: Vec<VoucherRow> = latest.into_iter().filter(is_new).collect();
    for rows in others.chunks(AT_ONCE) {
        for (row, state) in rows.iter().zip(read_vouchers(redis, rows).await) {
            found.keep(row.voucher, state)?;
        }
    }
    Ok(found)
}

async fn read_vouchers(redis: &RedisStore, rows: &[VoucherRow]) -> Vec<Result<VoucherState, ScriptError>> {
    join_all(rows.iter().map(|row| redis.sales().read_voucher(row.voucher))).await
}

impl Mismatches {
    /// Returns what Redis holds of a voucher; None if one of its keys has a wrong type.
    fn keep(
        &mut self,
        voucher: VoucherId,
        read: Result<VoucherState, ScriptError>,
    ) -> Result<Option<VoucherState>, ScriptError> {
        match read {
            Ok(state) => {
                let own = (voucher, state.journaled);
                self.largest = Some(self.largest.filter(|it| it.1 >= own.1).unwrap_or(own));
                Ok(Some(state))
            }
            Err(error @ ScriptError::Unreachable(_)) => Err(error),
            Err(error) => {
                self.wrong_keys.push((voucher, error.to_string()));
                Ok(None)
            }
        }
    }
}

fn report_wrong_keys(findings: &mut Findings, wrong_keys: &[(VoucherId, String)]) {
    for (voucher, error) in wrong_keys.iter().take(NAMED) {
        findings.error(
            format!("voucher {voucher} cannot be bought: {error}"),
            "correct the key, or rename the key and set other names for Tidegate's keys (`keys` in the \
             configuration); see docs/runbook/audit-fails.md#a-key-has-a-wrong-type",
        );
    }
    more(findings, wrong_keys.len());
}

fn report_oversell_risks(findings: &mut Findings, risks: &[(VoucherId, i64)]) {
    for (voucher, risk) in risks.iter().take(NAMED) {
        findings.warning(
            format!(
                "Redis offers {} or more of voucher {voucher} that MySQL does not have: workers refuse orders for them",
                counted(risk.unsigned_abs(), "unit")
            ),
            format!(
                "run tidegate audit --voucher {voucher}; see \
                 docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong"
            ),
        );
    }
    let more = risks.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.warning(
            format!("more vouchers with the same problem, not listed here: {more}"),
            "run tidegate audit to list all vouchers; see docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong",
        );
    }
}

fn report_journals(findings: &mut Findings, found: &Mismatches) {
    for (voucher, mismatch) in found.mismatches.iter().take(NAMED) {
        let more = if *mismatch > 0 { "more" } else { "fewer" };
        findings.error(
            format!(
                "Redis offers {} {more} of voucher {voucher} than its journal says: an operator changed the stock manually, \
                 or Redis lost data",
                counted(mismatch.unsigned_abs(), "unit")
            ),
            "see docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong",
        );
    }
    more(findings, found.mismatches.len());
    for (voucher, fields) in found.unread.iter().take(NAMED) {
        findings.not_read(
            format!(
                "the journal of voucher {voucher} has {}, which is too large for the doctor",
                counted(*fields, "entry")
            ),
            format!("run tidegate reconcile --voucher {voucher} to compare the journal with the stock"),
        );
    }
    let others = found.unread.len().saturating_sub(NAMED) as u64;
    if others > 0 {
        findings.not_read(
            format!("other journals that are too large for the doctor: {others}"),
            "run tidegate reconcile to compare all journals with the stocks",
        );
    }
}

fn more(findings: &mut Findings, found: usize) {
    let more = found.saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.error(
            format!("more vouchers with the same problem, not listed here: {more}"),
            "run tidegate audit to list all vouchers with orders from Redis; see docs/runbook/audit-fails.md",
        );
    }
}

async fn report_forgotten(
    settings: &SystemSettings,
    findings: &mut Findings,
    (redis, mysql): (&RedisStore, &MySqlPool),
    forgotten: &[VoucherRow],
) {
    for VoucherRow { voucher, stock, .. } in forgotten.iter().take(NAMED) {
        let orders = Records::new(mysql, settings.partition()).counts().of_voucher(*voucher).await;
        let orders = orders.map_or_else(|_| "orders".to_owned(), |orders| counted(orders, "order"));
        findings.error(
            format!(
                "voucher {voucher} is on sale by its row in MySQL, with {} and {orders}, but Redis has none of its keys: \
                 neither {} nor another configured key",
                counted(*stock, "unit"),
                redis.keys().stock(*voucher).as_str_lossy(),
            ),
            match sale::find_named_after(redis, *voucher, NAMED).await {
                Ok(others) if !others.is_empty() => format!(
                    "users cannot buy this voucher. Redis has other keys that end with the id of the voucher: {}. If your \
                     producer uses these keys, set their names in the configuration (`keys`), and do not rebuild Redis",
                    others.iter().map(|key| printable(key)).collect::<Vec<_>>().join(", ")
                ),
                _ => "users cannot buy this voucher. Redis lost data, the voucher was never loaded, or your producer uses \
                      other key names than the configuration (`keys`): see docs/runbook/redis-lost-data.md"
                    .to_owned(),
            },
        );
    }
    more(findings, forgotten.len());
}
