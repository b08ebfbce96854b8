//! Opens sales: loads their stocks and windows into Redis.

use fred::types::Value;

use super::{SaleWindow, Sales, bound_text};
use crate::{
    order::VoucherId,
    scripts::{ScriptError, understood},
};

/// The author of a load, for the journal: an operator, or a worker before the sale begins.
const LOADED_BY: &str = "operator:voucher_load";
const LOADED_BY_WORKER: &str = "worker:warm_up";

/// The reply to a call that opens a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadReply {
    /// The sale is loaded, and is open within its window.
    Loaded,
    /// The sale is loaded, but it was paused before and still is.
    LoadedPaused,
    /// Refused: this voucher has a stock, and its sale has not ended.
    OnSale,
    /// Refused: this voucher was delisted.
    Delisted,
    /// Refused: the sale has begun, and only a sale that has not begun may be loaded.
    Begun,
}

impl LoadReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Loaded,
            1 => Self::OnSale,
            2 => Self::LoadedPaused,
            3 => Self::Delisted,
            4 => Self::Begun,
            _ => return None,
        })
    }
}

/// Whether the script that sells a voucher keeps a journal: a Redis hash with notes about the orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalUse {
    /// The script keeps a journal, as `lua/admit.lua` and all scripts with the same contract do. If the journal is
    /// empty or already complete, it is complete from now on.
    #[default]
    Complete,
    /// Another program's script keeps no journal: the journal in Redis is not complete, and says nothing about the
    /// stock.
    None,
}

impl Sales {
    /// Opens the sale of a voucher with the given number of units, unless its sale is already open. The voucher's
    /// journal (a Redis hash) notes the units. Buyers of an earlier sale of the voucher still count as buyers.
    ///
    /// # Errors
    /// See [`ScriptError`]. More than 13 digits of stock, or a window that ends before it begins, are
    /// [`ScriptError::Refused`].
    pub async fn load(
        &self,
        voucher: VoucherId,
        stock: u64,
        window: SaleWindow,
    ) -> Result<LoadReply, ScriptError> {
        self.load_with(voucher, stock, window, JournalUse::Complete).await
    }

    /// Opens the sale of a voucher like [`Sales::load`], also for a script that sells without a journal (notes about
    /// orders in Redis).
    ///
    /// # Errors
    /// As [`Sales::load`].
    pub async fn load_with(
        &self,
        voucher: VoucherId,
        stock: u64,
        window: SaleWindow,
        journal: JournalUse,
    ) -> Result<LoadReply, ScriptError> {
        self.call_load(voucher, stock, window, journal, false).await
    }

    /// Calls the script that loads. With `is_unbegun`, only a sale that has not begun, and has neither stock nor orders, is
    /// loaded.
    pub(super) async fn call_load(
        &self,
        voucher: VoucherId,
        stock: u64,
        window: SaleWindow,
        journal: JournalUse,
        is_unbegun: bool,
    ) -> Result<LoadReply, ScriptError> {
        let keys = vec![
            self.access.keys.stock(voucher),
            self.access.keys.voucher(voucher),
            self.access.keys.journal(voucher),
            self.access.keys.limited(voucher),
        ];
        let by = match journal {
            JournalUse::Complete if is_unbegun => LOADED_BY_WORKER,
            JournalUse::Complete => LOADED_BY,
            JournalUse::None => "",
        };
        let (begin, end) = (bound_text(window.begin), bound_text(window.end));
        let mut args = vec![stock.to_string().into(), begin.into(), end.into(), by.into()];
        args.extend(is_unbegun.then(|| Value::from("unbegun")));
        let reply = self.load.call(&self.access.pool, keys, args).await?;
        understood("load.lua", &reply, LoadReply::from_code)
    }
}
