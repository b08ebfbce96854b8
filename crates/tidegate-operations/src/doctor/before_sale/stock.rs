//! The check of the stock of a sale in both stores.

use jiff::{SignedDuration, Timestamp};
use tidegate_compare::text::{counted, span};
use tidegate_orders::{VoucherId, records::vouchers::upcoming::UpcomingVoucher, scripts::ChangeState};

use super::Sale;
use crate::{
    CalendarSettings, calendar::is_loaded_later, finding::Findings, vouchers::stock_change::added_or_taken,
};

/// The time within which workers load a voucher when it is due. They look every two seconds.
const LOADED_WITHIN: SignedDuration = SignedDuration::from_secs(30);

/// Reports whether both stores have the same units, and whether Redis will sell them.
pub(super) fn report(findings: &mut Findings, sale: &Sale, calendar: &CalendarSettings) {
    let voucher = sale.voucher;
    let Some(row) = &sale.row else {
        let what = format!("MySQL has no row of voucher {voucher}: every order would become a dead letter");
        return findings.error(what, show(voucher));
    };
    report_units(findings, sale, row, calendar);
    if sale.redis.pause.is_paused() {
        findings.error(
            format!("the sale of voucher {voucher} is paused: every order would be refused"),
            format!("tidegate resume --voucher {voucher}"),
        );
    }
    if let Some(change) = sale.change.as_ref().filter(|change| change.state == ChangeState::Open) {
        findings.error(
            format!(
                "a change of the stock of voucher {voucher} is unfinished: {} {} by {} at {}",
                counted(change.units.abs(), "unit"),
                added_or_taken(change.units),
                change.by,
                change.at
            ),
            "find the command with tidegate log, and run it again: this completes the change",
        );
    }
}

fn report_units(findings: &mut Findings, sale: &Sale, row: &UpcomingVoucher, calendar: &CalendarSettings) {
    let (voucher, units) = (sale.voucher, row.row.stock);
    if units <= 0 && !sale.is_sold() {
        return findings.error(
            format!("voucher {voucher} has no units in MySQL, so nothing can be sold"),
            "set the stock in its row before you load it; if it is loaded, use tidegate voucher add",
        );
    }
    let is_late = |at: Timestamp| sale.now.duration_since(at) > LOADED_WITHIN;
    match (loaded_at(sale, row, calendar), sale.redis.stock) {
        (Some(at), None) if is_late(at) => findings.error(
            format!(
                "workers should have loaded voucher {voucher} at {at} (calendar.warm_up), but Redis has no stock of it"
            ),
            format!("read the logs of the workers, or load it now: {}", load(sale, units)),
        ),
        (Some(at), _) if !is_late(at) => findings.ok(format!(
            "voucher {voucher} waits: workers give Redis its {} at {at} (in {}, calendar.warm_up)",
            counted(units, "unit"),
            span(sale.until(at))
        )),
        (_, None) if row.has_orders => findings.error(
            format!("Redis has lost the stock of voucher {voucher}, which has {}", sold(sale)),
            "do not load it again; see docs/runbook/redis-lost-data.md",
        ),
        (_, None) => findings.error(
            format!("Redis has no stock of voucher {voucher}: every order would be refused"),
            load(sale, units),
        ),
        (_, Some(offered)) => compare(findings, sale, units, offered),
    }
}

fn compare(findings: &mut Findings, sale: &Sale, units: i64, offered: i64) {
    let voucher = sale.voucher;
    let (more, sold) = (offered - units, sold(sale));
    let difference = counted(more.abs(), "unit");
    if more > 0 {
        findings.error(
            format!(
                "Redis offers {difference} of voucher {voucher} more than MySQL has: workers would refuse their orders"
            ),
            show(voucher),
        );
    } else if more < 0 && !sale.is_sold() {
        findings.warning(
            format!("Redis offers {difference} of voucher {voucher} less than MySQL has, but {sold}"),
            show(voucher),
        );
    } else if more < 0 {
        findings.ok(format!(
            "voucher {voucher}: Redis has {}, and {difference} more wait to be written; {sold}",
            counted(offered, "unit")
        ));
    } else {
        findings.ok(format!("voucher {voucher}: both stores have {}; {sold}", counted(units, "unit")));
    }
}

/// Whether Redis does not have the voucher yet, and workers load it.
pub(super) fn waits_for_workers(sale: &Sale, calendar: &CalendarSettings) -> bool {
    let row = sale.row.as_ref().filter(|_| sale.redis.stock.is_none());
    row.is_some_and(|row| loaded_at(sale, row, calendar).is_some())
}

/// The time when workers give Redis the stock of the row; None: they do not.
fn loaded_at(sale: &Sale, row: &UpcomingVoucher, calendar: &CalendarSettings) -> Option<Timestamp> {
    let (window, in_redis) = (row.row.window(), sale.redis.stock);
    let differs = in_redis != Some(row.row.stock) && window.can_open();
    let is_loaded = differs && is_loaded_later(row, in_redis);
    window.begin.filter(|_| is_loaded)?.checked_sub(calendar.warm_up?).ok()
}

fn sold(sale: &Sale) -> String {
    if !sale.is_sold() {
        return "nothing is sold yet".to_owned();
    }
    let orders = counted(sale.orders, "order");
    format!("{orders} in MySQL and {} in Redis", counted(sale.redis.buyers, "buyer"))
}

fn show(voucher: VoucherId) -> String {
    format!("run tidegate voucher show --voucher {voucher}, which says what to do")
}

/// The command that loads the voucher with the times of its row.
fn load(sale: &Sale, units: i64) -> String {
    let window = sale.window();
    let begin = window.begin.filter(|begin| *begin > sale.now);
    let bounds = [("--begin", begin), ("--end", window.end)];
    let bounds = bounds.map(|(flag, time)| time.map_or_else(String::new, |time| format!(" {flag} {time}")));
    format!("tidegate voucher load --voucher {} --stock {units}{}", sale.voucher, bounds.concat())
}
