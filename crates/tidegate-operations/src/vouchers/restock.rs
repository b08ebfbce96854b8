//! More units for a sale that is on, or fewer, on both sides.
//!
//! Three steps: Redis notes the change as open (and gives up the units that are taken), MySQL has it, Redis notes
//! that it is done (and gets the units that are added). So Redis never offers what MySQL does not have, and each step
//! is made once. [`plan`] reads, [`run`] takes the steps, or those that are missing of a change that died half-way.

mod ended;
mod precondition;
mod steps;

use anyhow::Context;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, StockChange},
    records::by_hand::set_initial_stock,
};

pub(crate) use self::ended::ended_by_others;
use super::{MAX_STOCK, VoucherStores};
use crate::change::{Ending, Next, Plan, Report};

/// A change of a voucher's stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestockRequest {
    /// The voucher.
    pub voucher: VoucherId,
    /// Units to add; below 0: to take.
    pub units: i64,
    /// What the initial stock in MySQL has to be: so the same request changes it once, however often it is made.
    pub initial_stock: Option<i64>,
}

impl RestockRequest {
    /// What makes this very change, or completes it.
    fn of(voucher: VoucherId, change: &StockChange) -> Self {
        Self { voucher, units: change.units, initial_stock: Some(change.before) }
    }
}

/// What a change came to, or would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RestockOutcome {
    /// It can be made.
    WouldChange,
    /// It was begun before, and would be completed.
    WouldComplete,
    /// Both sides have it.
    Changed,
    /// It was begun before; now both sides have it.
    Completed,
    /// Both sides have it already.
    DoneBefore,
    /// Neither side has it, for a reason.
    Refused,
    /// One side may have it and the other not: the same request again completes it.
    Unfinished,
}

/// Why a change must not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestockRefusal {
    /// MySQL does not know the voucher.
    #[error("MySQL has no row of it: it is not on sale")]
    NoRow,
    /// Its sale is over for good.
    #[error("it is delisted: its sale is over for good, see docs/delist.md")]
    Delisted,
    /// Redis does not sell it.
    #[error(
        "Redis has no stock of it: it is not on sale, or Redis lost data (see docs/runbook/redis-lost-data.md)"
    )]
    NoStock,
    /// Another change is not complete.
    #[error("another change of it is unfinished ({})", described(open))]
    AnotherIsOpen {
        /// That change.
        open: Box<StockChange>,
        /// The voucher.
        voucher: VoucherId,
    },
    /// MySQL does not say with how many units the sale began.
    #[error(
        "nobody knows what it began with (initial_stock is NULL); write that down first: {}",
        set_initial_stock(*voucher)
    )]
    NoInitialStock {
        /// The voucher.
        voucher: VoucherId,
    },
    /// The same was done just before, and nobody said that it is meant twice.
    #[error("the last change of it was the same, and both sides have it ({})", described(last))]
    SameAsLast {
        /// That change.
        last: Box<StockChange>,
        /// What makes it once more.
        again: RestockRequest,
    },
    /// The initial stock is not the one that was asked for.
    #[error(
        "its initial stock in MySQL is {initial} and not {expected}, so somebody has changed it since, or Redis has \
         lost the note of this very change: compare the stocks"
    )]
    OtherInitialStock {
        /// What it is.
        initial: i64,
        /// What it had to be.
        expected: i64,
    },
    /// More are to be taken than are left.
    #[error("{side} has only {} left of it", counted(*left, "unit"))]
    TooFewLeft {
        /// `Redis` or `MySQL`.
        side: &'static str,
        /// Units left there.
        left: i64,
    },
    /// The sum would be more than the gate can count.
    #[error("it would have more than {}", counted(MAX_STOCK, "unit"))]
    TooMany,
}

impl Serialize for RestockRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct RestockPlan {
    /// The voucher.
    pub voucher: VoucherId,
    /// Units to add; below 0: to take.
    pub units: i64,
    /// What would come of it.
    pub outcome: RestockOutcome,
    /// Why it would be refused.
    #[serde(rename = "reason")]
    pub refusal: Option<RestockRefusal>,
    /// Units left in Redis.
    pub redis_stock: Option<i64>,
    /// Units left in MySQL.
    pub mysql_stock: Option<i64>,
    /// The change itself; None where it is refused.
    pub change: Option<StockChange>,
    /// The note that Redis has now; None: it has none.
    #[serde(skip)]
    last: Option<StockChange>,
}

impl Plan for RestockPlan {
    fn next(&self) -> Next {
        let voucher = self.voucher;
        let count = counted(self.units.abs(), "unit");
        match self.outcome {
            RestockOutcome::Refused => Next::Refused,
            RestockOutcome::DoneBefore => Next::NothingToDo,
            RestockOutcome::WouldComplete => Next::Ask(format!("Complete this change of voucher {voucher}?")),
            _ if self.units > 0 => Next::Ask(format!("Add {count} to voucher {voucher}?")),
            _ => Next::Ask(format!("Take {count} from voucher {voucher}?")),
        }
    }
}

/// What was done.
#[derive(Clone, Debug, Serialize)]
pub struct RestockReport {
    /// The voucher.
    pub voucher: VoucherId,
    /// Units added; below 0: taken.
    pub units: i64,
    /// What came of it.
    pub outcome: RestockOutcome,
    /// Why it was refused, or what came after it.
    pub reason: Option<String>,
    /// Units left in Redis, before the change.
    pub redis_stock: Option<i64>,
    /// Units left in MySQL, before the change.
    pub mysql_stock: Option<i64>,
    /// The change itself; None where it was refused.
    pub change: Option<StockChange>,
}

impl RestockReport {
    /// What is so until all steps are known to be done: one side may have it.
    #[must_use]
    pub fn unfinished(plan: &RestockPlan) -> Self {
        Self {
            voucher: plan.voucher,
            units: plan.units,
            outcome: RestockOutcome::Unfinished,
            reason: None,
            redis_stock: plan.redis_stock,
            mysql_stock: plan.mysql_stock,
            change: plan.change.clone(),
        }
    }

    /// What completes the change; None where there is none.
    #[must_use]
    pub fn rest(&self) -> Option<RestockRequest> {
        self.change.as_ref().map(|change| RestockRequest::of(self.voucher, change))
    }
}

impl Report for RestockReport {
    fn counts(&self) -> Json {
        let is_done = matches!(self.outcome, RestockOutcome::Changed | RestockOutcome::Completed);
        json!({ "units": if is_done { self.units } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.outcome == RestockOutcome::Refused { Ending::Refused } else { Ending::Done }
    }
}

/// Looks at both sides, and changes nothing. A new change is noted as begun `by` this name.
///
/// # Errors
/// When a store does not answer.
pub async fn plan(
    stores: &VoucherStores,
    request: RestockRequest,
    by: String,
) -> anyhow::Result<RestockPlan> {
    let RestockRequest { voucher, units, initial_stock } = request;
    // Before all else: what is read after it is at least as new, and a change since then is refused by the note.
    let last =
        stores.redis.sales().read_change(voucher).await.context("Failed to read the voucher in Redis")?;
    let sale = stores.state(voucher).await?;
    let row = stores.row(voucher).await?;
    let initial = row.as_ref().and_then(|row| row.initial_stock);
    let begun = last.clone().filter(|last| request.is_begun_by(last));
    let done = last.clone().filter(|last| {
        initial_stock == Some(last.before) && initial.is_some_and(|initial| request.is_done_by(last, initial))
    });
    let (outcome, refusal, change) = match (begun, done) {
        (Some(begun), _) => (RestockOutcome::WouldComplete, None, Some(begun)),
        (None, Some(done)) => (RestockOutcome::DoneBefore, None, Some(done)),
        (None, None) => match request.check(sale.stock, row.as_ref(), last.as_ref()) {
            Ok(before) => (RestockOutcome::WouldChange, None, Some(StockChange::new(units, before, by))),
            Err(refusal) => (RestockOutcome::Refused, Some(refusal), None),
        },
    };
    let (redis_stock, mysql_stock) = (sale.stock, row.map(|row| row.stock));
    Ok(RestockPlan { voucher, units, outcome, refusal, redis_stock, mysql_stock, change, last })
}

/// Makes the change that was planned, and fills `report`, which begins as [`RestockReport::unfinished`].
///
/// # Errors
/// When it is unknown what became of a step. The report is that of an unfinished change then.
pub async fn run(
    stores: &VoucherStores,
    plan: RestockPlan,
    report: &mut RestockReport,
) -> anyhow::Result<()> {
    let Some(change) = plan.change else { return Ok(()) };
    let steps = steps::Steps { stores, voucher: plan.voucher, change: &change };
    let (outcome, reason) = match plan.outcome {
        RestockOutcome::WouldChange => steps.begin_and_complete(plan.last.as_ref()).await,
        _ => steps.complete(RestockOutcome::Completed).await,
    };
    report.outcome = outcome;
    report.change = match outcome {
        RestockOutcome::Changed | RestockOutcome::Completed => Some(change.with_state(ChangeState::Done)),
        RestockOutcome::Refused => None,
        _ => Some(change),
    };
    match (outcome, reason) {
        (RestockOutcome::Unfinished, Some(error)) => Err(anyhow::Error::msg(error)),
        (_, reason) => {
            report.reason = reason;
            Ok(())
        }
    }
}

/// A change in words: `500 units added by alice@shop at 2026-11-20T10:00:00Z`.
#[must_use]
pub fn described(change: &StockChange) -> String {
    let units = counted(change.units.abs(), "unit");
    format!("{units} {} by {} at {:.0}", added_or_taken(change.units), change.by, change.at)
}

/// `added`, or `taken` where the units are below 0.
#[must_use]
pub const fn added_or_taken(units: i64) -> &'static str {
    if units > 0 { "added" } else { "taken" }
}
