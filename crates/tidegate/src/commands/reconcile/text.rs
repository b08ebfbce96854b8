//! The result of a comparison, for people.

use tidegate_compare::{
    ComparisonReport, Difference, DifferenceCause, KindCount, RepairMethod, VoucherComparison, VoucherTotals,
    reconciled::DifferenceKind, text::counted,
};

use crate::output::table;

/// The text of a comparison: the totals and differences of each voucher, and whether both stores agree.
pub fn render(report: &ComparisonReport) -> String {
    let mut totals = table(&[
        "voucher",
        "Redis stock",
        "by its journal",
        "MySQL stock",
        "by its rows",
        "in flight",
        "dead",
    ]);
    for voucher in &report.vouchers {
        totals.add_row(row(&voucher.totals));
    }
    let mut parts = vec![totals.to_string()];
    parts.extend(report.vouchers.iter().filter_map(differences));
    parts.extend(report.counters_not_compared.iter().map(|not| format!("Not known: {}.", not.sentence())));
    parts.push(verdict(report));
    parts.join("\n\n")
}

fn row(totals: &VoucherTotals) -> [String; 7] {
    let known = |units: Option<i64>| units.map_or_else(|| "-".to_owned(), |units| units.to_string());
    let by_journal = match totals.redis.drift {
        Some(drift) => (totals.redis.stock.unwrap_or(0) - drift).to_string(),
        None if totals.redis.is_complete => "unsure".to_owned(),
        None => "not complete".to_owned(),
    };
    let by_rows = totals.mysql.stock.zip(totals.mysql.drift).map(|(stock, drift)| stock - drift);
    [
        totals.voucher.to_string(),
        known(totals.redis.stock),
        by_journal,
        known(totals.mysql.stock),
        known(by_rows),
        totals.open.in_flight_units.to_string(),
        totals.open.dead_units.to_string(),
    ]
}

fn differences(look: &VoucherComparison) -> Option<String> {
    let voucher = look.totals.voucher;
    let mut lines: Vec<String> = look.differences.iter().map(|count| kind(count, &look.totals)).collect();
    if let Some(why) = &look.totals.redis.unreadable {
        lines.push(format!(
            "  Redis could not be read: {why}; see docs/runbook/audit-fails.md#a-key-has-a-wrong-type"
        ));
    }
    if look.totals.redis.is_unsure {
        lines.push("  The journal changed too fast to be added up: run tidegate reconcile again".to_owned());
    }
    if look.totals.is_change_open {
        lines.push(
            "  An operator changed the stock during the comparison: to compare stocks, run tidegate reconcile again"
                .to_owned(),
        );
    }
    (!lines.is_empty()).then(|| format!("Voucher {voucher}:\n{}", lines.join("\n")))
}

fn kind(count: &KindCount, totals: &VoucherTotals) -> String {
    let KindCount { kind, total, units, first } = count;
    let what = sentence(*kind, *total, *units, totals);
    let shown: Vec<String> = first.iter().filter_map(one).collect();
    let list = if shown.is_empty() { String::new() } else { format!("\n    {}", shown.join("\n    ")) };
    let more = total.saturating_sub(first.len() as u64);
    let more = if more > 0 && !first.is_empty() { format!("\n    and {more} more") } else { String::new() };
    let repair =
        first.first().map_or_else(String::new, |it| format!("\n    to repair: {}", repair(it.repair)));
    let repair = if kind.is_failure() { repair } else { String::new() };
    format!("  {what}{list}{more}{repair}")
}

fn sentence(kind: DifferenceKind, total: u64, units: i64, totals: &VoucherTotals) -> String {
    let orders = counted(total, "order");
    let users = counted(total, "user");
    let counters = counted(total, "counter");
    let of = counted(units.unsigned_abs(), "unit");
    let more = if units > 0 { "more" } else { "fewer" };
    let stock = |stock: Option<i64>| stock.map_or_else(|| "none".to_owned(), |stock| stock.to_string());
    match kind {
        DifferenceKind::LostOrder => {
            format!("{orders} ({of}) admitted in Redis, but not in MySQL, waiting entries or dead letters")
        }
        DifferenceKind::LostEvent => {
            format!("{orders} with acknowledged events, such as payments, that MySQL has not recorded")
        }
        DifferenceKind::ReleaseUnknownToMysql => {
            format!("{orders} ({of}) released in Redis, and MySQL has neither a row nor a refusal")
        }
        DifferenceKind::NotAdmitted => {
            format!("{orders} ({of}) live in MySQL, and not in the journal in Redis")
        }
        DifferenceKind::NotReleased => {
            format!("{orders} ({of}) ended or refused in MySQL, and still admitted in Redis")
        }
        DifferenceKind::ReleasedAndLive => {
            format!("{orders} ({of}) released in Redis and live in MySQL: these units can be sold twice")
        }
        DifferenceKind::Mismatched => {
            format!("{orders} ({of}) whose row is of another user, voucher or quantity than was admitted")
        }
        DifferenceKind::ReleasedTwice => {
            format!("{orders} released more than once, by the events in MySQL: {of} too many")
        }
        DifferenceKind::StatusSetByOthers => {
            format!("{orders} with a status that another program set (this is no failure)")
        }
        DifferenceKind::BarredWithoutOrder => {
            format!("{users} marked as a buyer in Redis without a live order")
        }
        DifferenceKind::NotBarred => format!("{users} with a live order and not marked as a buyer in Redis"),
        DifferenceKind::RedisStockMismatch => format!(
            "The stock in Redis is {}: {of} {more} than by the journal. A person or another program changed the stock",
            stock(totals.redis.stock)
        ),
        DifferenceKind::LoadedMismatch => format!(
            "MySQL was loaded with {}, but the journal adds up to {}: {of} {more} in MySQL. The journal does not count \
             units of orders that MySQL refused as out of stock. The usual cause is a failover in which Redis lost orders",
            stock(totals.mysql.initial),
            stock(totals.redis.loaded)
        ),
        DifferenceKind::MysqlStockMismatch => format!(
            "The stock in MySQL is {}: {of} {more} than the loaded stock minus the live orders ({} - {})",
            stock(totals.mysql.stock),
            stock(totals.mysql.initial),
            totals.mysql.live_units
        ),
        DifferenceKind::CompactedMismatch => compacted(totals),
        DifferenceKind::LimitUsesMismatch => {
            format!("{counters} of limits with another value than the sum of the counted orders")
        }
        DifferenceKind::SlotsMismatch => {
            format!("{users} whose slots in Redis (numbers of live orders) differ from their live orders")
        }
        DifferenceKind::LimitPassed => {
            format!("{counters}: live orders exceed the limit, although the limit was not lowered")
        }
        DifferenceKind::SaleForgotten => {
            format!("The sale is on with {of} left in MySQL, but Redis has no stock: every order is refused")
        }
        DifferenceKind::Window => totals.window.map_or_else(String::new, |window| window.sentence()),
    }
}

/// The text about used orders that differ from the orders that were removed from the journal.
fn compacted(totals: &VoucherTotals) -> String {
    let (purged, used) = (totals.redis.purged.unwrap_or_default(), totals.mysql.used.unwrap_or_default());
    format!(
        "{} ({}) were removed from the journal as used orders, but MySQL has {} ({}) with the status used",
        counted(purged.used_orders, "order"),
        counted(purged.used_units.unsigned_abs(), "unit"),
        counted(used.orders, "order"),
        counted(used.units.unsigned_abs(), "unit"),
    )
}

/// The text about the order, user or counter of a difference. None: it is a difference of a stock.
fn one(difference: &Difference) -> Option<String> {
    let units = match difference.units.unsigned_abs() {
        0 => String::new(),
        units => format!(", {}", counted(units, "unit")),
    };
    let user = difference.user.map_or_else(|| "user unknown".to_owned(), |user| format!("user {user}"));
    let cause = cause(difference.cause).map_or_else(String::new, |cause| format!(": {cause}"));
    if let Some(counter) = &difference.counter {
        return Some(counter.text());
    }
    match difference.order {
        Some(order) => Some(format!("order {order}, {user}{units}{cause}")),
        None => difference.user.map(|user| format!("user {user}{cause}")),
    }
}

fn cause(cause: DifferenceCause) -> Option<&'static str> {
    match cause {
        DifferenceCause::Unknown => None,
        DifferenceCause::AcknowledgedAndNotWritten => Some(
            "its entry was acknowledged: MySQL went back in time, or another program acknowledged the entry",
        ),
        DifferenceCause::EntryIsGone => Some("the entry of the order is no longer in the stream"),
        DifferenceCause::NoAdmission => {
            Some("a producer appended the entry by XADD without an admission, or Redis lost data")
        }
        DifferenceCause::RedisWentBack => Some("Redis went back in time, or was emptied"),
        DifferenceCause::ChangedByHand => Some("another program changed the order in only one store"),
        DifferenceCause::LeftHalfDone => Some("a worker or a command died before it changed both stores"),
    }
}

fn repair(repair: RepairMethod) -> &'static str {
    match repair {
        RepairMethod::RunAgain => "handle all entries of the order again (tidegate reconcile --repair)",
        RepairMethod::RecordEvents => "handle the events of the order again (tidegate reconcile --repair)",
        RepairMethod::WriteCancelledRow => {
            "write a cancelled row without units to MySQL (tidegate reconcile --repair)"
        }
        RepairMethod::Admit => "restore the admission in Redis (tidegate reconcile --repair)",
        RepairMethod::Release => "release the order in Redis (tidegate reconcile --repair)",
        RepairMethod::Unbar => "let the user order again (tidegate reconcile --repair)",
        RepairMethod::Bar => "mark the user as a buyer in Redis (tidegate reconcile --repair)",
        RepairMethod::MoveStock => {
            "change the stock in Redis by the difference (tidegate reconcile --repair)"
        }
        RepairMethod::SetCounter => {
            "set the counter to the sum of the counted orders (tidegate reconcile --repair)"
        }
        RepairMethod::Rebuild => {
            "restore Redis from MySQL, the stream and the dead letters (tidegate rebuild)"
        }
        RepairMethod::ByHand => "an operator has to decide; see docs/runbook/stores-differ.md",
    }
}

fn verdict(report: &ComparisonReport) -> String {
    let seconds = report.took_ms as f64 / 1000.0;
    let compared = format!(
        "{} of Redis compared with {} of MySQL in {seconds:.1} s",
        counted(report.redis_orders, "order"),
        counted(report.mysql_orders, "row")
    );
    let is_unsure = |voucher: &&VoucherComparison| voucher.totals.redis.is_unsure;
    let differs = report.counts().keys().any(|kind| kind.is_failure());
    let is_unread = report.vouchers.iter().any(|voucher| voucher.totals.redis.unreadable.is_some());
    let unsure = report.vouchers.iter().filter(is_unsure).count();
    if report.is_clean() {
        format!("It agrees: {compared}.")
    } else if !differs && !is_unread {
        let unsure = counted(unsure as u64, "voucher");
        format!(
            "It agrees except for the stock of {unsure}, whose journal changed too fast: {compared}. Compare again"
        )
    } else {
        format!("It does NOT agree: {compared}. See docs/runbook/stores-differ.md")
    }
}
