//! Units that are added to a sale or taken from it, in both stores. Redis keeps a note of the change, open until both have
//! it. Whoever finds it open completes it. So a change that died half-way is neither lost nor made twice.

use fred::interfaces::HashesInterface;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::gate::{GateError, Sales, understood};
use crate::order::{CampaignId, VoucherId};

const CHANGE: &str = "change";
/// Who changes it, for the journal; the note says more.
const JOURNALED_BY: &str = "operator:restock";

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
    /// It is one side of a move from one region to another, which only the command for that completes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Box<RegionMove>>,
}

/// From where to where units move. Each side's note has all of it, so one is enough to tell the other.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RegionMove {
    /// The campaign.
    pub campaign: CampaignId,
    /// The region that gives.
    pub from: String,
    /// The region that gets.
    pub to: String,
    /// What the initial stock of the region that gives was in MySQL.
    pub giver_before: i64,
    /// What that of the region that gets was.
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
    #[serde(rename = "withdrawn")]
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

    /// The words of the note. The same change has the same ones, whoever writes them.
    pub(in crate::gate) fn note(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// What became of a step of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestockReply {
    /// Done, now or since before.
    Done,
    /// Refused: somebody else has noted something else.
    OtherNote,
    /// Refused: Redis has no stock of it.
    NoStock,
    /// Refused: fewer units are left than are to be taken.
    TooFew,
}

impl RestockReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 | 1 => Self::Done,
            2 => Self::OtherNote,
            3 => Self::NoStock,
            4 => Self::TooFew,
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

    /// Writes the note `now` in the place of `before`, and changes the stock in Redis by `units` with it. A
    /// change of units is journaled, where the voucher has a journal.
    ///
    /// # Errors
    /// See [`GateError`]. May be called again: the note tells whether it was done.
    pub async fn restock(
        &self,
        voucher: VoucherId,
        before: Option<&StockChange>,
        now: &StockChange,
        units: i64,
    ) -> Result<RestockReply, GateError> {
        let keys = vec![
            self.access.keys.stock(voucher),
            self.access.keys.voucher(voucher),
            self.access.keys.journal(voucher),
            self.access.keys.limited(voucher),
        ];
        let before = before.map_or_else(String::new, StockChange::note);
        let args = vec![
            before.into(),
            now.note().into(),
            units.to_string().into(),
            now.id.as_str().into(),
            JOURNALED_BY.into(),
        ];
        let reply = self.restock.call(&self.access.pool, keys, args).await?;
        understood("restock.lua", &reply, RestockReply::from_code)
    }
}
