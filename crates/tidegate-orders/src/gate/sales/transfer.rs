//! Units that move from the stock of one sale to that of another, in both stores. Each sale has a note of it, as of a change of its own
//! stock: open until both stores have it.

use crate::gate::{ChangeState, GateError, RegionMove, Sales, StockChange, understood};
use crate::order::VoucherId;

/// Who moves them, for the journals; the notes say more.
const JOURNALED_BY: &str = "operator:voucher_transfer";

/// A move of units: what either sale has noted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The sale that gives, and its change, below 0.
    pub giver: (VoucherId, StockChange),
    /// The sale that gets, and its change, of the same id.
    pub taker: (VoucherId, StockChange),
}

impl Transfer {
    /// A move that begins now, from the first of these vouchers to the second.
    #[must_use]
    pub fn new(units: i64, vouchers: [VoucherId; 2], moved: RegionMove, by: &str) -> Self {
        let change = StockChange::new(units, 0, by.to_owned());
        Self::between(vouchers, &change, &moved)
    }

    /// The whole of the move that one side has noted, of these vouchers; None: the note is of no move.
    #[must_use]
    pub fn of_note(note: &StockChange, vouchers: [VoucherId; 2]) -> Option<Self> {
        note.moved.as_deref().map(|moved| Self::between(vouchers, note, moved))
    }

    fn between([giver, taker]: [VoucherId; 2], change: &StockChange, moved: &RegionMove) -> Self {
        let side = |units, before| {
            let moved = Some(Box::new(moved.clone()));
            StockChange { units, before, moved, ..change.clone() }
        };
        let units = change.units.saturating_abs();
        Self {
            giver: (giver, side(-units, moved.giver_before)),
            taker: (taker, side(units, moved.taker_before)),
        }
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

impl Sales {
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
            let keys = &self.access.keys;
            [keys.stock(*voucher), keys.voucher(*voucher), keys.journal(*voucher), keys.limited(*voucher)]
        });
        let args = sides.iter().zip(before).zip(units).flat_map(|(((_, change), before), units)| {
            let before = before.map_or_else(String::new, StockChange::note);
            [before.into(), change.note().into(), units.to_string().into()]
        });
        let args = args.chain([now.giver.1.id.as_str().into(), JOURNALED_BY.into()]).collect();
        let reply = self.transfer.call(&self.access.pool, keys.collect(), args).await?;
        understood("transfer.lua", &reply, TransferReply::from_code)
    }
}
