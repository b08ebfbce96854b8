//! Units that move from the stock of one sale to that of another, in both stores. Each sale has a note of it, as of a change of its own
//! stock: open until both stores have it.

use super::{ChangeState, Gate, GateError, RegionMove, StockChange, understood};
use crate::order::VoucherId;

/// Who moves them, for the journals; the notes say more.
const JOURNALED_BY: &str = "operator:campaign_move";

/// A move of units: what either sale has noted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The sale that gives, and its change, below 0.
    pub giver: (VoucherId, StockChange),
    /// The sale that gets, and its change, of the same id.
    pub taker: (VoucherId, StockChange),
}

impl Transfer {
    /// A move that begins now, of sales with these initial stocks in MySQL.
    #[must_use]
    pub fn new(
        units: i64,
        (giver, giver_initial): (VoucherId, i64),
        (taker, taker_initial): (VoucherId, i64),
        (moved, by): (&RegionMove, &str),
    ) -> Self {
        let gives = StockChange::new(-units, giver_initial, by.to_owned());
        let gives = StockChange { moved: Some(Box::new(moved.clone())), ..gives };
        let gets = StockChange { units, before: taker_initial, ..gives.clone() };
        Self { giver: (giver, gives), taker: (taker, gets) }
    }

    /// The same, further on.
    #[must_use]
    pub fn with_state(&self, state: ChangeState) -> Self {
        let further = |(voucher, change): &(VoucherId, StockChange)| (*voucher, change.with_state(state));
        Self { giver: further(&self.giver), taker: further(&self.taker) }
    }

    /// How many units move.
    #[must_use]
    pub const fn units(&self) -> i64 {
        self.taker.1.units
    }
}

/// What became of a step of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransferReply {
    /// Done, now or since before.
    Done,
    /// Refused: somebody else has noted something else.
    OtherNote,
    /// Refused: Redis has no stock of one of them.
    NoStock,
    /// Refused: fewer units are left than are to be taken.
    TooFew,
    /// Refused: one of them was delisted, or is on its way to another partition.
    Over,
}

impl TransferReply {
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

impl Gate {
    /// Writes the notes of `now` in the place of `before`, and changes the stocks in Redis by these units with them, of the giver and
    /// of the taker. Both, or neither.
    ///
    /// # Errors
    /// See [`GateError`]. May be called again: the notes tell whether it was done.
    pub async fn transfer(
        &self,
        before: [Option<&StockChange>; 2],
        now: &Transfer,
        units: [i64; 2],
    ) -> Result<TransferReply, GateError> {
        let sides = [&now.giver, &now.taker];
        let keys = sides.iter().flat_map(|(voucher, _)| {
            let keys = &self.keys;
            [keys.stock(*voucher), keys.voucher(*voucher), keys.journal(*voucher), keys.limited(*voucher)]
        });
        let args = sides.iter().zip(before).zip(units).flat_map(|(((_, change), before), units)| {
            let before = before.map_or_else(String::new, StockChange::note);
            [before.into(), change.note().into(), units.to_string().into()]
        });
        let args = args.chain([now.giver.1.id.as_str().into(), JOURNALED_BY.into()]).collect();
        let reply = self.transfer.call(&self.pool, keys.collect(), args).await?;
        understood("transfer.lua", &reply, TransferReply::from_code)
    }
}
