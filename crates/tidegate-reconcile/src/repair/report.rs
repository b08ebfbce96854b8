//! What a repair did.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value as Json;
use tidegate_compare::limit_counters::NotCompared;
use tidegate_operations::change::{Ending, Report};
use tidegate_orders::{OrderId, UserId, VoucherId, order_id::counter::RaisedCounter};

use super::plan::RepairPlan;

/// Orders that are named one by one, at most.
const MOST_NAMED: usize = 100;

/// What a repair did.
#[derive(Clone, Debug, Serialize)]
pub struct RepairReport {
    /// Its name, as in the journals.
    pub id: String,
    /// What was done.
    #[serde(flatten)]
    pub done: RepairCounts,
    /// The first of those that were not repaired because they moved, or something came between: the next comparison finds what is left.
    pub returned: Vec<Returned>,
    /// Differences that no program may repair, or not now: as the plan said.
    pub left: u64,
    /// The counters of order ids that were behind ids of orders, and were raised.
    pub order_ids: Vec<RaisedCounter>,
    /// Why they were not raised, and what to do about it: Redis refuses it. None: it does not.
    pub order_ids_refused: Option<String>,
    /// Differences beyond those that one repair takes: the next repair finds them.
    pub beyond: u64,
    /// What is counted for limits, and was not compared, so it was not set either.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

/// What was done, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RepairCounts {
    /// The counts of what was done in Redis.
    #[serde(flatten)]
    pub redis: RedisRepairs,
    /// Cancelled rows of orders that Redis had released; written now or before.
    pub cancelled_rows: u64,
    /// New entries for orders whose own are gone.
    pub appended: u64,
    /// Entries that were run again.
    pub entries: u64,
    /// Orders that were written by that.
    pub created: u64,
    /// Orders that were refused by that: MySQL has no unit for them any more.
    pub refused: u64,
    /// Events that were recorded by that.
    pub events: u64,
    /// Orders and users that had changed since the comparison, so they were not repaired. The report names the first under
    /// `returned`.
    #[serde(rename = "returned_count")]
    pub returned: u64,
}

/// The counts of what a repair did in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RedisRepairs {
    /// Steps in Redis.
    pub steps: u64,
    /// Orders whose admission was restored in Redis.
    pub admitted: u64,
    /// Orders that were released in Redis.
    pub released: u64,
    /// Users who are counted as buyers again.
    pub barred: u64,
    /// Users who may order again.
    pub unbarred: u64,
    /// Counters of limits, and slots of users, that were set to what orders hold.
    pub counters: u64,
    /// Units by which stocks in Redis moved; below 0: down.
    pub stock_moved: i64,
    /// Units that sales got by their journals, below 0: lost.
    pub loaded: i64,
}

/// An order or a user that was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Returned {
    /// Of which voucher.
    pub voucher: VoucherId,
    /// Which order; None: only the user, or the stock, is meant.
    pub order: Option<OrderId>,
    /// Whose.
    pub user: Option<UserId>,
    /// Why.
    pub why: ReturnedWhy,
}

/// Why something was not repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnedWhy {
    /// It had moved since the comparison, in Redis or in MySQL.
    Moved,
    /// This counter of a limit moves too fast to be set.
    CounterMoved(String),
    /// An entry of it is in flight.
    InFlight,
    /// Another repair came between.
    Overtaken,
    /// The journal is not complete any more, or was made anew.
    JournalIsNew,
    /// An operator's change of the stock came between.
    StockChanged,
    /// MySQL refused orders that were run again, so what was found of the stock is old.
    StockMoved,
    /// Redis has no stock of it.
    NoStock,
    /// Others held its user, its voucher or its row for too long, or it waits for another lost order.
    Held,
    /// Its entry can never be written, or the database refuses it; with its words.
    Rejected(String),
}

impl RepairReport {
    /// Nothing is done yet.
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
    /// What was done since `before`.
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
        "the step in progress may be done or not; reconcile again, and what is left is found"
    }
}
