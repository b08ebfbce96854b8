//! Checks whether a sale may begin: its stock, its window and its limits in both stores, the workers, the memory of
//! Redis, and the certificate of the gate.

mod cert;
mod fleet;
mod limits;
mod memory;
mod stock;
mod window;

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_compare::{
    text::error_chain,
    windows::{WindowMismatch, mismatches},
};
use tidegate_orders::{
    VoucherId,
    records::vouchers::upcoming::{UpcomingVoucher, upcoming},
    scripts::{SaleWindow, StockChange, VoucherState},
};
use tidegate_stream::server_time_ms;
use tokio_util::sync::CancellationToken;

use super::{DoctorReport, windows};
use crate::{
    InvalidInput, Stores, SystemSettings,
    finding::Findings,
    vouchers::{self, VoucherStores},
    within::in_time,
};

/// The time before its begin from which on a sale is checked if no voucher is named.
const SOON: Duration = Duration::from_secs(3600);
/// The sales that are checked at most, those that begin first.
const MOST_SALES: usize = 100;

/// The request to check sales before they begin.
#[derive(Clone, Debug)]
pub struct BeforeSaleRequest {
    /// The voucher of the sale; None: all vouchers that begin within one hour.
    pub voucher: Option<VoucherId>,
    /// The age of the oldest unread entry above which sales become busy; None: sales never become busy.
    pub busy_after: Option<Duration>,
    /// The time when the certificate of the gate expires, or the reason why this time is unknown. None: this machine has
    /// no certificate of a gate.
    pub certificate: Option<Result<Timestamp, String>>,
}

/// The result of checking sales before they begin.
#[derive(Debug, Serialize)]
pub struct BeforeSaleReport {
    /// The sales that were checked.
    pub sales: Vec<UpcomingSale>,
    /// The findings of all checks: first the findings about each sale, then those about the servers.
    #[serde(flatten)]
    pub report: DoctorReport,
}

/// A sale that was checked, with its units and its window.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UpcomingSale {
    /// The voucher of the sale.
    pub voucher: VoucherId,
    /// The number of units that can be sold.
    pub units: i64,
    /// The window of the sale: from Redis, or if Redis has no times of the sale, from MySQL.
    #[serde(flatten)]
    pub window: SaleWindow,
    /// The number of seconds until the sale begins; 0: the sale has begun.
    pub begins_in_s: u64,
}

/// Checks whether these sales may begin, and changes nothing. A store that does not answer is a finding.
///
/// # Errors
/// If neither store knows the voucher, or the stores belong to other partitions.
pub async fn check(
    settings: &SystemSettings,
    request: &BeforeSaleRequest,
) -> anyhow::Result<BeforeSaleReport> {
    let mut parts = ["sale", "redis", "gate"].map(Findings::of);
    let sales = match check_parts(settings, request, &mut parts).await {
        Ok(sales) => sales,
        Err(error) if error.is::<InvalidInput>() => return Err(error),
        Err(error) => {
            parts[0].error(
                format!("Failed to check whether the sale may begin: {}", error_chain(&error)),
                "run tidegate doctor, which checks both servers",
            );
            Vec::new()
        }
    };
    Ok(BeforeSaleReport { sales, report: DoctorReport::of(parts) })
}

/// Checks all parts, and adds the findings about sales, Redis and the gate to the findings in this order.
async fn check_parts(
    settings: &SystemSettings,
    request: &BeforeSaleRequest,
    [of_sales, of_redis, of_gate]: &mut [Findings; 3],
) -> anyhow::Result<Vec<UpcomingSale>> {
    let stores = VoucherStores::connect(&Stores::new(settings)).await?;
    let now_ms = i64::try_from(server_time_ms(stores.redis.pool()).await?)?;
    let now = Timestamp::from_millisecond(now_ms)?;
    let vouchers = match request.voucher {
        Some(voucher) => vec![voucher],
        None => soon(settings, of_sales, &stores).await?,
    };
    let compared = mismatches((&stores.redis, &stores.mysql), &vouchers, &CancellationToken::new()).await;
    let compared = compared.context("Failed to compare the windows of sales")?;
    let mut checked = Vec::new();
    for voucher in vouchers {
        let mismatch = compared.iter().find(|mismatch| mismatch.voucher == voucher);
        checked.extend(check_sale(settings, of_sales, &stores, (voucher, mismatch), now).await?);
    }
    let units = checked.iter().map(|sale| sale.units.unsigned_abs()).sum();
    if !checked.is_empty() {
        fleet::check(settings, of_redis, &stores.redis, (units, request.busy_after)).await;
        memory::check(of_redis, &stores.redis, units).await;
        cert::check(of_gate, request.certificate.as_ref(), &checked, now);
    }
    Ok(checked)
}

/// Checks one sale. Returns None if the voucher is delisted or cannot be read.
async fn check_sale(
    settings: &SystemSettings,
    findings: &mut Findings,
    stores: &VoucherStores,
    (voucher, mismatch): (VoucherId, Option<&WindowMismatch>),
    now: Timestamp,
) -> anyhow::Result<Option<UpcomingSale>> {
    let read = Sale::read(stores, voucher, now);
    let sale = match in_time("MySQL", settings.mysql.statement_timeout, read).await {
        Ok(sale) => sale,
        Err(error) if error.is::<InvalidInput>() => return Err(error),
        Err(error) => {
            findings.error(
                format!("voucher {voucher} cannot be read: {}", error_chain(&error)),
                "correct what the error names; tidegate doctor checks both servers",
            );
            return Ok(None);
        }
    };
    if sale.is_delisted() {
        findings.error(
            format!("voucher {voucher} is delisted: its sale has ended forever"),
            "sell these units under another voucher id; see docs/delist.md",
        );
        return Ok(None);
    }
    stock::report(findings, &sale, &settings.calendar);
    match mismatch {
        Some(mismatch) => windows::report(findings, mismatch),
        None => window::report(findings, &sale),
    }
    windows::check_time_zone(settings, findings, &stores.mysql, Some(voucher)).await;
    limits::check(findings, stores, &sale, &settings.calendar).await;
    Ok(Some(sale.checked()))
}

/// Reads the vouchers that begin soon, the next to begin first.
async fn soon(
    settings: &SystemSettings,
    findings: &mut Findings,
    stores: &VoucherStores,
) -> anyhow::Result<Vec<VoucherId>> {
    let read = async { Ok(upcoming(&stores.mysql, settings.partition(), SOON).await?) };
    let found = in_time("MySQL", settings.mysql.statement_timeout, read).await;
    let mut found = found.context("Failed to read the vouchers that begin within one hour")?;
    found.retain(|voucher| !voucher.has_begun);
    found.sort_by_key(|voucher| voucher.row.begin_ms);
    if found.len() > MOST_SALES {
        findings.not_read(
            format!("only the next {MOST_SALES} of {} sales were checked", found.len()),
            "check another sale with --before-sale VOUCHER",
        );
    }
    Ok(found.iter().take(MOST_SALES).map(|voucher| voucher.row.voucher).collect())
}

/// A sale with its data in both stores.
#[derive(Debug)]
struct Sale {
    voucher: VoucherId,
    redis: VoucherState,
    /// The row in MySQL; None: MySQL has no row of the voucher.
    row: Option<UpcomingVoucher>,
    /// The number of orders in MySQL, including cancelled orders.
    orders: i64,
    /// The last change of the stock by an operator.
    change: Option<StockChange>,
    now: Timestamp,
}

impl Sale {
    async fn read(stores: &VoucherStores, voucher: VoucherId, now: Timestamp) -> anyhow::Result<Self> {
        let redis = stores.state(voucher).await?;
        let change = stores.redis.sales().read_change(voucher).await;
        let change = change.context("Failed to read the last change of the stock in Redis")?;
        let row = stores.row(voucher).await?;
        if row.is_none() && !redis.has_keys() {
            return Err(vouchers::unknown(voucher).into());
        }
        let orders = stores.records().counts().of_voucher(voucher).await;
        let orders = orders.context("Failed to count the orders of the voucher")?;
        let row = row.map(|row| {
            let mut row = UpcomingVoucher::unbegun(row);
            row.has_begun = row.row.window().begin.is_none_or(|begin| begin <= now);
            row.has_orders = orders > 0;
            row
        });
        Ok(Self { voucher, redis, row, orders, change, now })
    }

    /// The window of the sale: from Redis, or if Redis has no times of the sale, from MySQL.
    fn window(&self) -> SaleWindow {
        if self.redis.stock.is_some() && self.redis.window.has_bounds() {
            return self.redis.window;
        }
        let window = self.row.as_ref().map(|it| it.row.window());
        window.filter(|window| !window.is_default_of_table()).unwrap_or_default()
    }

    fn is_delisted(&self) -> bool {
        let in_mysql = self.row.as_ref().and_then(|it| it.row.delisted_ms);
        self.redis.delisted_ms.or(in_mysql).is_some()
    }

    /// Whether the voucher was ever sold.
    const fn is_sold(&self) -> bool {
        self.orders > 0 || self.redis.buyers > 0
    }

    /// The duration from now until a time; zero if the time is over.
    fn until(&self, time: Timestamp) -> Duration {
        time.duration_since(self.now).try_into().unwrap_or_default()
    }

    fn checked(&self) -> UpcomingSale {
        let in_mysql = self.row.as_ref().map(|it| it.row.stock);
        let window = self.window();
        UpcomingSale {
            voucher: self.voucher,
            units: in_mysql.or(self.redis.stock).unwrap_or_default().max(0),
            window,
            begins_in_s: window.begin.map_or(0, |begin| self.until(begin).as_secs()),
        }
    }
}
