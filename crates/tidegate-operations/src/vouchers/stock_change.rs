//! Changes the stock of a sale in both stores: adds, takes, or moves units from one region of a campaign to another.
//! There are three steps. Redis notes the change as open, and removes the units that are taken. MySQL makes the change
//! in one transaction. Redis notes that the change is done, and gets the units that are added. So Redis never offers
//! units that MySQL does not have. [`plan`] reads the stores. [`run`] takes the steps that are missing, each only once.

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

/// The request to add units to a voucher, to take units from it, or to move units between two vouchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockChangeRequest {
    /// The voucher or vouchers whose stocks change.
    pub stocks: ChangedStocks,
    /// The number of units to add or to move; for a negative number, the number of units to take.
    pub units: i64,
    /// The total number of units ever added, as MySQL must store it before the change, so that a repeated request
    /// changes nothing. For a transfer, this number belongs to the region that gives units. None: any number.
    pub initial_stock: Option<i64>,
}

/// The voucher or vouchers whose stocks change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedStocks {
    /// Units are added to this voucher, or taken from it.
    Of(VoucherId),
    /// Units move from one region to another.
    Between(StockTransfer),
}

impl StockChangeRequest {
    /// Creates the request that completes an unfinished change of the stock, from the note of this change in Redis.
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

/// The planned or actual result of a change of the stock.
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

/// The reason why a change of the stock is refused, with a request that would be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StockRefusal {
    /// The reason of the refusal as a sentence.
    pub reason: String,
    /// A request that would be accepted; None: no other request helps.
    pub instead: Option<Instead>,
}

/// A request that an operator can make instead of a refused change of the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The request completes another change, which has to come first.
    First(StockChangeRequest),
    /// The request makes the same change once more.
    OnceMore(StockChangeRequest),
}

/// A voucher whose stock changes, with its stocks before the change.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StockSide {
    /// The name of the region, as the operator typed it; `the voucher` if only one stock changes.
    #[serde(rename = "region")]
    pub name: String,
    /// The id of the voucher; None: the campaign has no region of this name.
    pub voucher: Option<VoucherId>,
    /// The number of units left in Redis before the change.
    pub redis_stock: Option<i64>,
    /// The number of units left in MySQL before the change.
    pub mysql_stock: Option<i64>,
    /// The change of this voucher's stock; None: the change is refused.
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

/// The plan or the report of a change of the stock.
#[derive(Clone, Debug)]
pub struct StockChangeState {
    /// The request to change the stock.
    pub request: StockChangeRequest,
    /// The voucher whose stock changes. For a transfer: the region that gives units, then the region that gets them.
    pub sides: Vec<StockSide>,
    /// The planned or actual result of the request.
    pub outcome: StockOutcome,
    /// The reason why the change is refused or unfinished, or the changes that other operators made later.
    pub reason: Option<String>,
    /// A request that would be accepted instead of the refused request; None: no other request helps.
    pub instead: Option<Instead>,
    /// The name of the region for which Redis has lost the note of an unfinished transfer.
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
    /// Returns this state with the outcome "unfinished", which is right until both stores confirm the change.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        Self { outcome: StockOutcome::Unfinished, ..self.clone() }
    }

    /// Returns the part of the change for the voucher that gives units, or for the only one.
    fn change(&self) -> Option<&StockChange> {
        self.sides.first()?.change.as_ref()
    }

    /// Returns the request that completes the change; None: there is no change to complete.
    #[must_use]
    pub fn rest(&self) -> Option<StockChangeRequest> {
        Some(self.request.with_initial_stock(self.change()?.before))
    }

    /// Formats the name of the operator who began the change, and the time; empty if there is no change.
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
                Next::Ask(format!("End this {this}, although Redis has lost a note of it?"))
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

/// Reads the stocks in Redis and MySQL and plans the change. The note of a new change names the operator `by`.
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
            (vec![read_side(stores, ("the voucher", request.units), Some(*voucher)).await?], Vec::new())
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

/// Changes the stocks as planned, and fills `report`. Until both stores have the change, the outcome in `report` is
/// "unfinished".
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

/// Formats a change of the stock: `500 units added by alice@shop at 2026-11-20T10:00:00Z`.
#[must_use]
pub fn described(change: &StockChange) -> String {
    let units = counted(change.units.abs(), "unit");
    format!("{units} {} by {} at {:.0}", added_or_taken(change.units), change.by, change.at)
}

/// Returns the word `added`, or `taken` if the number of units is negative.
#[must_use]
pub const fn added_or_taken(units: i64) -> &'static str {
    if units > 0 { "added" } else { "taken" }
}
