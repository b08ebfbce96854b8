//! Units that are added to a sale, taken from it, or moved from one sale to another, in both stores. Redis keeps a note of
//! the change with each sale, open until both stores have it. Whoever finds it open completes it. So a change that died
//! half-way is neither lost nor made twice.

use fred::interfaces::HashesInterface;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gate::{GateError, Sales, understood};
use crate::order::{CampaignId, VoucherId};

const CHANGE: &str = "change";
/// Who changes a stock, for the journal; the note says more.
const JOURNALED_BY: &str = "operator:restock";
/// Who moves units, for both journals.
const TRANSFER_JOURNALED_BY: &str = "operator:voucher_transfer";

/// A change of a voucher's stock on both sides: what the note of it says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StockChange {
    /// Tells it from every other.
    pub id: String,
    /// Units that are added; below 0: taken.
    pub units: i64,
    /// The initial stock in MySQL before it: whether MySQL has the change is seen by that.
    pub before: i64,
    /// How far it is.
    pub state: ChangeState,
    /// Who began it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// It is one side of a transfer, which only the command for that completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Box<NotedTransfer>>,
}

/// From where to where units move.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StockTransfer {
    /// The campaign.
    pub campaign: CampaignId,
    /// The region that gives.
    pub from: String,
    /// The region that gets.
    pub to: String,
}

/// What the notes of both sides say of a transfer: all of it, so one is enough to tell the other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct NotedTransfer {
    /// From where to where.
    #[serde(flatten)]
    pub transfer: StockTransfer,
    /// The initial stock in MySQL of the region that gives, before it.
    pub giver_before: i64,
    /// That of the region that gets.
    pub taker_before: i64,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// One side may have it and the other not.
    Open,
    /// Both sides have it.
    Done,
    /// MySQL refused it, and neither side has it.
    #[serde(alias = "withdrawn")] // in journals of earlier versions
    Cancelled,
}

impl StockChange {
    /// A change that begins now.
    #[must_use]
    pub fn new(units: i64, before: i64, by: String) -> Self {
        let id = format!("{:032x}", rand::random::<u128>());
        Self { id, units, before, state: ChangeState::Open, by, at: Timestamp::now(), moved: None }
    }

    /// The same, further on.
    #[must_use]
    pub fn with_state(&self, state: ChangeState) -> Self {
        Self { state, ..self.clone() }
    }

    /// The initial stock in MySQL after it.
    #[must_use]
    pub const fn after(&self) -> i64 {
        self.before.saturating_add(self.units)
    }

    /// The units that Redis gets with a note of this state: less what is taken when the change begins, what is added when it is
    /// done. A change that is cancelled releases what it took.
    fn redis_units(&self) -> i64 {
        match self.state {
            ChangeState::Open => self.units.min(0),
            ChangeState::Done => self.units.max(0),
            ChangeState::Cancelled => -self.units.min(0),
        }
    }

    /// The words of the note. The same change has the same ones, whoever writes them.
    fn note(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// A change with all its sides: the one of the only voucher; or those of the voucher that gives and of the one that gets, in
/// this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeChange {
    /// Each voucher, and what is noted with it.
    pub sides: Vec<(VoucherId, StockChange)>,
}

impl WholeChange {
    /// The change that is noted with one of these vouchers: with the only one, or with the one that gives or the one that gets.
    #[must_use]
    pub fn of_note(note: &StockChange, vouchers: &[VoucherId]) -> Self {
        let side = |voucher, units, before| (voucher, StockChange { units, before, ..note.clone() });
        let sides = match (note.moved.as_deref(), vouchers) {
            (Some(moved), [giver, taker]) => {
                let units = note.units.saturating_abs();
                vec![side(*giver, -units, moved.giver_before), side(*taker, units, moved.taker_before)]
            }
            _ => vouchers.iter().map(|voucher| side(*voucher, note.units, note.before)).collect(),
        };
        Self { sides }
    }

    /// The same, further on.
    #[must_use]
    pub fn with_state(&self, state: ChangeState) -> Self {
        let sides = self.sides.iter().map(|(voucher, change)| (*voucher, change.with_state(state)));
        Self { sides: sides.collect() }
    }

    /// The sides but for that of this voucher.
    #[must_use]
    pub fn without(&self, lost: Option<VoucherId>) -> Self {
        let sides = self.sides.iter().filter(|(voucher, _)| Some(*voucher) != lost);
        Self { sides: sides.cloned().collect() }
    }
}

/// What became of a step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeReply {
    /// Done, now or since before.
    Done,
    /// Refused: somebody else has noted something else.
    OtherNote,
    /// Refused: Redis has no stock of it.
    NoStock,
    /// Refused: fewer units are left than are to be taken.
    TooFew,
    /// Refused: one of two vouchers was delisted, or is on its way to another partition.
    Over,
}

impl ChangeReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 | 1 => Self::Done,
            2 => Self::OtherNote,
            3 => Self::NoStock,
            4 => Self::TooFew,
            5 => Self::Over,
            _ => return None,
        })
    }
}

impl Sales {
    /// The last change of a voucher's stock; None: there was none.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn read_change(&self, voucher: VoucherId) -> Result<Option<StockChange>, GateError> {
        let key = self.access.keys.voucher(voucher);
        let note: Option<String> = self.access.pool.hget(&key, CHANGE).await?;
        let unexpected = |got: &str| GateError::Unexpected {
            place: format!("the field {CHANGE} of {}", key.as_str_lossy()),
            got: got.to_owned(),
        };
        note.map(|note| serde_json::from_str(&note).map_err(|_| unexpected(&note))).transpose()
    }

    /// Writes the notes of all sides in the place of those before, and changes the stocks in Redis as the state says that stands
    /// there now. All, or none. A change of units is journaled, where a voucher has a journal.
    ///
    /// # Errors
    /// See [`GateError`]. May be called again: the notes tell whether it was done.
    pub async fn note_change(
        &self,
        before: &[Option<StockChange>],
        now: &WholeChange,
    ) -> Result<ChangeReply, GateError> {
        let (name, script, by) = match now.sides.len() {
            1 => ("adjust_stock.lua", &self.adjust_stock, JOURNALED_BY),
            _ => ("transfer.lua", &self.transfer, TRANSFER_JOURNALED_BY),
        };
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for ((voucher, change), before) in now.sides.iter().zip(before) {
            let (voucher, its) = (*voucher, &self.access.keys);
            keys.extend([
                its.stock(voucher),
                its.voucher(voucher),
                its.journal(voucher),
                its.limited(voucher),
            ]);
            let before = before.as_ref().map_or_else(String::new, StockChange::note);
            args.extend([before.into(), change.note().into(), change.redis_units().to_string().into()]);
        }
        args.extend(now.sides.first().map(|(_, change)| change.id.as_str().into()));
        args.push(by.into());
        let reply = script.call(&self.access.pool, keys, args).await?;
        understood(name, &reply, ChangeReply::from_code)
    }

    /// Notes that an open change is done or cancelled.
    ///
    /// # Errors
    /// As [`Sales::note_change`].
    pub async fn end_change(&self, open: &WholeChange, state: ChangeState) -> Result<ChangeReply, GateError> {
        let before: Vec<_> = open.sides.iter().map(|(_, change)| Some(change.clone())).collect();
        self.note_change(&before, &open.with_state(state)).await
    }
}
