//! The failures that an audit found, one sentence each.

use super::{AuditReport, VoucherAudit};
use crate::{
    counts::{LISTED, Offenders},
    limit_counters::CounterDifference,
    text::WRONG_TYPE,
};

impl AuditReport {
    /// The sentences about all failures that the audit found. If there are none, the audit passes.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.vouchers.iter().flat_map(VoucherAudit::failures).collect();
        failures.extend(self.counters.iter().take(LISTED).map(CounterDifference::sentence));
        let more = self.counters.len().saturating_sub(LISTED);
        if more > 0 {
            failures.push(format!("{more} more limit counters are wrong or above their limits"));
        }
        let Offenders { total, .. } = self.unreadable.lost;
        if total > 0 {
            let what = either(total, "entry was acknowledged and is", "entries were acknowledged and are");
            let lost = &self.unreadable.lost;
            let doc = "docs/runbook/dead-letters.md#unreadable-entries";
            failures.push(format!("{total} unreadable {what} not among the dead letters: {lost}; see {doc}"));
        }
        failures
    }
}

impl VoucherAudit {
    /// The sentences about the failures that the audit found for one voucher.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let wrong_keys = self.offences.wrong_keys.first.iter();
        let failures = self.order_failures().into_iter().chain(self.stock_failures());
        let failures = failures
            .chain(wrong_keys.map(|what| format!("{what}; see {WRONG_TYPE}")))
            .chain(self.oversell_failure())
            .chain(self.journal_failure())
            .chain(self.forgotten_failure())
            .chain(self.window.map(|window| format!("{}; see docs/calendar.md", window.sentence())));
        failures.map(|what| format!("voucher {}: {what}", self.voucher)).collect()
    }

    fn order_failures(&self) -> Vec<String> {
        let offences = [
            (&self.offences.lost.orders, "admitted order is lost", "admitted orders are lost"),
            (
                &self.offences.mismatched,
                "order in MySQL differs from the admitted order with the same id",
                "orders in MySQL differ from the admitted orders with the same ids",
            ),
            (
                &self.offences.not_released,
                "order was refused, but its units are not back in the stock in Redis",
                "orders were refused, but their units are not back in the stock in Redis",
            ),
            (
                &self.offences.lost_events,
                "order has acknowledged events that are missing in MySQL",
                "orders have acknowledged events that are missing in MySQL",
            ),
            (
                &self.offences.doubled_back,
                "live order was released in Redis, so its units are on sale again",
                "live orders were released in Redis, so their units are on sale again",
            ),
            (
                &self.offences.shared_slots,
                "user/slot pair has more than one live order, which the unique key should prevent",
                "user/slot pairs have more than one live order, which the unique key should prevent",
            ),
            (
                &self.offences.contradictory.orders,
                "order is neither live nor cancelled: its columns status and slot contradict each other",
                "orders are neither live nor cancelled: their columns status and slot contradict each other",
            ),
        ];
        let offences = offences.into_iter().filter(|(offenders, ..)| offenders.total > 0);
        let sentence = |(offenders, one, many): (&Offenders, _, _)| {
            format!("{} {}: {offenders}", offenders.total, either(offenders.total, one, many))
        };
        offences.map(sentence).collect()
    }

    fn stock_failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let Some(stock) = self.stocks.stock else { return failures };
        if stock < 0 {
            failures.push(format!("the stock in MySQL is negative: {stock}"));
        }
        let Some(initial) = self.stocks.initial_stock else { return failures };
        if self.rows.live_units > initial {
            failures.push(format!("oversold: live orders take {} of {initial} units", self.rows.live_units));
        }
        let left = initial - self.rows.live_units;
        if self.stocks.mysql_drift.is_some_and(|units| units != 0) {
            failures.push(format!(
                "the stock in MySQL is {stock}, but should be {}: {initial} loaded units minus {} units of live orders",
                left, self.rows.live_units
            ));
        }
        failures
    }

    fn oversell_failure(&self) -> Option<String> {
        let risk = self.stocks.oversell_risk_at_least.filter(|risk| *risk > 0)?;
        let units = either(risk.unsigned_abs(), "unit", "units");
        Some(format!(
            "Redis offers {risk} {units} or more that MySQL does not have: orders for these units are \
             refused later{}; see docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong",
            self.uncertain_oversell_risk(risk)
        ))
    }

    /// The remark about the oversell risk in the table, if that risk is above the certain one.
    fn uncertain_oversell_risk(&self, certain: i64) -> String {
        let shown = self.oversell_risk().filter(|shown| *shown > certain);
        shown.map_or_else(String::new, |shown| {
            format!(
                "; the oversell risk of {shown} in the table is exact only if no order is in flight \
                 and the journal knows all orders"
            )
        })
    }

    fn journal_failure(&self) -> Option<String> {
        let mismatch = self.stocks.journal_mismatch.filter(|mismatch| *mismatch != 0)?;
        let units = either(mismatch.unsigned_abs(), "unit", "units");
        let more = if mismatch > 0 { "more" } else { "fewer" };
        Some(format!(
            "Redis offers {} {units} {more} than its journal says: an operator changed the stock manually, or \
             Redis lost data; see docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong",
            mismatch.unsigned_abs()
        ))
    }

    fn forgotten_failure(&self) -> Option<String> {
        let (stock, orders) = (self.stocks.stock.unwrap_or_default(), self.rows.forgotten_orders);
        self.offences.is_forgotten.then(|| {
            format!(
                "Redis does not know the voucher: its sale is on, and MySQL has {stock} {} left and {orders} {}, \
                 but Redis has no stock under the configured key names; see docs/runbook/redis-lost-data.md",
                either(stock.unsigned_abs(), "unit", "units"),
                either(orders, "order that came through Redis", "orders that came through Redis"),
            )
        })
    }
}

/// The word for one thing, or for any other number.
fn either(count: u64, one: &'static str, many: &'static str) -> &'static str {
    if count == 1 { one } else { many }
}
