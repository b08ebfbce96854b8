//! The calls that read and change the windows of sales, and that load sales before they begin.

use std::collections::BTreeMap;

use fred::interfaces::{HashesInterface, KeysInterface};
use futures_util::future::join_all;
use tidegate_stream::Script;

use super::{BEGIN_MS, DELISTED, END_MS, JournalUse, LoadReply, SaleWindow, Sales, bound_text, window};
use crate::scripts::{RedisStore, ScriptError, access::RedisAccess, understood};
use crate::{keys::naming, order::VoucherId, records::journal::COMPLETE};

/// The number of sales whose windows are read in one round trip.
const AT_ONCE: usize = 200;

/// The reply to a call that changes the window of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleReply {
    /// The sale has the window now.
    Scheduled,
    /// Refused: the sale has another window than the expected one.
    OtherWindow,
    /// Refused: the voucher was delisted.
    Delisted,
    /// Refused: the sale moves to another partition.
    Moving,
}

impl ScheduleReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Scheduled,
            1 => Self::OtherWindow,
            2 => Self::Delisted,
            3 => Self::Moving,
            _ => return None,
        })
    }
}

/// Access to the windows and stocks of sales in Redis, and to the load of sales that have not begun.
#[derive(Clone, Debug)]
pub struct SaleCalendar {
    access: RedisAccess,
    sales: Sales,
    schedule: Script,
}

impl SaleCalendar {
    /// Creates access to the sales in this Redis.
    #[must_use]
    pub fn of(redis: &RedisStore) -> Self {
        let schedule = Script::new("schedule", include_str!("../../../../../lua/schedule.lua"));
        Self { access: redis.access().clone(), sales: redis.sales().clone(), schedule }
    }

    /// Loads a voucher like [`Sales::load_with`], if its sale has not begun, and Redis has neither its stock nor its
    /// orders.
    ///
    /// # Errors
    /// As [`Sales::load`].
    pub async fn load(
        &self,
        voucher: VoucherId,
        stock: u64,
        window: SaleWindow,
        journal: JournalUse,
    ) -> Result<LoadReply, ScriptError> {
        self.sales.call_load(voucher, stock, window, journal, true).await
    }

    /// Changes the window of a voucher's sale, also while the sale is on. With `expected`, only a sale with this
    /// window is changed. The call may be repeated.
    ///
    /// # Errors
    /// See [`ScriptError`]. A window that ends before it begins is [`ScriptError::Refused`].
    pub async fn schedule(
        &self,
        voucher: VoucherId,
        window: SaleWindow,
        expected: Option<SaleWindow>,
    ) -> Result<ScheduleReply, ScriptError> {
        let bounds = [Some(window), expected].into_iter().flatten();
        let args = bounds.flat_map(|window| [window.begin, window.end].map(|bound| bound_text(bound).into()));
        let key = self.access.keys.voucher(voucher);
        let reply = self.schedule.call(&self.access.pool, vec![key], args.collect()).await?;
        understood("schedule.lua", &reply, ScheduleReply::from_code)
    }

    /// Reads the windows of sales, except for these sales:
    /// - A sale that is not loaded, or is delisted.
    /// - A sale without bounds and without a complete journal. Another program loaded it, and may check its own window.
    /// - A sale whose keys cannot be read. Other checks report it.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn read_windows(
        &self,
        vouchers: &[VoucherId],
    ) -> Result<BTreeMap<VoucherId, SaleWindow>, ScriptError> {
        let mut windows = BTreeMap::new();
        for vouchers in vouchers.chunks(AT_ONCE) {
            let read = join_all(vouchers.iter().map(|voucher| self.read_window(*voucher))).await;
            for (voucher, window) in vouchers.iter().zip(read) {
                match window {
                    Ok(window) => windows.extend(window.map(|window| (*voucher, window))),
                    Err(error @ ScriptError::Unreachable(_)) => return Err(error),
                    Err(_) => {}
                }
            }
        }
        Ok(windows)
    }

    async fn read_window(&self, voucher: VoucherId) -> Result<Option<SaleWindow>, ScriptError> {
        let (client, keys) = (self.access.pool.next(), &self.access.keys);
        let (sale_key, journal_key) = (keys.voucher(voucher), keys.journal(voucher));
        let (loaded, sale, complete) = tokio::join!(
            client.exists::<u64, _>(vec![keys.stock(voucher), keys.limited(voucher)]),
            client.hmget::<Vec<Option<String>>, _, _>(&sale_key, vec![BEGIN_MS, END_MS, DELISTED]),
            client.hget::<Option<String>, _, _>(&journal_key, COMPLETE),
        );
        let sale = sale.map_err(|error| naming(&sale_key, error))?;
        let complete = complete.map_err(|error| naming(&journal_key, error))?;
        let [begin, end, delisted] = <[_; 3]>::try_from(sale).unwrap_or_default();
        let window = window(&sale_key, begin, end)?;
        let says = loaded? > 0 && delisted.is_none() && (window.has_bounds() || complete.is_some());
        Ok(says.then_some(window))
    }
}
