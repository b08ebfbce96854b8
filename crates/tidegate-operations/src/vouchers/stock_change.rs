//! Changes the stock of a sale in both stores: adds, takes, or moves units from one region of a campaign to another.
//! There are three steps. Redis notes the change as open, and removes the units that are taken. MySQL makes the change
//! in one transaction. Redis notes that the change is done, and gets the units that are added. So Redis never offers
//! units that MySQL does not have, and each step is made once. [`plan`] reads the stores. [`run`] takes the steps, or
//! the missing steps of a change that was killed half-way.

mod precondition;
mod steps;

use anyhow::Context;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value as Json, json};
use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId, limit_rows,
    records::vouchers::VoucherRow,
    scripts::{ChangeState, StockChange, StockTransfer, WholeChange},
};

use self::precondition::Found;
use super::VoucherStores;
use crate::change::{Ending, Next, Plan, Report};

/// The request to change the stock of one voucher, or of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockChangeRequest {
    /// The vouchers whose stocks change.
    pub stocks: ChangedStocks,
    /// The units to add or to move; negative: to take.
    pub units: i64,
    /// The initial stock that MySQL must have; for a transfer, that of the region that gives units. It ensures that a
    /// repeated request changes the stock only once.
    pub initial_stock: Option<i64>,
}

/// The vouchers whose stocks change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedStocks {
    /// Units are added to this voucher, or taken from it.
    Of(VoucherId),
    /// Units move from one region to another.
    Between(StockTransfer),
}

impl StockChangeRequest {
    /// Creates the request that completes an open change, from the note of this voucher.
    #[must_use]
    pub fn completing(voucher: VoucherId, open: &StockChange) -> Self {
        match &open.moved {
            // The expected initial stock is that of the region that gives units; the notes of both regions have it.
            Some(moved) => Self {
                stocks: ChangedStocks::Between(moved.transfer.clone()),
                units: open.units.saturating_abs(),
                initial_stock: Some(moved.giver_before),
            },
            None => Self {
                stocks: ChangedStocks::Of(voucher),
                units: open.units,
                initial_stock: Some(open.before),
            },
        }
    }

    fn with_initial_stock(&self, initial_stock: i64) -> Self {
        Self { initial_stock: Some(initial_stock), ..self.clone() }
    }
}

/// The outcome of a change of the stock, planned or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StockOutcome {
    /// The change can be made.
    WouldChange,
    /// The change was begun before, and would be completed.
    WouldComplete,
    /// Both stores have the change now.
    Changed,
    /// The change was begun before, and both stores have it now.
    Completed,
    /// Both stores had the change before.
    DoneBefore,
    /// Neither store has the change, for a reason.
    Refused,
    /// One store may have the change and the other may not: the same request completes it.
    Unfinished,
}

/// The reason why a change must not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockRefusal {
    /// The reason as a sentence.
    pub reason: String,
    /// The request to make instead, if there is one.
    pub instead: Option<Instead>,
}

/// The request to make if a change must not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The request completes another change, which has to come first.
    First(StockChangeRequest),
    /// The request makes the same change once more.
    OnceMore(StockChangeRequest),
}

/// A voucher whose stock changes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StockSide {
    /// The name of the region, as the operator gives it; `it` if there is only one voucher.
    #[serde(rename = "region")]
    pub name: String,
    /// The id of the voucher; None: there is no such region.
    pub voucher: Option<VoucherId>,
    /// The units left in Redis before the change.
    pub redis_stock: Option<i64>,
    /// The units left in MySQL before the change.
    pub mysql_stock: Option<i64>,
    /// The part of the change for this voucher; None if the change is refused.
    pub change: Option<StockChange>,
    /// The units to add; negative: to take.
    #[serde(skip)]
    units: i64,
    #[serde(skip)]
    row: Option<VoucherRow>,
    /// Whether the voucher moves to another partition; only a transfer checks this.
    #[serde(skip)]
    is_moving: bool,
    /// The note that Redis has now; None: it has none.
    #[serde(skip)]
    last: Option<StockChange>,
}

/// The plan and the report of a change of the stock.
#[derive(Clone, Debug)]
pub struct StockChangeState {
    /// The request that led to this change.
    pub request: StockChangeRequest,
    /// The voucher; or the region that gives units, then the one that gets them.
    pub sides: Vec<StockSide>,
    /// The outcome, planned or done.
    pub outcome: StockOutcome,
    /// The reason of a refusal, or the changes that came later.
    pub reason: Option<String>,
    /// The request to make instead, if the change must not begin.
    pub instead: Option<Instead>,
    /// The region whose note of an open transfer Redis has lost.
    pub lost: Option<String>,
}

impl Serialize for StockChangeState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, outcome, reason, .. } = self;
        let mut map = serializer.serialize_map(None)?;
        match (&request.stocks, &self.sides[..]) {
            (ChangedStocks::Between(transfer), [from, to]) => {
                map.serialize_entry("campaign", &transfer.campaign)?;
                map.serialize_entry("units", &request.units)?;
                map.serialize_entry("from", from)?;
                map.serialize_entry("to", to)?;
                match outcome {
                    StockOutcome::WouldChange => map.serialize_entry("outcome", "would_move")?,
                    StockOutcome::Changed => map.serialize_entry("outcome", "moved")?,
                    _ => map.serialize_entry("outcome", outcome)?,
                }
                map.serialize_entry("reason", reason)?;
            }
            (ChangedStocks::Of(voucher), [side]) => {
                map.serialize_entry("voucher", voucher)?;
                map.serialize_entry("units", &request.units)?;
                map.serialize_entry("outcome", outcome)?;
                map.serialize_entry("reason", reason)?;
                map.serialize_entry("redis_stock", &side.redis_stock)?;
                map.serialize_entry("mysql_stock", &side.mysql_stock)?;
                map.serialize_entry("change", &side.change)?;
            }
            _ => {}
        }
        map.end()
    }
}

impl StockChangeState {
    /// Returns the state that applies until all steps are known to be done: one store may have the change.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        Self { outcome: StockOutcome::Unfinished, ..self.clone() }
    }

    /// Returns the part of the change for the voucher that gives units, or for the only one.
    fn change(&self) -> Option<&StockChange> {
        self.sides.first()?.change.as_ref()
    }

    /// Returns the request that completes the change; None if there is no change.
    #[must_use]
    pub fn rest(&self) -> Option<StockChangeRequest> {
        Some(self.request.with_initial_stock(self.change()?.before))
    }

    /// Describes which operator began the change and when; empty if there is no change.
    #[must_use]
    pub fn begun(&self) -> String {
        self.change().map(described).unwrap_or_default()
    }
}

impl Plan for StockChangeState {
    fn next(&self) -> Next {
        let units = counted(self.request.units.abs(), "unit");
        let (this, make) = match &self.request.stocks {
            ChangedStocks::Of(voucher) => {
                let (verb, to) = if self.request.units > 0 { ("Add", "to") } else { ("Take", "from") };
                (format!("change of voucher {voucher}"), format!("{verb} {units} {to} voucher {voucher}?"))
            }
            ChangedStocks::Between(StockTransfer { from, to, .. }) => {
                (format!("move from {from} to {to}"), format!("Move {units} from {from} to {to}?"))
            }
        };
        match self.outcome {
            StockOutcome::Refused => Next::Refused,
            StockOutcome::DoneBefore => Next::NothingToDo,
            StockOutcome::WouldComplete if self.lost.is_some() => {
                Next::Ask(format!("End this {this}, although one of its notes is lost?"))
            }
            StockOutcome::WouldComplete => Next::Ask(format!("Complete this {this}?")),
            _ => Next::Ask(make),
        }
    }
}

impl Report for StockChangeState {
    fn counts(&self) -> Json {
        let is_done = matches!(self.outcome, StockOutcome::Changed | StockOutcome::Completed);
        json!({ "units": if is_done { self.request.units } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.outcome == StockOutcome::Refused { Ending::Refused } else { Ending::Done }
    }
}

/// Reads both stores, and changes nothing. A new change is noted as begun `by` this name.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(
    stores: &VoucherStores,
    request: StockChangeRequest,
    by: &str,
) -> anyhow::Result<StockChangeState> {
    let (mut sides, known) = match &request.stocks {
        ChangedStocks::Of(voucher) => {
            (vec![read_side(stores, ("it", request.units), Some(*voucher)).await?], Vec::new())
        }
        ChangedStocks::Between(StockTransfer { campaign, from, to }) => {
            let regions = limit_rows::regions(stores.mysql(), *campaign).await;
            let regions = regions.context("Failed to read the campaign in MySQL")?;
            let mut sides = Vec::new();
            for (name, units) in [(from, -request.units), (to, request.units)] {
                let voucher = regions.iter().find(|(region, _)| region == name).map(|(_, voucher)| *voucher);
                let mut side = read_side(stores, (name, units), voucher).await?;
                if let Some(voucher) = voucher {
                    let size = stores.redis.repairs().sale_size(voucher).await.context(FAILED)?;
                    side.is_moving = size.is_closed || size.is_gone;
                }
                sides.push(side);
            }
            (sides, regions.into_iter().map(|(region, _)| region).collect())
        }
    };
    let (found, refusal) = match precondition::check(&request, &sides, &known, by) {
        Ok(found) => (found, None),
        Err(refusal) => (Found::refused(), Some(refusal)),
    };
    let Found { outcome, whole, lost } = found;
    for (side, (_, change)) in sides.iter_mut().zip(whole.sides) {
        side.change = Some(change);
    }
    let lost = lost.and_then(|lost| sides.get(lost)).map(|side| side.name.clone());
    let (reason, instead) = refusal.map(|it| (it.reason, it.instead)).unzip();
    Ok(StockChangeState { request, sides, outcome, reason, instead: instead.flatten(), lost })
}

const FAILED: &str = "Failed to read the voucher in Redis";

async fn read_side(
    stores: &VoucherStores,
    (name, units): (&str, i64),
    voucher: Option<VoucherId>,
) -> anyhow::Result<StockSide> {
    let mut side = StockSide { name: name.to_owned(), voucher, units, ..StockSide::default() };
    if let Some(voucher) = voucher {
        // The note is read first: the rest is at least as new, and if a change was made since, the note makes Redis
        // refuse.
        side.last = stores.redis.sales().read_change(voucher).await.context(FAILED)?;
        side.redis_stock = stores.state(voucher).await?.stock;
        side.row = stores.row(voucher).await?;
        side.mysql_stock = side.row.as_ref().map(|row| row.stock);
    }
    Ok(side)
}

/// Makes the planned change, and fills `report`, which begins as [`StockChangeState::unfinished`].
///
/// # Errors
/// If the result of a step is unknown. The report is then that of an unfinished change.
pub async fn run(
    stores: &VoucherStores,
    plan: &StockChangeState,
    report: &mut StockChangeState,
) -> anyhow::Result<()> {
    let sides = plan.sides.iter().map(|side| Some((side.voucher?, side.change.clone()?)));
    let Some(sides) = sides.collect() else { return Ok(()) };
    let whole = WholeChange { sides };
    let steps = steps::Steps { stores, whole: &whole, sides: &plan.sides };
    let (outcome, reason) = match plan.outcome {
        StockOutcome::WouldChange => steps.begin_and_complete().await,
        _ => steps.complete(StockOutcome::Completed).await,
    };
    report.outcome = outcome;
    for side in &mut report.sides {
        side.change = side.change.take().filter(|_| outcome != StockOutcome::Refused);
        if let Some(change) = &mut side.change
            && outcome != StockOutcome::Unfinished
        {
            change.state = ChangeState::Done;
        }
    }
    match (outcome, reason) {
        (StockOutcome::Unfinished, Some(error)) => Err(anyhow::Error::msg(error)),
        (_, reason) => {
            report.reason = reason;
            Ok(())
        }
    }
}

/// Describes a change: `500 units added by alice@shop at 2026-11-20T10:00:00Z`.
#[must_use]
pub fn described(change: &StockChange) -> String {
    let units = counted(change.units.abs(), "unit");
    format!("{units} {} by {} at {:.0}", added_or_taken(change.units), change.by, change.at)
}

/// Returns `added`, or `taken` if the units are negative.
#[must_use]
pub const fn added_or_taken(units: i64) -> &'static str {
    if units > 0 { "added" } else { "taken" }
}
