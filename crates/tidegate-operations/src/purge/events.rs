//! Events of orders that have ended. Of each order stays what others still need: the last move, the last step, and what gave
//! units back.

use std::collections::BTreeMap;

use anyhow::Context;
use sqlx::{AssertSqlSafe, Row, mysql::MySqlRow};

use super::{BITE, Mode, NamedOrders, ORDERS, Purge, PurgeCount};

/// An event, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EventRow {
    step: i64,
    event: String,
    outcome: String,
    reference: Option<String>,
    payment: Option<String>,
    moved: bool,
    released: i64,
    is_old: bool,
}

/// An order with its events, by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EventfulOrder {
    /// None: it has no row.
    status: Option<i64>,
    has_slot: bool,
    events: Vec<EventRow>,
}

impl EventfulOrder {
    /// Nothing will happen to it any more that needs its past: used, or cancelled or refunded without a slot, long ago, and no
    /// money is due.
    fn is_final(&self) -> bool {
        let has_ended = match self.status {
            Some(3) => self.has_slot,
            Some(4 | 6) => !self.has_slot,
            _ => false,
        };
        has_ended && self.events.iter().all(|event| event.is_old && !self.is_due(event))
    }

    /// It is a payment that has to go back, and has not gone back.
    fn is_due(&self, due: &EventRow) -> bool {
        let gives_back = |event: &EventRow| {
            let is_refund = event.event == "refunded" && event.outcome == "applied";
            let is_of_it = match (&event.payment, &due.reference) {
                (None, None) => event.step > due.step,
                (payment, reference) => payment == reference,
            };
            is_refund && is_of_it
        };
        due.event == "paid" && due.outcome == "refund_due" && !self.events.iter().any(gives_back)
    }

    /// The steps that nobody needs. What stays says how the order came to its status, what it gave back, and which step is next.
    fn going(&self) -> Vec<i64> {
        let last = self.events.last().map(|event| event.step);
        let last_move = self.events.iter().rev().find(|event| event.moved).map(|event| event.step);
        let stays = |event: &&EventRow| {
            event.released > 0 || Some(event.step) == last || Some(event.step) == last_move
        };
        self.events.iter().filter(|event| !stays(event)).map(|event| event.step).collect()
    }
}

impl Purge {
    /// Those of ended orders go, but for the few that stay, where no entry and no dead letter names the order.
    pub(super) async fn events(
        &self,
        (mode, named): (Mode, &NamedOrders),
        after: i64,
        count: &mut PurgeCount,
    ) -> anyhow::Result<Option<i64>> {
        let orders = self.eventful_orders(named, after).await.context("Failed to read the events")?;
        let (mut going, mut rows) = (Vec::new(), 0);
        for (order, its) in &orders {
            let old = its.events.iter().filter(|event| event.is_old).count();
            let may_go = its.is_final() && !named.has(*order);
            let steps = if may_go { its.going() } else { Vec::new() };
            count.kept += (old - steps.len()) as u64;
            rows += steps.len();
            if !steps.is_empty() {
                going.push((*order, steps));
            }
            if rows >= BITE {
                self.delete_events(mode, &std::mem::take(&mut going)).await?;
                count.purged += std::mem::take(&mut rows) as u64;
            }
        }
        self.delete_events(mode, &going).await?;
        count.purged += rows as u64;
        Ok(orders.last_key_value().map(|(last, _)| *last))
    }

    async fn delete_events(&self, mode: Mode, going: &[(i64, Vec<i64>)]) -> anyhow::Result<()> {
        if mode == Mode::Count || going.is_empty() {
            return Ok(());
        }
        let of_order = |(order, steps): &(i64, Vec<i64>)| {
            let steps: Vec<String> = steps.iter().map(i64::to_string).collect();
            format!("order_id = {order} AND step IN ({})", steps.join(","))
        };
        // Each a range of the primary key: not every server reads a list of pairs so.
        let ranges: Vec<String> = going.iter().map(of_order).collect();
        let sql = format!("DELETE FROM tidegate_event WHERE {}", ranges.join(" OR "));
        let deleted = sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(&self.mysql).await;
        deleted.context("Failed to delete events")?;
        Ok(())
    }

    async fn eventful_orders(
        &self,
        named: &NamedOrders,
        after: i64,
    ) -> sqlx::Result<BTreeMap<i64, EventfulOrder>> {
        let sql = format!(
            "SELECT e.order_id, CAST(e.step AS SIGNED), e.event, e.outcome, e.ref, e.payment, \
             CAST(e.to_status IS NOT NULL AS SIGNED), CAST(e.released AS SIGNED), \
             CAST(e.at < FROM_UNIXTIME(?) AS SIGNED), \
             CAST(IF(o.id IS NULL, NULL, COALESCE(o.status, 1)) AS SIGNED), CAST(o.slot IS NOT NULL AS SIGNED) \
             FROM (SELECT DISTINCT order_id FROM tidegate_event WHERE order_id > ? ORDER BY order_id LIMIT {ORDERS}) p \
             JOIN tidegate_event e ON e.order_id = p.order_id \
             LEFT JOIN tb_voucher_order o ON o.id = e.order_id ORDER BY e.order_id, e.step"
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).bind(named.before_s).bind(after);
        let mut orders: BTreeMap<i64, EventfulOrder> = BTreeMap::new();
        for row in rows.fetch_all(&self.mysql).await? {
            let order = orders.entry(row.try_get(0)?).or_default();
            (order.status, order.has_slot) = (row.try_get(9)?, row.try_get::<i64, _>(10)? == 1);
            order.events.push(event(&row)?);
        }
        Ok(orders)
    }
}

fn event(row: &MySqlRow) -> sqlx::Result<EventRow> {
    Ok(EventRow {
        step: row.try_get(1)?,
        event: row.try_get(2)?,
        outcome: row.try_get(3)?,
        reference: row.try_get(4)?,
        payment: row.try_get(5)?,
        moved: row.try_get::<i64, _>(6)? == 1,
        released: row.try_get(7)?,
        is_old: row.try_get::<i64, _>(8)? == 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: i64, event: &str, outcome: &str) -> EventRow {
        let (event, outcome) = (event.to_owned(), outcome.to_owned());
        let moved = outcome == "applied";
        EventRow { step, event, outcome, moved, is_old: true, ..EventRow::default() }
    }

    fn order(status: i64, has_slot: bool, events: Vec<EventRow>) -> EventfulOrder {
        EventfulOrder { status: Some(status), has_slot, events }
    }

    #[test]
    fn only_orders_that_ended_long_ago_and_owe_nothing_are_final() {
        let used = vec![row(1, "paid", "applied"), row(2, "used", "applied")];
        for (status, has_slot, is_final) in [
            (1, true, false),
            (2, true, false),
            (3, true, true),
            (3, false, false),
            (4, false, true),
            (4, true, false),
            (5, false, false),
            (5, true, false),
            (6, false, true),
            (6, true, false),
        ] {
            assert_eq!(order(status, has_slot, used.clone()).is_final(), is_final, "{status} {has_slot}");
        }
        assert!(!EventfulOrder { status: None, ..order(3, true, used.clone()) }.is_final(), "without a row");
        let mut young = used;
        young[1].is_old = false;
        assert!(!order(3, true, young).is_final());
    }

    #[test]
    fn a_payment_that_has_to_go_back_keeps_the_past_of_its_order() {
        let due = |reference: Option<&str>| EventRow {
            reference: reference.map(str::to_owned),
            moved: false,
            ..row(2, "paid", "refund_due")
        };
        let refunded = |step, payment: Option<&str>| EventRow {
            payment: payment.map(str::to_owned),
            ..row(step, "refunded", "applied")
        };
        let cancelled = || row(1, "cancelled", "applied");
        for (events, is_final) in [
            (vec![cancelled(), due(Some("p1"))], false),
            (vec![cancelled(), due(Some("p1")), refunded(3, Some("p2"))], false),
            (vec![cancelled(), due(Some("p1")), refunded(3, Some("p1"))], true),
            (vec![cancelled(), due(None), refunded(3, None)], true),
            (vec![refunded(1, None), due(None)], false),
        ] {
            assert_eq!(order(6, false, events.clone()).is_final(), is_final, "{events:?}");
        }
    }

    #[test]
    fn the_last_move_the_last_step_and_what_gave_back_stay() {
        let cancelled = EventRow { released: 1, ..row(1, "cancelled", "applied") };
        let late = EventRow { moved: true, ..row(2, "paid", "refund_due") };
        let events = vec![cancelled, late, row(3, "refunded", "applied"), row(4, "refunded", "unchanged")];
        assert_eq!(order(6, false, events).going(), [2]);
        let events = vec![row(1, "paid", "applied"), row(2, "paid", "unchanged"), row(3, "used", "applied")];
        assert_eq!(order(3, true, events).going(), [1, 2]);
        assert_eq!(order(4, false, vec![row(1, "cancelled", "applied")]).going(), [0_i64; 0]);
    }
}
