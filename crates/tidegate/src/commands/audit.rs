//! `tidegate audit`: counts every order on both sides.

use std::time::Instant;

use clap::Args;
use serde::Serialize;
use tidegate_orders::{
    Keys, VoucherId,
    audit::{AuditReport, VoucherAudit, audit},
};

use crate::{
    config::Settings,
    connect,
    exit::Exit,
    output::{OutputArgs, counted, table, tell},
};

const EXAMPLES: &str = "\
Examples:
  tidegate audit
  tidegate audit --voucher 10
  tidegate audit --json | jq .failures

Follows every order id that Redis admitted: written, given back, dead, in flight, or lost. It may run at any time,
changes nothing, and exits with 1 when an order is lost, doubled or oversold. Vouchers that MySQL does not know are
found by their journals, for which all keys of Redis are looked through; --voucher saves that.

A surplus is what Redis offers beyond what MySQL will have once everything in flight and dead is written: negative
after refusals for want of stock are given back, and no failure, because MySQL decides.";

/// What `tidegate audit` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AuditArgs {
    /// Audit this voucher only
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Audit {
    holds: bool,
    failures: Vec<String>,
    took_ms: u128,
    #[serde(flatten)]
    report: AuditReport,
}

/// Audits, prints what was found, and answers whether it holds.
///
/// # Errors
/// When a store cannot be read.
pub async fn run(settings: &Settings, args: &AuditArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = (connect::redis(settings).await?, connect::mysql(settings).await?);
    let keys = Keys::new(settings.keys.clone());
    let began = Instant::now();
    let report = audit(&redis, &mysql, &keys, &settings.stream_names(), args.voucher).await?;
    if let Some(voucher) = args.voucher.filter(|_| report.vouchers.iter().all(is_unknown)) {
        tell(&format!(
            "voucher {voucher} is unknown: MySQL has no row of it, and Redis has admitted no order for it"
        ));
        return Ok(Exit::No);
    }
    let failures = report.failures();
    let audit = Audit { holds: failures.is_empty(), failures, took_ms: began.elapsed().as_millis(), report };
    args.output.print(&audit, render)?;
    Ok(if audit.holds { Exit::Ok } else { Exit::No })
}

/// Neither side has anything of it: most likely a typo, and no reason for a verdict that all is well.
fn is_unknown(voucher: &VoucherAudit) -> bool {
    voucher.stock.is_none() && voucher.admitted + voucher.live_orders + voucher.cancelled_orders == 0
}

fn render(audit: &Audit) -> String {
    format!("{}\n\n{} ({:.1} s)", text(&audit.report), verdict(audit), audit.took_ms as f64 / 1000.0)
}

/// The tables, one row a voucher: the fates of its orders, then its units.
fn text(report: &AuditReport) -> String {
    let mut orders =
        table(&["voucher", "admitted", "written", "given back", "dead", "in flight", "lost", "wrong"]);
    let mut units =
        table(&["voucher", "live orders", "units", "loaded", "MySQL stock", "Redis stock", "surplus"]);
    for voucher in &report.vouchers {
        orders.add_row(fates(voucher));
        units.add_row(stocks(voucher));
    }
    let mut parts = vec![orders.to_string(), units.to_string()];
    let unreadable = &report.unreadable;
    if unreadable.total > 0 {
        let (total, dead, lost) = (unreadable.total, unreadable.dead, unreadable.lost.total);
        let in_flight = unreadable.in_flight;
        parts.push(format!("Unreadable entries: {total} ({dead} dead, {in_flight} in flight, {lost} lost)"));
    }
    let unknown: u64 = report.vouchers.iter().map(|voucher| voucher.unknown_orders).sum();
    if unknown > 0 {
        parts.push(format!(
            "MySQL holds {} that Redis does not know: taken over, trimmed without a journal, or forgotten by Redis.",
            counted(unknown, "order")
        ));
    }
    for VoucherAudit { voucher, half_cancelled, .. } in &report.vouchers {
        if half_cancelled.total > 0 {
            let orders = counted(half_cancelled.total, "order");
            let (are, ids) = if half_cancelled.total == 1 { ("is", "id") } else { ("are", "ids") };
            parts.push(format!(
                "Of voucher {voucher}, {orders} {are} cancelled in MySQL and not given back to Redis ({ids} {half_cancelled}). \
                 `tidegate order show` names the letter of each; `tidegate dead cancel LETTER` gives it back."
            ));
        }
    }
    parts.join("\n\n")
}

/// Plain sentences: that it holds, or everything that is wrong.
fn verdict(audit: &Audit) -> String {
    if audit.holds {
        let admitted: u64 = audit.report.vouchers.iter().map(|voucher| voucher.admitted).sum();
        let orders = counted(admitted, "admitted order");
        return format!("It holds: {orders}, none lost, none doubled, nothing oversold.");
    }
    let lines: Vec<String> = audit.failures.iter().map(|failure| format!("  - {failure}")).collect();
    format!("It does NOT hold:\n{}", lines.join("\n"))
}

fn fates(voucher: &VoucherAudit) -> [String; 8] {
    let wrong = voucher.mismatched.total + voucher.doubled_back.total + voucher.shared_slots.total;
    [
        voucher.voucher.to_string(),
        voucher.admitted.to_string(),
        voucher.written.to_string(),
        voucher.released.to_string(),
        voucher.dead.to_string(),
        voucher.in_flight.to_string(),
        voucher.lost.total.to_string(),
        wrong.to_string(),
    ]
}

fn stocks(voucher: &VoucherAudit) -> [String; 7] {
    let known = |units: Option<i64>| units.map_or_else(|| "-".to_owned(), |units| units.to_string());
    [
        voucher.voucher.to_string(),
        voucher.live_orders.to_string(),
        voucher.live_units.to_string(),
        known(voucher.initial_stock),
        known(voucher.stock),
        known(voucher.redis_stock),
        known(voucher.redis_surplus()),
    ]
}
