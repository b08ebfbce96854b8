//! Opens, pauses and reads sales: the state of a voucher in Redis besides its orders.

mod busy_marks;
mod calendar;
mod delist;
mod load;
mod memory;
mod offer;
mod stock_change;

use fred::{
    interfaces::{HashesInterface, KeysInterface, SetsInterface},
    types::{Key, Value},
};
use futures_util::future::join_all;
use jiff::Timestamp;
use tidegate_stream::Script;

pub use self::{
    busy_marks::{BusyMark, MarkedSales},
    calendar::{SaleCalendar, ScheduleReply},
    delist::{DelistReply, RemovedKeys, SaleKeys},
    load::{JournalUse, LoadReply},
    offer::{Offer, OfferState},
    stock_change::{ChangeReply, ChangeState, RecordedTransfer, StockChange, StockTransfer, WholeChange},
};
use super::{ScriptError, access::RedisAccess, understood};
use crate::{
    keys::naming,
    order::VoucherId,
    records::journal::{COMPLETE, LIMITED},
    sale_window::SaleWindow,
};

const BEGIN_MS: &str = "begin_ms";
const END_MS: &str = "end_ms";
const STATE: &str = "state";
const PAUSE: &str = "pause";
const DELISTED: &str = "delisted";
const PAUSED: &str = "paused";
const WITH_ALL: &str = "all";

/// The state of a voucher's sale in Redis: stock, buyers, times and pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoucherState {
    /// The number of units that the voucher has left. `None` if no stock is loaded.
    pub stock: Option<i64>,
    /// The number of users who got an order for the voucher in Redis.
    pub buyers: u64,
    /// The time window of the voucher's sale.
    pub window: SaleWindow,
    /// Whether an operator paused the voucher's sale, alone or with all other sales.
    pub pause: Pause,
    /// The number of orders and of stock changes in the voucher's journal, the Redis hash with notes about them.
    pub journaled: u64,
    /// The time at which the voucher was delisted (its sale ended permanently), in Unix milliseconds by the clock of
    /// Redis. `None` if the voucher is not delisted.
    pub delisted_ms: Option<i64>,
}

impl VoucherState {
    /// Whether Redis has any key of the voucher's sale.
    #[must_use]
    pub const fn has_keys(&self) -> bool {
        self.stock.is_some()
            || self.buyers + self.journaled > 0
            || self.delisted_ms.is_some()
            || self.window.begin.is_some()
            || self.window.end.is_some()
            || self.pause.is_paused()
    }
}

/// Whether an operator paused a sale, and whether the pause is for this sale or for all sales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The sale is not paused.
    Running,
    /// The sale is paused, with this scope.
    Paused(PauseScope),
}

impl Pause {
    /// Whether the sale is paused, alone or with all other sales.
    #[must_use]
    pub const fn is_paused(self) -> bool {
        matches!(self, Self::Paused(_))
    }

    /// Reads the pause from the fields of a voucher's hash.
    fn from_fields(state: Option<&str>, pause: Option<&str>) -> Self {
        match (state, pause) {
            (Some(PAUSED), Some(WITH_ALL)) => Self::Paused(PauseScope::All),
            (Some(PAUSED), _) => Self::Paused(PauseScope::Own),
            _ => Self::Running,
        }
    }
}

/// The scope of a pause: one sale, or all sales. A sale that was paused alone stays paused when all other sales resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// The pause was for this sale, by its name.
    Own,
    /// The pause was for all sales that were on.
    All,
}

impl PauseScope {
    const fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => WITH_ALL,
        }
    }
}

/// Access to the sales of vouchers in Redis: reads and changes them.
#[derive(Clone, Debug)]
pub struct Sales {
    access: RedisAccess,
    mark_busy: Script,
    delist: Script,
    load: Script,
    pause: Script,
    remove_delisted: Script,
    adjust_stock: Script,
    resume: Script,
    transfer: Script,
}

impl Sales {
    pub(super) fn new(access: &RedisAccess) -> Self {
        Self {
            access: access.clone(),
            mark_busy: Script::new("mark_busy", include_str!("../../../../lua/mark_busy.lua")),
            delist: Script::new("delist", include_str!("../../../../lua/delist.lua")),
            load: Script::new("load", include_str!("../../../../lua/load.lua")),
            pause: Script::new("pause", include_str!("../../../../lua/pause.lua")),
            remove_delisted: Script::new(
                "remove_delisted",
                include_str!("../../../../lua/remove_delisted.lua"),
            ),
            adjust_stock: Script::new("adjust_stock", include_str!("../../../../lua/adjust_stock.lua")),
            resume: Script::new("resume", include_str!("../../../../lua/resume.lua")),
            transfer: Script::new("transfer", include_str!("../../../../lua/transfer.lua")),
        }
    }

    /// Pauses the sale of a voucher, so that requests get [`AdmitReply::Paused`](super::AdmitReply::Paused). Returns
    /// whether the sale was running before. [`PauseScope::All`] changes nothing if the sale is already paused alone.
    /// [`PauseScope::Own`] takes the sale out of a pause of all sales: it then stays paused when the other sales
    /// resume.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn pause(&self, voucher: VoucherId, scope: PauseScope) -> Result<bool, ScriptError> {
        let (keys, args) = (vec![self.access.keys.voucher(voucher)], vec![scope.word().into()]);
        understood("pause.lua", &self.pause.call(&self.access.pool, keys, args).await?, flag)
    }

    /// Ends the pause of a sale. [`PauseScope::Own`] ends any pause. [`PauseScope::All`] ends only a pause that was for
    /// all sales. Returns whether this call ended a pause.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn resume(&self, voucher: VoucherId, scope: PauseScope) -> Result<bool, ScriptError> {
        let (keys, args) = (vec![self.access.keys.voucher(voucher)], vec![scope.word().into()]);
        understood("resume.lua", &self.resume.call(&self.access.pool, keys, args).await?, flag)
    }

    /// Reads whether the sales of many vouchers are paused, in one round trip. Returns one answer for each voucher, in
    /// the sequence of the vouchers. If the key of one voucher has a wrong type, the answers for other vouchers are
    /// still correct.
    pub async fn read_pauses(&self, vouchers: &[VoucherId]) -> Vec<Result<Pause, ScriptError>> {
        let client = self.access.pool.next();
        join_all(vouchers.iter().map(|voucher| async {
            let key = self.access.keys.voucher(*voucher);
            let fields = client.hmget(&key, vec![STATE, PAUSE]).await;
            let fields: Vec<Option<String>> = fields.map_err(|error| naming(&key, error))?;
            let [state, pause] = <[_; 2]>::try_from(fields).unwrap_or_default();
            Ok(Pause::from_fields(state.as_deref(), pause.as_deref()))
        }))
        .await
    }

    /// Reads the state of a voucher in Redis, in one round trip. During the sale, the numbers may be from slightly
    /// different moments.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_voucher(&self, voucher: VoucherId) -> Result<VoucherState, ScriptError> {
        let (plain_key, limited_key) = (self.access.keys.stock(voucher), self.access.keys.limited(voucher));
        let sale_key = self.access.keys.voucher(voucher);
        let (buyers_key, journal_key) = (self.access.keys.buyers(voucher), self.access.keys.journal(voucher));
        let client = self.access.pool.next();
        let sale_movements = || vec!["#load", COMPLETE, LIMITED];
        let (plain, limited, buyers, sale, journaled, of_sale) = tokio::join!(
            client.get::<Option<String>, _>(&plain_key),
            client.get::<Option<String>, _>(&limited_key),
            client.scard::<u64, _>(&buyers_key),
            client.hmget::<Vec<Option<String>>, _, _>(
                &sale_key,
                vec![BEGIN_MS, END_MS, STATE, PAUSE, DELISTED]
            ),
            client.hlen::<u64, _>(&journal_key),
            client.hmget::<Vec<Value>, _, _>(&journal_key, sale_movements()),
        );
        let plain = plain.map_err(|error| naming(&plain_key, error))?;
        let limited = limited.map_err(|error| naming(&limited_key, error))?;
        let (stock_key, stock) = if limited.is_some() { (limited_key, limited) } else { (plain_key, plain) };
        let buyers = buyers.map_err(|error| naming(&buyers_key, error))?;
        let sale = sale.map_err(|error| naming(&sale_key, error))?;
        let journaled = journaled.map_err(|error| naming(&journal_key, error))?;
        let of_sale = of_sale.map_err(|error| naming(&journal_key, error))?;
        let of_sale = of_sale.iter().filter(|note| !note.is_null()).count() as u64;
        let [begin, end, state, pause, delisted] = <[_; 5]>::try_from(sale).unwrap_or_default();
        let window = window(&sale_key, begin, end)?;
        let pause = Pause::from_fields(state.as_deref(), pause.as_deref());
        Ok(VoucherState {
            stock: number(|| stock_key.as_str_lossy().into_owned(), stock)?,
            buyers,
            window,
            pause,
            // The two commands may run at different moments.
            journaled: journaled.saturating_sub(of_sale),
            delisted_ms: number(|| format!("{DELISTED} of {}", sale_key.as_str_lossy()), delisted)?,
        })
    }
}

pub(super) fn flag(code: i64) -> Option<bool> {
    match code {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The bound of a window as an argument of a script.
pub(super) fn bound_text(bound: Option<Timestamp>) -> String {
    bound.map_or_else(String::new, |bound| bound.as_millisecond().to_string())
}

/// Parses the window in the fields of a voucher's hash.
fn window(key: &Key, begin: Option<String>, end: Option<String>) -> Result<SaleWindow, ScriptError> {
    Ok(SaleWindow { begin: timestamp(key, BEGIN_MS, begin)?, end: timestamp(key, END_MS, end)? })
}

fn timestamp(key: &Key, field: &str, ms: Option<String>) -> Result<Option<Timestamp>, ScriptError> {
    let place = || format!("{field} of {}", key.as_str_lossy());
    let Some(ms) = number(place, ms)? else { return Ok(None) };
    Timestamp::from_millisecond(ms).map(Some).map_err(|_| not_understood(place(), &ms.to_string()))
}

fn number(place: impl Fn() -> String, text: Option<String>) -> Result<Option<i64>, ScriptError> {
    text.map(|text| text.parse().map_err(|_| not_understood(place(), &text))).transpose()
}

fn not_understood(place: String, got: &str) -> ScriptError {
    ScriptError::Unexpected { place, got: format!("{got:?}") }
}
