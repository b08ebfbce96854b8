//! The report of a repair.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value as Json;
use tidegate_compare::limit_counters::NotCompared;
use tidegate_operations::change::{Ending, Report};
use tidegate_orders::{OrderId, UserId, VoucherId, order_id::counter::RaisedCounter};

use super::plan::RepairPlan;

/// The largest number of orders that are listed.
const MOST_NAMED: usize = 100;

/// The results of repairing differences between Redis and MySQL.
#[derive(Clone, Debug, Serialize)]
pub struct RepairReport {
    /// The id of the repair. Every note that the repair wrote to a journal contains this id.
    pub id: String,
    /// The numbers of completed repairs, by kind.
    #[serde(flatten)]
    pub done: RepairCounts,
    /// The first orders and users that were not repaired, because they had changed since the comparison. The next
    /// comparison finds differences that still exist.
    pub returned: Vec<Returned>,
    /// The number of differences that the plan of the repair did not include.
    pub left: u64,
    /// The counters of order ids that were raised, because they were lower than ids of existing orders.
    pub order_ids: Vec<RaisedCounter>,
    /// The reason why Redis refused to raise the counters of order ids, and the right that the Redis user lacks. None:
    /// Redis did not refuse.
    pub order_ids_refused: Option<String>,
    /// The number of differences that exceed the limit of one repair. The next repair handles them.
    pub beyond: u64,
    /// The limit counters that were not compared, so the repair did not set them.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

/// The numbers of completed repairs, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairCounts {
    /// The numbers of completed repairs in Redis, by kind.
    #[serde(flatten)]
    pub redis: RedisRepairs,
    /// The number of orders whose units returned to the stock, and that now have a cancelled row in MySQL, written by
    /// this repair or earlier.
    pub cancelled_rows: u64,
    /// The number of new stream entries for orders whose original entries no longer exist.
    pub appended: u64,
    /// The number of stream entries that the repair replayed to MySQL.
    pub entries: u64,
    /// The number of orders that the repair wrote to MySQL by replaying their entries.
    pub created: u64,
    /// The number of replayed orders that MySQL refused, because no unit was left.
    pub refused: u64,
    /// The number of order events that the repair recorded in MySQL by replaying their entries.
    pub events: u64,
    /// The number of orders and users that were not repaired, because they had changed since the comparison.
    #[serde(rename = "returned_count")]
    pub returned: u64,
}

/// The numbers of completed repairs in Redis, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisRepairs {
    /// The number of calls by which the repair changed Redis.
    pub steps: u64,
    /// The number of orders that the repair marked as admitted in Redis again.
    pub admitted: u64,
    /// The number of orders that the repair released in Redis, which returned their units to the stock.
    pub released: u64,
    /// The number of users that the repair added to the buyers in Redis.
    pub barred: u64,
    /// The number of users that the repair removed from the buyers in Redis, so that they can order again.
    pub unbarred: u64,
    /// The number of limit counters, and of fields with the orders of a user, that the repair set to the right values.
    pub counters: u64,
    /// The units that the repair added to stocks in Redis. Negative: the repair deducted units.
    pub stock_moved: i64,
    /// The units that the repair added to the journals' sums of loaded units. Negative: the repair deducted units.
    pub loaded: i64,
}

/// An order or a user that was not repaired, because its data had changed since the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// The voucher whose order or user was not repaired.
    pub voucher: VoucherId,
    /// The order that was not repaired. None: only the user or the stock was not repaired.
    pub order: Option<OrderId>,
    /// The user who was not repaired, or whose order was not repaired. None: the user is unknown, or only the stock was
    /// not repaired.
    pub user: Option<UserId>,
    /// The reason why the order or user was not repaired.
    pub why: ReturnedReason,
}

/// The reason why an order or a user was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnedReason {
    /// The order or user had changed since the comparison, in Redis or in MySQL.
    Moved,
    /// The limit counter with this field name changes too fast to be set.
    CounterMoved(String),
    /// An entry of the order is in flight.
    InFlight,
    /// Another repair was made since the comparison.
    Overtaken,
    /// The journal is not complete any more, or was created again.
    JournalIsNew,
    /// An operator changed the stock since the comparison.
    StockChanged,
    /// MySQL refused orders that were run again, so the totals of the stock are out of date.
    StockMoved,
    /// Redis has no stock of the voucher.
    NoStock,
    /// Other sessions locked the user, the voucher or the row for too long, or the order waits for another lost order.
    Held,
    /// The entry can never be written, or MySQL refuses it, with the error message.
    Rejected(String),
}

impl RepairReport {
    /// Creates the report of a repair that has not begun.
    #[must_use]
    pub fn new(plan: &RepairPlan) -> Self {
        let left = plan.vouchers.iter().flat_map(|voucher| &voucher.left).map(|left| left.total).sum();
        let counters_not_compared = BTreeSet::new();
        let (id, done) = (plan.id.clone(), RepairCounts::default());
        let (returned, order_ids, beyond) = (Vec::new(), Vec::new(), plan.beyond);
        Self { id, done, returned, left, order_ids, order_ids_refused: None, beyond, counters_not_compared }
    }

    pub(super) fn return_to_look(&mut self, returned: Returned) {
        self.done.returned += 1;
        if self.returned.len() < MOST_NAMED {
            self.returned.push(returned);
        }
    }
}

impl RepairCounts {
    /// The counts of repairs since `before`.
    #[must_use]
    pub(super) fn since(self, before: Self) -> Json {
        let (now, then) = (serde_json::to_value(self), serde_json::to_value(before));
        let (Ok(Json::Object(mut now)), Ok(then)) = (now, then) else { return Json::Null };
        for (name, value) in &mut now {
            *value = (value.as_i64().unwrap_or(0) - then[name].as_i64().unwrap_or(0)).into();
        }
        now.retain(|_, value| value.as_i64() != Some(0));
        Json::Object(now)
    }
}

impl Report for RepairReport {
    fn counts(&self) -> Json {
        let mut counts = serde_json::to_value(self.done).unwrap_or_default();
        counts["left"] = self.left.into();
        counts["beyond"] = self.beyond.into();
        counts
    }

    fn ending(&self) -> Ending {
        match (self.done.returned + self.beyond, self.left) {
            (0, 0) if self.order_ids_refused.is_none() => Ending::Done,
            (0, _) => Ending::Partly,
            _ => Ending::Left,
        }
    }

    fn torn(&self) -> &'static str {
        "the step in progress may be done or not: tidegate reconcile finds the remaining differences"
    }
}
