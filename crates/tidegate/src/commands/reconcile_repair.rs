//! The plan and the report of `tidegate reconcile --repair`, for people.

use tidegate_compare::text::{counted, printable};
use tidegate_orders::VoucherId;
use tidegate_reconcile::MOST_REPAIRED;
use tidegate_reconcile::{
    PlanCounts, RepairCounts, RepairPlan, RepairReport, Returned, ReturnedReason, Unrepaired,
    UnrepairedReason,
};

use super::rebuild::raised;
use crate::operator::{PlanText, ReportText};

impl PlanText for RepairPlan {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for voucher in &self.vouchers {
            let parts = planned(voucher.repaired);
            let moves = match voucher.stock_moves {
                0 => "the stock in Redis does not change".to_owned(),
                units => format!("the stock in Redis changes by {units:+}"),
            };
            match parts.is_empty() {
                true => lines.push(format!("voucher {}: nothing can be repaired now", voucher.voucher)),
                false => lines.push(format!("voucher {}: {}; {moves}", voucher.voucher, parts.join(", "))),
            }
            lines.extend(voucher.left.iter().map(|left| unrepaired(voucher.voucher, left)));
        }
        lines.extend(beyond(self.beyond));
        if lines.is_empty() { "Both stores agree.".to_owned() } else { lines.join("\n") }
    }
}

/// The line about differences that exceed the limit of one repair.
fn beyond(differences: u64) -> Option<String> {
    let differences = Some(differences).filter(|differences| *differences > 0)?;
    let differences = counted(differences, "more difference");
    Some(format!(
        "{differences} left: one repair covers at most {MOST_REPAIRED}. Run the same command again afterwards"
    ))
}

/// The phrases about the planned repairs of a voucher.
fn planned(counts: PlanCounts) -> Vec<String> {
    let PlanCounts {
        run_again,
        events_again,
        cancelled_rows,
        admitted,
        released,
        barred,
        unbarred,
        counters,
        loaded,
        drift,
    } = counts;
    let orders = [
        (run_again, "order", "to handle again"),
        (events_again, "order", "with events to handle again"),
        (cancelled_rows, "order", "to be written as cancelled to MySQL"),
        (admitted, "admission", "to be restored"),
        (released, "order", "to be released"),
        (barred, "user", "to be marked as a buyer"),
        (unbarred, "user", "to be allowed to order again"),
        (counters, "counter", "to be set to the sum of the counted orders"),
    ];
    let orders = orders.into_iter().filter(|(count, ..)| *count > 0);
    let mut parts: Vec<String> =
        orders.map(|(count, noun, what)| format!("{} {what}", counted(count, noun))).collect();
    if loaded != 0 {
        parts.push(format!("{loaded:+} {} to be noted as loaded", unit(loaded)));
    }
    if drift != 0 {
        parts.push(format!("{drift:+} {} that the journal does not explain, to be taken back", unit(drift)));
    }
    parts
}

fn unit(units: i64) -> &'static str {
    if units.abs() == 1 { "unit" } else { "units" }
}

/// The word that a value has in JSON.
fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

fn unrepaired(voucher: VoucherId, left: &Unrepaired) -> String {
    let why = match left.why {
        UnrepairedReason::ByHand => "an operator has to decide",
        UnrepairedReason::NoCompleteJournal => {
            "Redis holds no complete journal, so its stock is not repaired"
        }
        UnrepairedReason::Forgotten => "Redis has lost the sale, or a key of the sale cannot be read",
        UnrepairedReason::ChangeIsOpen => "an operator's change of the stock is unfinished",
        UnrepairedReason::NotAddedUp => "the journal changed too fast to be added up",
        UnrepairedReason::NotAllCompared => "with --since, not all orders of the voucher were compared",
        UnrepairedReason::Unreadable => "the user or the units of the order cannot be read",
    };
    let command = left.why.command(voucher).map_or_else(String::new, |command| format!(": {command}"));
    let (kind, units) = (word(left.kind), counted(left.units, "unit"));
    format!("  not repaired: {} of {kind} ({units}); {why}{command}", counted(left.total, "difference"))
}

impl ReportText for RepairReport {
    fn text(&self) -> String {
        let mut lines = vec![match done(self.done).as_slice() {
            [] => format!("repair {}: nothing was repaired", self.id),
            parts => format!("repair {}: {}", self.id, parts.join(", ")),
        }];
        if self.done.returned > 0 {
            lines
                .push(format!("{} left for the next comparison:", counted(self.done.returned, "difference")));
            lines.extend(self.returned.iter().take(10).map(returned));
        }
        lines.extend(raised(&self.order_ids));
        lines.extend(self.order_ids_refused.clone());
        lines.extend(self.counters_not_compared.iter().map(|not| format!("not known: {}", not.sentence())));
        if self.left > 0 {
            lines.push(format!("{} left unrepaired, as planned", counted(self.left, "difference")));
        }
        lines.extend(beyond(self.beyond));
        lines.join("\n")
    }
}

fn done(counts: RepairCounts) -> Vec<String> {
    let orders = [
        (counts.created, "order", "written again"),
        (counts.refused, "order", "refused by MySQL"),
        (counts.events, "event", "recorded again"),
        (counts.cancelled_rows, "order", "written as cancelled to MySQL"),
        (counts.appended, "entry", "appended again"),
        (counts.redis.admitted, "admission", "restored"),
        (counts.redis.released, "order", "released"),
        (counts.redis.barred, "user", "marked as a buyer again"),
        (counts.redis.unbarred, "user", "allowed to order again"),
        (counts.redis.counters, "counter", "set to the sum of the counted orders"),
    ];
    let orders = orders.into_iter().filter(|(count, ..)| *count > 0);
    let mut parts: Vec<String> =
        orders.map(|(count, noun, what)| format!("{} {what}", counted(count, noun))).collect();
    if counts.redis.stock_moved != 0 {
        parts.push(format!("the stock in Redis changed by {:+}", counts.redis.stock_moved));
    }
    parts
}

fn returned(returned: &Returned) -> String {
    let Returned { voucher, order, user, why } = returned;
    let what = match (order, user, why) {
        (_, _, ReturnedReason::CounterMoved(field)) => format!("counter {field}"),
        (Some(order), ..) => format!("order {order}"),
        (None, Some(user), _) => format!("user {user}"),
        (None, None, _) => "the stock".to_owned(),
    };
    let why = match why {
        ReturnedReason::Moved | ReturnedReason::CounterMoved(_) => "changed meanwhile".to_owned(),
        ReturnedReason::InFlight => "is in flight".to_owned(),
        ReturnedReason::Overtaken => "another repair ran meanwhile".to_owned(),
        ReturnedReason::JournalIsNew => "the journal was replaced meanwhile, or is incomplete".to_owned(),
        ReturnedReason::StockChanged => "an operator changed the stock meanwhile".to_owned(),
        ReturnedReason::StockMoved => "the stock changed, because MySQL refused orders meanwhile".to_owned(),
        ReturnedReason::NoStock => "Redis has no stock of the voucher".to_owned(),
        ReturnedReason::Held => {
            "another session locks the rows, or an older order comes first; workers retry the order"
                .to_owned()
        }
        ReturnedReason::Rejected(error) => format!("cannot be written: {}", printable(error)),
    };
    format!("  voucher {voucher}, {what}: {why}")
}

#[cfg(test)]
mod tests {
    use tidegate_compare::reconciled::DifferenceKind;
    use tidegate_compare::{Difference, DifferenceCause, RepairMethod};
    use tidegate_operations::{Ending, Report};
    use tidegate_orders::scripts::RepairGuard;
    use tidegate_reconcile::{StockTotals, VoucherFindings};

    use super::*;

    fn plan(beyond: u64) -> RepairPlan {
        let voucher = 7.try_into().unwrap();
        let difference = |kind, repair, units| Difference {
            kind,
            voucher,
            order: 42.try_into().ok(),
            user: 9.try_into().ok(),
            units,
            cause: DifferenceCause::Unknown,
            repair,
            counter: None,
            status: None,
            entry: None,
            note: None,
        };
        let totals = StockTotals {
            redis_drift: 5,
            loaded: 10,
            mysql_stock: 10,
            initial: Some(10),
            live_units: 0,
            is_change_open: false,
        };
        let differences = vec![
            difference(DifferenceKind::LostOrder, RepairMethod::RunAgain, 1),
            difference(DifferenceKind::RedisStockMismatch, RepairMethod::MoveStock, 5),
        ];
        let (guard, totals) = (RepairGuard::default(), Some(totals));
        let findings = VoucherFindings { is_partial: false, voucher, guard, totals, differences };
        RepairPlan::new(vec![findings], beyond)
    }

    #[test]
    fn a_plan_says_what_is_repaired_and_what_to_type_for_the_rest() {
        assert_eq!(
            plan(0).text(),
            "voucher 7: 1 order to handle again; the stock in Redis does not change\n  not repaired: 1 difference of \
             redis_stock_mismatch (5 units); Redis holds no complete journal, so its stock is not repaired: tidegate \
             rebuild --voucher 7"
        );
    }

    #[test]
    fn a_report_says_what_was_done_and_what_was_not_and_why() {
        let mut report = RepairReport::new(&plan(0));
        report.done = RepairCounts { created: 2, events: 1, returned: 1, ..report.done };
        report.done.redis.stock_moved = -5;
        let (voucher, order) = (7.try_into().unwrap(), 42.try_into().ok());
        report.returned.push(Returned { voucher, order, user: None, why: ReturnedReason::Moved });
        let text = report.text();
        let expected = "2 orders written again, 1 event recorded again, the stock in Redis changed by -5\n1 difference \
                        left for the next comparison:\n  voucher 7, order 42: changed meanwhile\n1 difference left unrepaired, as planned";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn what_one_repair_does_not_take_is_counted_with_what_to_type() {
        let more = "12 more differences left: one repair covers at most 300000. Run the same command again \
                    afterwards";
        let (plan, mut report) = (plan(12), RepairReport::new(&plan(12)));
        report.left = 0;
        assert!(plan.text().ends_with(more), "{}", plan.text());
        assert!(report.text().ends_with(more) && report.ending() == Ending::Left, "{}", report.text());
    }
}
