//! Is what MySQL sells on sale in Redis, too?

use fred::clients::Pool;
use sqlx::MySqlPool;
use tidegate_orders::{
    Gate, Keys, sale,
    vouchers::{self, VoucherError, VoucherRow},
};
use tokio::time::timeout;

use super::finding::Findings;
use crate::{
    config::Settings,
    output::{counted, told},
};

/// Vouchers on sale that are compared, the highest ids first; more are hardly on sale at once.
const MOST_VOUCHERS: u32 = 1_000;
/// Vouchers that are named one by one.
const NAMED: usize = 5;

/// Looks for vouchers that were sold from, are inside their sale window and have units left, and of which Redis holds
/// nothing. Sold out ones are left out: Redis has nothing to tell of them that MySQL would not.
pub async fn check(settings: &Settings, findings: &mut Findings, redis: &Pool, mysql: &MySqlPool) {
    let within = settings.mysql.statement_timeout;
    let read = timeout(within, vouchers::on_sale_with_orders(mysql, MOST_VOUCHERS)).await;
    let looked = match read {
        Ok(Ok(rows)) => forgotten(settings, redis, rows).await,
        // Told with the tables.
        Ok(Err(VoucherError::NotMigrated(_))) => return,
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(anyhow::anyhow!("no answer within {} ms", within.as_millis())),
    };
    match looked {
        Ok((0, _)) => {}
        Ok((on_sale, forgotten)) if forgotten.is_empty() => findings
            .ok(format!("it knows what is on sale by MySQL ({} with orders)", counted(on_sale, "voucher"))),
        Ok((_, forgotten)) => report(findings, mysql, &forgotten).await,
        Err(error) => findings.warning(
            format!("nobody can say whether it knows the vouchers that are on sale: {}", told(&error)),
            "tidegate voucher show --voucher ID, for each that is on sale",
        ),
    }
}

/// How many are on sale, and those of which Redis holds nothing.
async fn forgotten(
    settings: &Settings,
    redis: &Pool,
    rows: Vec<VoucherRow>,
) -> anyhow::Result<(u64, Vec<VoucherRow>)> {
    let keys = Keys::new(settings.keys.clone());
    let ids: Vec<_> = rows.iter().map(|row| row.voucher).collect();
    let stocks = sale::read_stocks(redis, &keys, &ids).await?;
    let on_sale = rows.len() as u64;
    let gate = Gate::new(redis.clone(), keys, settings.stream.name.as_str());
    let mut forgotten = Vec::new();
    for (row, _) in rows.into_iter().zip(stocks).filter(|(_, stock)| stock.is_none()) {
        let state = gate.read_voucher(row.voucher).await?;
        if state.stock.is_none() && state.buyers + state.journaled == 0 {
            forgotten.push(row);
        }
    }
    Ok((on_sale, forgotten))
}

async fn report(findings: &mut Findings, mysql: &MySqlPool, forgotten: &[VoucherRow]) {
    for VoucherRow { voucher, stock, .. } in forgotten.iter().take(NAMED) {
        let orders = vouchers::count_orders(mysql, *voucher).await;
        let orders = orders.map_or_else(|_| "orders".to_owned(), |orders| counted(orders, "order"));
        findings.error(
            format!(
                "voucher {voucher} is inside its sale window, has {} and {orders} in MySQL, and nothing in Redis",
                counted(*stock, "unit")
            ),
            "nobody can buy it. Redis lost data, or it was never loaded: RUNBOOK, `Redis lost data`",
        );
    }
    let more = forgotten.len().saturating_sub(NAMED) as u64;
    if more > 0 {
        findings.error(
            format!("and so it is with {more} more"),
            "tidegate audit names all that came through Redis; RUNBOOK, `Redis lost data`",
        );
    }
}
