//! The faults that an audit found, one sentence each.

use super::{AuditReport, VoucherAudit};
use crate::{
    counts::{LISTED, Offenders},
    limit_counters::CounterDifference,
    text::WRONG_TYPE,
};

impl AuditReport {
    /// The faults of all vouchers, one sentence each. The audit passes if there are none.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.vouchers.iter().flat_map(VoucherAudit::failures).collect();
        failures.extend(self.counters.iter().take(LISTED).map(CounterDifference::sentence));
        let more = self.counters.len().saturating_sub(LISTED);
        if more > 0 {
            failures.push(format!("{more} more limit counters differ from the uses that orders hold"));
        }
        let Offenders { total, .. } = self.unreadable.lost;
        if total > 0 {
            let what = either(total, "entry was acknowledged and is", "entries were acknowledged and are");
            let lost = &self.unreadable.lost;
            let page = "docs/runbook/dead-letters.md#unreadable-entries";
            failures.push(format!("{total} unreadable {what} not in the dead stream: {lost}; see {page}"));
        }
        failures
    }
}

impl VoucherAudit {
    /// The faults of this voucher, one sentence each.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let wrong_keys = self.offences.wrong_keys.first.iter();
        let failures = self.order_failures().into_iter().chain(self.stock_failures());
        let failures = failures
            .chain(wrong_keys.map(|what| format!("{what}; see {WRONG_TYPE}")))
            .chain(self.oversell_failure())
            .chain(self.journal_failure())
            .chain(self.forgotten_failure());
        failures.map(|what| format!("voucher {}: {what}", self.voucher)).collect()
    }

    fn order_failures(&self) -> Vec<String> {
        let offences = [
            (&self.offences.lost.orders, "admitted order is lost", "admitted orders are lost"),
            (
                &self.offences.mismatched,
                "order differs from what was admitted under its id",
                "orders differ from what was admitted under their ids",
            ),
            (
                &self.offences.not_released,
                "order was refused, and Redis still holds its units",
                "orders were refused, and Redis still holds their units",
            ),
            (
                &self.offences.lost_events,
                "order has events that were acknowledged and not recorded",
                "orders have events that were acknowledged and not recorded",
            ),
            (
                &self.offences.doubled_back,
                "live order was released to Redis as well",
                "live orders were released to Redis as well",
            ),
            (
                &self.offences.shared_slots,
                "slot of a user (user/slot) has more than one live order",
                "slots of a user (user/slot) have more than one live order",
            ),
            (
                &self.offences.contradictory.orders,
                "order is neither live nor cancelled (status 4 or 6 with a slot, or no slot with another status)",
                "orders are neither live nor cancelled (status 4 or 6 with a slot, or no slot with another status)",
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
            failures.push(format!("the stock in MySQL is {stock}"));
        }
        let Some(initial) = self.stocks.initial_stock else { return failures };
        if self.rows.live_units > initial {
            failures
                .push(format!("oversold: {} of {initial} units are in live orders", self.rows.live_units));
        }
        let left = initial - self.rows.live_units;
        if self.stocks.mysql_drift.is_some_and(|units| units != 0) {
            failures.push(format!(
                "the stock in MySQL is {stock}, but {initial} loaded - {} in live orders = {}",
                self.rows.live_units, left
            ));
        }
        failures
    }

    fn oversell_failure(&self) -> Option<String> {
        let risk = self.stocks.oversell_risk_at_least.filter(|risk| *risk > 0)?;
        let units = either(risk.unsigned_abs(), "unit", "units");
        Some(format!(
            "Redis offers {risk} {units} or more that MySQL does not have{}: orders that Redis admits for them are \
             refused later; see docs/runbook/stock-is-wrong.md#the-stock-in-redis-is-wrong",
            self.uncertain_oversell_risk(risk)
        ))
    }

    /// The part of the oversell risk in the table that is not certain.
    fn uncertain_oversell_risk(&self, certain: i64) -> String {
        let shown = self.oversell_risk().filter(|shown| *shown > certain);
        shown.map_or_else(String::new, |shown| {
            format!(
                " (that is certain; the oversell risk of {shown} in the table is right unless orders that its journal does not know, \
                 or orders on their way, account for the rest)"
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
                "Redis has forgotten it: its sale is on, MySQL has {stock} {} of it and {orders} {}, and Redis has no stock of \
                 it under the names that are configured; see docs/runbook/redis-lost-data.md",
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
