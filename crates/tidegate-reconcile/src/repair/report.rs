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

/// The results of a repair.
#[derive(Clone, Debug, Serialize)]
pub struct RepairReport {
    /// The id of the repair, as in the journals.
    pub id: String,
    /// The counts of the repairs that were made.
    #[serde(flatten)]
    pub done: RepairCounts,
    /// The first orders and users that were not repaired because they had changed. The next comparison finds the
    /// remaining differences.
    pub returned: Vec<Returned>,
    /// The number of differences that the plan left out.
    pub left: u64,
    /// The counters of order ids that were behind existing ids and were raised.
    pub order_ids: Vec<RaisedCounter>,
    /// The reason why Redis refused to raise them, and how to allow it. None: Redis did not refuse.
    pub order_ids_refused: Option<String>,
    /// The number of differences beyond those that one repair takes. The next repair finds them.
    pub beyond: u64,
    /// The limit counters that were not compared, and therefore not set.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

/// The counts of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairCounts {
    /// The counts of the repairs in Redis.
    #[serde(flatten)]
    pub redis: RedisRepairs,
    /// Cancelled rows of orders that Redis had released, written now or before.
    pub cancelled_rows: u64,
    /// New entries for orders whose own entries are gone.
    pub appended: u64,
    /// Entries that were run again.
    pub entries: u64,
    /// Orders that were written by the repeated run.
    pub created: u64,
    /// Orders that the repeated run refused: MySQL has no unit for them any more.
    pub refused: u64,
    /// Events that the repeated run recorded.
    pub events: u64,
    /// Orders and users that had changed since the comparison, so they were not repaired. The report names the first
    /// under `returned`.
    #[serde(rename = "returned_count")]
    pub returned: u64,
}

/// The counts of a repair's steps in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisRepairs {
    /// The number of steps in Redis.
    pub steps: u64,
    /// Orders whose admission was restored in Redis.
    pub admitted: u64,
    /// Orders that were released in Redis.
    pub released: u64,
    /// Users that are counted as buyers again.
    pub barred: u64,
    /// Users that may order again.
    pub unbarred: u64,
    /// Limit counters and user slots that were set to the uses of orders.
    pub counters: u64,
    /// Units by which stocks in Redis moved; below 0, they were lowered.
    pub stock_moved: i64,
    /// Units that sales got by their journals; below 0, they lost them.
    pub loaded: i64,
}

/// An order or a user that was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// The voucher of the order or user.
    pub voucher: VoucherId,
    /// The order that was not repaired. None: only the user or the stock was not repaired.
    pub order: Option<OrderId>,
    /// The user of the order, if there is one.
    pub user: Option<UserId>,
    /// The reason why it was not repaired.
    pub why: ReturnedReason,
}

/// The reason why an order or a user was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnedReason {
    /// The order or user had changed since the comparison, in Redis or in MySQL.
    Moved,
    /// This limit counter changes too fast to be set.
    CounterMoved(String),
    /// An entry of the order is in flight.
    InFlight,
    /// Another repair was made in between.
    Overtaken,
    /// The journal is no longer complete, or was created anew.
    JournalIsNew,
    /// An operator changed the stock in between.
    StockChanged,
    /// MySQL refused orders that were run again, so the totals of the stock are out of date.
    StockMoved,
    /// Redis has no stock of the voucher.
    NoStock,
    /// Other sessions held the user, the voucher or the row for too long, or the order waits for another lost order.
    Held,
    /// The entry can never be written, or the database refuses it; with its message.
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
        "the step in progress may be done or not: reconcile again to find the remaining differences"
    }
}
