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
use tidegate_compare::text::counted;
use tidegate_orders::{
    CampaignId, VoucherId,
    gate::{RegionMove, StockChange, Transfer},
    limit_rows,
    transfer::Kept,
};

pub use self::precondition::TransferRefusal;
use self::precondition::{Found, Side};
use crate::{
    change::{Ending, Next, Plan, Report},
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

impl TransferRequest {
    /// It is asked for from where and to where this note says.
    fn is_of(&self, note: &StockChange) -> bool {
        let Self { campaign, from, to, .. } = self;
        note.moved.as_ref().is_some_and(|it| (it.campaign, &it.from, &it.to) == (*campaign, from, to))
    }

    fn begin(&self, [giver_before, taker_before]: [i64; 2], vouchers: [VoucherId; 2], by: &str) -> Transfer {
        let (campaign, from, to) = (self.campaign, self.from.clone(), self.to.clone());
        Transfer::new(self.units, vouchers, RegionMove { campaign, from, to, giver_before, taker_before }, by)
    }
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
    /// The one note that Redis has of it, where it has lost the other.
    #[serde(skip)]
    kept: Option<Kept>,
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
        Some(self.asked(Some(self.from.change.as_ref()?.before)))
    }

    /// The same move, if the initial stock of the region that gives is this.
    #[must_use]
    pub fn asked(&self, initial_stock: Option<i64>) -> TransferRequest {
        let (from, to) = (self.from.region.clone(), self.to.region.clone());
        TransferRequest { campaign: self.campaign, from, to, units: self.units, initial_stock }
    }

    /// The region whose note of a move that is open Redis has lost.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        Some(match self.kept? {
            Kept::Giver => &self.to.region,
            Kept::Taker => &self.from.region,
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
            TransferOutcome::WouldComplete if self.kept.is_some() => {
                Next::Ask(format!("End this move from {from} to {to}, of which one note is lost?"))
            }
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
    let found = precondition::check(&request, (&from, &to), &regions);
    let vouchers = from.voucher.zip(to.voucher).map(<[VoucherId; 2]>::from);
    let (outcome, transfer, kept, refusal) = match found {
        Ok(Found::New(initials)) => {
            let transfer = vouchers.map(|vouchers| request.begin(initials, vouchers, by));
            (TransferOutcome::WouldMove, transfer, None, None)
        }
        Ok(Found::Begun(transfer)) => (TransferOutcome::WouldComplete, Some(transfer), None, None),
        Ok(Found::Half { transfer, kept }) => {
            (TransferOutcome::WouldComplete, Some(transfer), Some(kept), None)
        }
        Ok(Found::Done(transfer)) => (TransferOutcome::DoneBefore, Some(transfer), None, None),
        Err(refusal) => (TransferOutcome::Refused, None, None, Some(refusal)),
    };
    let (gives, gets) = transfer.map(|it| (it.giver.1, it.taker.1)).unzip();
    let last = [from.last.clone(), to.last.clone()];
    let (from, to) = (shown(from, gives), shown(to, gets));
    let reason = refusal.as_ref().map(ToString::to_string);
    let TransferRequest { campaign, units, .. } = request;
    Ok(TransferState { campaign, units, from, to, outcome, refusal, reason, kept, last })
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
        side.last = stores.redis.sales().read_change(voucher).await.context(FAILED)?;
        side.redis_stock = stores.state(voucher).await?.stock;
        let size = stores.redis.repairs().sale_size(voucher).await.context(FAILED)?;
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
        _ => match plan.kept {
            Some(kept) => steps.end_by_one_note(kept, plan.lost().unwrap_or_default()).await,
            None => steps.complete(TransferOutcome::Completed).await,
        },
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
