//! Changes of stock in both stores: units that are added to a sale, taken from it, or moved from one sale to another.
//!
//! Redis keeps a note of the change with each sale. The note is open until both stores have the change. A program that
//! finds an open note completes the change. So if a program dies half-way, its change is neither lost nor made twice.

use fred::interfaces::HashesInterface;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::order::{CampaignId, VoucherId};
use crate::scripts::{Sales, ScriptError, understood};

const CHANGE: &str = "change";
/// The author of a stock change, for the journal. The note says more.
const JOURNALED_BY: &str = "operator:restock";
/// The author of a stock that a shop changed in MySQL, for the journal.
const CARRIED_BY: &str = "worker:calendar";
/// The author of a transfer, for both journals.
const TRANSFER_JOURNALED_BY: &str = "operator:voucher_transfer";

/// The note in Redis about a change of a voucher's stock by an operator. The change must be made in both stores.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StockChange {
    /// The id of the stock change, which no other change has.
    pub id: String,
    /// The number of units that the change adds to the stock. The number is below 0 if the change takes units.
    pub units: i64,
    /// The initial stock (the total units of the sale) in MySQL before the change. This number shows whether MySQL
    /// already has the change.
    pub before: i64,
    /// The state of the stock change: open, done or cancelled.
    pub state: ChangeState,
    /// The operator or the program that began the change.
    pub by: String,
    /// The time at which the change began.
    pub at: Timestamp,
    /// The transfer of units between two regions of a campaign, if the change is a part of a transfer. In this case,
    /// only the command for transfers can complete the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Box<RecordedTransfer>>,
}

/// The two regions of a campaign between which units are transferred.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct StockTransfer {
    /// The campaign that both regions belong to.
    pub campaign: CampaignId,
    /// The region that gives the units.
    pub from: String,
    /// The region that gets the units.
    pub to: String,
}

/// A transfer of units between two regions, as the notes of both regions in Redis record it. Each note contains the
/// whole transfer, so the other note can be restored from it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RecordedTransfer {
    /// The two regions of the transfer.
    #[serde(flatten)]
    pub transfer: StockTransfer,
    /// The initial stock (the total units) in MySQL of the region that gives units, before the transfer.
    pub giver_before: i64,
    /// The initial stock (the total units) in MySQL of the region that gets units, before the transfer.
    pub taker_before: i64,
}

/// The state of a stock change: open, done or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// One store may have the change and the other not.
    Open,
    /// Both stores have the change.
    Done,
    /// MySQL refused the change, and neither store has it.
    #[serde(alias = "withdrawn")] // in notes of earlier versions
    Cancelled,
}

impl StockChange {
    /// Creates a stock change that begins now.
    #[must_use]
    pub fn new(units: i64, before: i64, by: String) -> Self {
        let id = format!("{:032x}", rand::random::<u128>());
        Self { id, units, before, state: ChangeState::Open, by, at: Timestamp::now(), moved: None }
    }

    /// Returns a copy of the stock change with another state.
    #[must_use]
    pub fn with_state(&self, state: ChangeState) -> Self {
        Self { state, ..self.clone() }
    }

    /// The initial stock (the total units of the sale) in MySQL after the change.
    #[must_use]
    pub const fn after(&self) -> i64 {
        self.before.saturating_add(self.units)
    }

    /// The units that Redis gets with a note of this state. Units are taken when the change begins, and added when it
    /// is done. A cancelled change returns what it took.
    fn redis_units(&self) -> i64 {
        match self.state {
            ChangeState::Open => self.units.min(0),
            ChangeState::Done => self.units.max(0),
            ChangeState::Cancelled => -self.units.min(0),
        }
    }

    /// The text of the note. The same change has the same text, whichever program writes it.
    fn note(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// A change of stock with the notes of all its vouchers: one voucher, or two for a transfer. In a transfer, the first
/// voucher gives units, and the second gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeChange {
    /// The vouchers of the change, each with its note in Redis.
    pub sides: Vec<(VoucherId, StockChange)>,
}

impl WholeChange {
    /// Makes the whole change from the note of one voucher. `vouchers` contains the voucher of the change, or for a
    /// transfer, the voucher that gives units and then the voucher that gets them.
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

    /// Returns a copy of the whole change, with another state in all notes.
    #[must_use]
    pub fn with_state(&self, state: ChangeState) -> Self {
        let sides = self.sides.iter().map(|(voucher, change)| (*voucher, change.with_state(state)));
        Self { sides: sides.collect() }
    }

    /// Returns a copy of the whole change, without the note of the given voucher.
    #[must_use]
    pub fn without(&self, lost: Option<VoucherId>) -> Self {
        let sides = self.sides.iter().filter(|(voucher, _)| Some(*voucher) != lost);
        Self { sides: sides.cloned().collect() }
    }
}

/// The reply to a call that notes a step of a stock change in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeReply {
    /// The step is done, by this call or an earlier one.
    Done,
    /// Refused: another program has written another note.
    OtherNote,
    /// Refused: Redis has no stock of the voucher.
    NoStock,
    /// Refused: fewer units are left than are to be taken.
    TooFew,
    /// Refused: one of two vouchers was delisted, or is moving to another partition.
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
    /// Reads the note about the last change of a voucher's stock from Redis. `None` if the stock was never changed.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_change(&self, voucher: VoucherId) -> Result<Option<StockChange>, ScriptError> {
        let key = self.access.keys.voucher(voucher);
        let note: Option<String> = self.access.pool.hget(&key, CHANGE).await?;
        let unexpected = |got: &str| ScriptError::Unexpected {
            place: format!("the field {CHANGE} of {}", key.as_str_lossy()),
            got: got.to_owned(),
        };
        note.map(|note| serde_json::from_str(&note).map_err(|_| unexpected(&note))).transpose()
    }

    /// Writes the notes about a change for all its vouchers, and changes the stocks in Redis as the new state of the
    /// change requires. Does all of this or nothing. If a voucher has a journal (a Redis hash), the journal notes the
    /// units.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated: the notes show whether it was done.
    pub async fn note_change(
        &self,
        before: &[Option<StockChange>],
        now: &WholeChange,
    ) -> Result<ChangeReply, ScriptError> {
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

    /// Changes a stock in Redis by units that MySQL has already, and writes the note of the change, which is done.
    ///
    /// # Errors
    /// As [`Sales::note_change`].
    pub(crate) async fn carry_change(
        &self,
        voucher: VoucherId,
        before: Option<&StockChange>,
        done: &StockChange,
    ) -> Result<ChangeReply, ScriptError> {
        let its = &self.access.keys;
        let keys = vec![its.stock(voucher), its.voucher(voucher), its.journal(voucher), its.limited(voucher)];
        let before = before.map_or_else(String::new, StockChange::note);
        let units = done.units.to_string();
        let args =
            [before, done.note(), units, done.id.clone(), CARRIED_BY.to_owned()].map(Into::into).into();
        let reply = self.adjust_stock.call(&self.access.pool, keys, args).await?;
        understood("adjust_stock.lua", &reply, ChangeReply::from_code)
    }

    /// Notes in Redis that an unfinished stock change is now done or cancelled.
    ///
    /// # Errors
    /// As [`Sales::note_change`].
    pub async fn end_change(
        &self,
        open: &WholeChange,
        state: ChangeState,
    ) -> Result<ChangeReply, ScriptError> {
        let before: Vec<_> = open.sides.iter().map(|(_, change)| Some(change.clone())).collect();
        self.note_change(&before, &open.with_state(state)).await
    }
}
