//! Is what MySQL sells on sale in Redis, too?

use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::GateError,
    sale,
    vouchers::{self, VoucherError, VoucherRow},
};
use tokio::time::timeout;

use super::finding::Findings;
use crate::{
    SystemSettings,
    text::{counted, error_chain, printable},
};

/// Vouchers on sale that are compared, the highest ids first; more are hardly on sale at once.
const MOST_VOUCHERS: u32 = 1_000;
/// Vouchers that are named one by one.
const NAMED: usize = 5;

/// What is wrong in Redis with vouchers that were sold from and are inside their sale window.
#[derive(Debug, Default)]
struct Mismatches {
    /// How many of them have units left.
    on_sale: u64,
    /// Of these, the ones of which Redis holds nothing. Of sold out ones, Redis has nothing to tell that MySQL would not.
    forgotten: Vec<VoucherRow>,
    /// Redis offers so many units more than MySQL has.
    surpluses: Vec<(VoucherId, i64)>,
    /// A key of theirs holds something else than it should: what Redis says, with the key's name.
    wrong_keys: Vec<(VoucherId, String)>,
}

/// Compares what is on sale by MySQL with what Redis offers.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &Pool,
    mysql: &MySqlPool,
) {
    let within = settings.mysql.statement_timeout;
    let read = timeout(within, vouchers::on_sale_with_orders(mysql, MOST_VOUCHERS)).await;
    let found = match read {
        Ok(Ok(rows)) => compare(settings, redis, rows).await,
        // Told with the tables.
        Ok(Err(VoucherError::NotMigrated(_))) => return,
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(anyhow::anyhow!("no answer within {} ms", within.as_millis())),
    };
    match found {
        Ok(found) => {
            if found.on_sale > 0 && found.forgotten.is_empty() && found.wrong_keys.is_empty() {
                findings.ok(format!(
                    "it knows what is on sale by MySQL ({} with orders)",
                    counted(found.on_sale, "voucher")
                ));
            }
            report_wrong_keys(findings, &found.wrong_keys);
            report_surpluses(findings, &found.surpluses);
            report_forgotten(settings, findings, (redis, mysql), &found.forgotten).await;
        }
        Err(error) => findings.warning(
            format!("nobody can say whether it knows the vouchers that are on sale: {}", error_chain(&error)),
            "tidegate voucher show --voucher ID, for each that is on sale",
        ),
    }
}

/// MySQL was asked first: what is admitted meanwhile lowers the stock in Redis, so what is more there is too much even
/// while orders are on their way.
async fn compare(
    settings: &SystemSettings,
    redis: &Pool,
    rows: Vec<VoucherRow>,
) -> anyhow::Result<Mismatches> {
    let keys = Keys::new(settings.keys.clone());
    let ids: Vec<_> = rows.iter().map(|row| row.voucher).collect();
    let stocks = sale::read_stocks(redis, &keys, &ids).await?;
    let gate = Gate::new(redis.clone(), keys, settings.stream.name.as_str());
    let mut found = Mismatches::default();
    for (row, stock) in rows.into_iter().zip(stocks) {
        found.on_sale += u64::from(row.stock > 0);
        match stock {
            Some(stock) if stock > row.stock => found.surpluses.push((row.voucher, stock - row.stock)),
            Some(_) => {}
            None => match gate.read_voucher(row.voucher).await {
                Ok(state) if state.stock.is_none() && state.buyers + state.journaled == 0 => {
                    found.forgotten.extend((row.stock > 0).then_some(row));
                }
                Ok(_) => {}
                Err(error @ GateError::Unreachable(_)) => return Err(error.into()),
                Err(error) => found.wrong_keys.push((row.voucher, error.to_string())),
            },
        }
    }
    Ok(found)
}

fn report_wrong_keys(findings: &mut Findings, wrong_keys: &[(VoucherId, String)]) {
    for (voucher, error) in wrong_keys.iter().take(NAMED) {
        findings.error(
            format!("voucher {voucher} is inside its sale window, and nobody can buy it: {error}"),
            "rename that key, or give the keys of orders other names (`keys` in the configuration); see docs/runbook/wrong-type.md",
        );
    }
    more(findings, wrong_keys.len());
}

fn report_surpluses(findings: &mut Findings, surpluses: &[(VoucherId, i64)]) {
    for (voucher, surplus) in surpluses.iter().take(NAMED) {
        findings.warning(
            format!(
                "of voucher {voucher}, it offers {} or more that MySQL does not have: who is admitted for them is refused later",
                counted(surplus.unsigned_abs(), "unit")
            ),
            format!("tidegate audit --voucher {voucher}; see docs/runbook/redis-stock-is-wrong.md"),
        );
    }
    let more = surpluses.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.warning(
            format!("and so it is with {more} more"),
            "tidegate audit names all; see docs/runbook/redis-stock-is-wrong.md",
        );
    }
}

fn more(findings: &mut Findings, found: usize) {
    let more = found.saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.error(
            format!("and so it is with {more} more"),
            "tidegate audit names all that came through Redis; see docs/runbook/audit-fails.md",
        );
    }
}

async fn report_forgotten(
    settings: &SystemSettings,
    findings: &mut Findings,
    (redis, mysql): (&Pool, &MySqlPool),
    forgotten: &[VoucherRow],
) {
    for VoucherRow { voucher, stock, .. } in forgotten.iter().take(NAMED) {
        let orders = vouchers::count_orders(mysql, *voucher).await;
        let orders = orders.map_or_else(|_| "orders".to_owned(), |orders| counted(orders, "order"));
        findings.error(
            format!(
                "voucher {voucher} is inside its sale window, has {} and {orders} in MySQL, and nothing in Redis, neither \
                 {} nor any other key that is configured",
                counted(*stock, "unit"),
                Keys::new(settings.keys.clone()).stock(*voucher).as_str_lossy(),
            ),
            match sale::find_named_after(redis, *voucher, NAMED).await {
                Ok(others) if !others.is_empty() => format!(
                    "nobody can buy it by these names. Other keys end with its number: {}. If they are those of your producer, \
                     give tidegate their names (`keys` in the configuration); do not fill Redis anew",
                    others.iter().map(|key| printable(key)).collect::<Vec<_>>().join(", ")
                ),
                _ => "nobody can buy it. Redis lost data, it was never loaded, or your keys have other names (`keys` in the \
                      configuration): see docs/runbook/redis-lost-data.md"
                    .to_owned(),
            },
        );
    }
    more(findings, forgotten.len());
}
