//! Moves units from one region of a campaign to another, on both sides, while both are sold.
//!
//! Three steps, as those of a change of one stock ([`crate::vouchers::restock`]): Redis notes the move as open with both vouchers and gives
//! up the units, MySQL has both sides of it in one transaction, Redis notes that it is done and gets the units. So Redis never offers
//! what MySQL does not have, and the same request again takes the steps that are missing.

mod precondition;
mod steps;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    CampaignId, VoucherId,
    gate::{RegionMove, StockChange, Transfer},
    limit_rows,
};

use self::precondition::Side;
pub use self::precondition::TransferRefusal;
use crate::{
    change::{Ending, Next, Plan, Report},
    text::counted,
    vouchers::VoucherStores,
};

/// Units that are to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// The campaign.
    pub campaign: CampaignId,
    /// The region that gives.
    pub from: String,
    /// The region that gets.
    pub to: String,
    /// How many.
    pub units: i64,
    /// What the initial stock of the region that gives has to be in MySQL: so the same request moves them once.
    pub initial_stock: Option<i64>,
}

/// What a move came to, or would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferOutcome {
    /// It can be made.
    WouldMove,
    /// It was begun before, and would be completed.
    WouldComplete,
    /// Both sides have it.
    Moved,
    /// It was begun before; now both sides have it.
    Completed,
    /// Both sides have it already.
    DoneBefore,
    /// Neither side has it, for a reason.
    Refused,
    /// One side may have it and the other not: the same request again completes it.
    Unfinished,
}

/// A region of a move.
#[derive(Clone, Debug, Serialize)]
pub struct TransferSide {
    /// Its name.
    pub region: String,
    /// Its voucher; None: there is no such region.
    pub voucher: Option<VoucherId>,
    /// Units left in Redis, before the move.
    pub redis_stock: Option<i64>,
    /// Units left in MySQL, before the move.
    pub mysql_stock: Option<i64>,
    /// Its side of the move; None where it is refused.
    pub change: Option<StockChange>,
}

/// What was found, or done.
#[derive(Clone, Debug, Serialize)]
pub struct TransferState {
    /// The campaign.
    pub campaign: CampaignId,
    /// How many units.
    pub units: i64,
    /// The region that gives.
    pub from: TransferSide,
    /// The region that gets.
    pub to: TransferSide,
    /// What comes of it.
    pub outcome: TransferOutcome,
    /// Why it must not begin.
    #[serde(skip)]
    pub refusal: Option<TransferRefusal>,
    /// Why it is refused.
    pub reason: Option<String>,
    /// The notes that Redis had when it was planned.
    #[serde(skip)]
    last: [Option<StockChange>; 2],
}

impl TransferState {
    /// What is so until all steps are known to be done: one side may have it.
    #[must_use]
    pub fn unfinished(&self) -> Self {
        Self { outcome: TransferOutcome::Unfinished, ..self.clone() }
    }

    /// What completes the move; None where there is none.
    #[must_use]
    pub fn rest(&self) -> Option<TransferRequest> {
        Some(TransferRequest {
            campaign: self.campaign,
            from: self.from.region.clone(),
            to: self.to.region.clone(),
            units: self.units,
            initial_stock: Some(self.from.change.as_ref()?.before),
        })
    }

    fn transfer(&self) -> Option<Transfer> {
        let side = |side: &TransferSide| Some((side.voucher?, side.change.clone()?));
        Some(Transfer { giver: side(&self.from)?, taker: side(&self.to)? })
    }
}

impl Plan for TransferState {
    fn next(&self) -> Next {
        let (units, from, to) = (counted(self.units, "unit"), &self.from.region, &self.to.region);
        match self.outcome {
            TransferOutcome::Refused => Next::Refused,
            TransferOutcome::DoneBefore => Next::NothingToDo,
            TransferOutcome::WouldComplete => Next::Ask(format!("Complete this move from {from} to {to}?")),
            _ => Next::Ask(format!("Move {units} from {from} to {to}?")),
        }
    }
}

impl Report for TransferState {
    fn counts(&self) -> Json {
        let is_done = matches!(self.outcome, TransferOutcome::Moved | TransferOutcome::Completed);
        json!({ "units": if is_done { self.units } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.outcome == TransferOutcome::Refused { Ending::Refused } else { Ending::Done }
    }
}

/// Looks at both sides, and changes nothing. A new move is noted as begun `by` this name.
///
/// # Errors
/// When a store does not answer.
pub async fn plan(
    stores: &VoucherStores,
    request: TransferRequest,
    by: &str,
) -> anyhow::Result<TransferState> {
    let regions = limit_rows::regions(stores.mysql(), request.campaign).await;
    let regions = regions.context("Failed to read the campaign in MySQL")?;
    let from = read_side(stores, &regions, &request.from).await?;
    let to = read_side(stores, &regions, &request.to).await?;
    let TransferRequest { campaign, units, initial_stock, .. } = request;
    let moved = RegionMove { campaign, from: request.from.clone(), to: request.to.clone() };
    let found = precondition::check((&moved, units, initial_stock), (&from, &to), &regions);
    let (outcome, transfer, refusal) = match found {
        Ok(precondition::Found::New([giver, taker])) => {
            let transfer = Transfer::new(units, giver, taker, (&moved, by));
            (TransferOutcome::WouldMove, Some(transfer), None)
        }
        Ok(precondition::Found::Begun(transfer)) => (TransferOutcome::WouldComplete, Some(transfer), None),
        Ok(precondition::Found::Done(transfer)) => (TransferOutcome::DoneBefore, Some(transfer), None),
        Err(refusal) => (TransferOutcome::Refused, None, Some(refusal)),
    };
    let (gives, gets) = transfer.map(|it| (it.giver.1, it.taker.1)).unzip();
    let last = [from.last.clone(), to.last.clone()];
    let (from, to) = (shown(from, gives), shown(to, gets));
    let reason = refusal.as_ref().map(ToString::to_string);
    Ok(TransferState { campaign, units, from, to, outcome, refusal, reason, last })
}

async fn read_side(
    stores: &VoucherStores,
    regions: &[(String, VoucherId)],
    name: &str,
) -> anyhow::Result<Side> {
    let voucher = regions.iter().find(|(region, _)| region == name).map(|(_, voucher)| *voucher);
    let mut side = Side { region: name.to_owned(), voucher, ..Side::default() };
    if let Some(voucher) = voucher {
        const FAILED: &str = "Failed to read the voucher in Redis";
        // Before all else: what is read after it is at least as new.
        side.last = stores.gate.read_change(voucher).await.context(FAILED)?;
        side.redis_stock = stores.state(voucher).await?.stock;
        let size = stores.gate.sale_size(voucher).await.context(FAILED)?;
        side.is_moving = size.is_closed || size.is_gone;
        side.row = stores.row(voucher).await?;
    }
    Ok(side)
}

fn shown(side: Side, change: Option<StockChange>) -> TransferSide {
    let Side { region, voucher, redis_stock, row, .. } = side;
    TransferSide { region, voucher, redis_stock, mysql_stock: row.map(|row| row.stock), change }
}

/// Makes the move that was planned, and fills `report`, which begins as [`TransferState::unfinished`].
///
/// # Errors
/// When it is unknown what became of a step. The report is that of an unfinished move then.
pub async fn run(
    stores: &VoucherStores,
    plan: TransferState,
    report: &mut TransferState,
) -> anyhow::Result<()> {
    let Some(transfer) = plan.transfer() else { return Ok(()) };
    let steps = steps::Steps { stores, transfer: &transfer };
    let (outcome, reason) = match plan.outcome {
        TransferOutcome::WouldMove => {
            let [giver, taker] = &plan.last;
            steps.begin_and_complete([giver.as_ref(), taker.as_ref()]).await
        }
        _ => steps.complete(TransferOutcome::Completed).await,
    };
    report.outcome = outcome;
    if outcome == TransferOutcome::Refused {
        (report.from.change, report.to.change) = (None, None);
    }
    match (outcome, reason) {
        (TransferOutcome::Unfinished, Some(error)) => Err(anyhow::Error::msg(error)),
        (_, reason) => {
            report.reason = reason;
            Ok(())
        }
    }
}
