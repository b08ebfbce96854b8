//! Loads vouchers into Redis shortly before their sales begin.

use std::time::Duration;

use anyhow::Context;
use tidegate_orders::{
    VoucherId,
    records::vouchers::{
        upcoming::{UpcomingVoucher, upcoming},
        windows,
    },
    sale::read_stocks,
    scripts::{JournalUse, LoadReply, SaleCalendar},
    stock_change::{CarriedStock, carry_stock},
};

use crate::{
    vouchers::{VoucherStores, limits},
    within::in_time,
};

/// The name under which Redis notes the limits and stocks that a warm-up writes.
const BY: &str = "warm_up";
const ORDERS_LOST: &str =
    "MySQL has orders of it, so Redis has lost its stock: run tidegate rebuild before its sale begins";
const ONLY_JOURNAL: &str =
    "Redis has a journal of it, but had no stock: run tidegate rebuild before its sale begins";
const BEGUN: &str = "its sale has begun. If Redis had a stock before, run tidegate rebuild. If the voucher was never loaded, run tidegate voucher load";

/// The result of one pass over vouchers that begin soon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmUpPass {
    /// The vouchers that were loaded, or got another stock, each with its units.
    pub loaded: Vec<(VoucherId, i64)>,
    /// The vouchers that are not loaded, or did not get the stock of their row, each with the reason.
    pub failed: Vec<(VoucherId, String)>,
    /// The number of vouchers without a stock in Redis whose sales began in the last day, or begin soon and have orders.
    pub missing: u64,
}

/// The step that a voucher needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Load the voucher.
    Load,
    /// Give Redis the stock of the row.
    CarryStock,
    /// Report that the voucher is not loaded, with this reason.
    Report(&'static str),
    /// Nothing.
    Nothing,
}

/// The task that loads vouchers before their sales begin. Two processes may run it at the same time.
#[derive(Debug)]
pub struct WarmUp {
    stores: VoucherStores,
    calendar: SaleCalendar,
    ahead: Duration,
    within: Duration,
}

impl WarmUp {
    /// Creates the task for one partition. It loads a voucher `ahead` of its begin. MySQL has the time `within` for each
    /// voucher.
    #[must_use]
    pub fn new(stores: VoucherStores, ahead: Duration, within: Duration) -> Self {
        let calendar = SaleCalendar::of(&stores.redis);
        Self { stores, calendar, ahead, within }
    }

    /// Loads the vouchers whose sales begin soon, and that Redis does not have. If a shop has changed the stock of a
    /// loaded voucher in MySQL, Redis gets the new stock. A sale that has begun is never loaded: Redis may have lost
    /// its orders. A voucher that fails keeps no other voucher waiting.
    ///
    /// # Errors
    /// If a store does not answer. The next pass continues.
    pub async fn pass(&self) -> anyhow::Result<WarmUpPass> {
        let VoucherStores { redis, mysql } = &self.stores;
        let found = async { Ok(upcoming(mysql, redis.keys().partition(), self.ahead).await?) };
        let found = in_time("MySQL", self.within, found).await;
        let found = found.context("Failed to read the vouchers that begin soon")?;
        let vouchers: Vec<VoucherId> = found.iter().map(|voucher| voucher.row.voucher).collect();
        let stocks = read_stocks(redis, &vouchers).await.context("Failed to read stocks in Redis")?;
        let mut pass = WarmUpPass::default();
        for (voucher, stock) in found.iter().zip(stocks) {
            let id = voucher.row.voucher;
            let done = match step(voucher, stock) {
                Step::Nothing => continue,
                Step::Report(reason) => {
                    pass.missing += 1;
                    Ok(Err(reason.to_owned()))
                }
                Step::Load => in_time("MySQL", self.within, self.load(voucher)).await,
                Step::CarryStock => in_time("MySQL", self.within, self.carry_stock(id)).await,
            };
            match done.unwrap_or_else(|error| Err(format!("{error:#}"))) {
                Ok(()) => pass.loaded.push((id, voucher.row.stock)),
                Err(reason) => pass.failed.push((id, reason)),
            }
        }
        Ok(pass)
    }

    /// Loads a voucher. The inner error is a reason for an operator.
    async fn load(&self, voucher: &UpcomingVoucher) -> anyhow::Result<Result<(), String>> {
        let (mysql, row) = (&self.stores.mysql, &voucher.row);
        if !row.window().can_open() {
            return Ok(Err("its end is before its begin".to_owned()));
        }
        if !voucher.note_initial_stock(mysql).await? {
            return Ok(Err("its row in MySQL has just changed".to_owned()));
        }
        // The limits come first, because no one may buy before Redis has them.
        if let Err(not_shown) = limits::show_all(&self.stores, row.voucher, BY).await? {
            return Ok(Err(format!("its limits cannot be written to Redis: {not_shown}")));
        }
        let journal = match voucher.keeps_journal {
            Some(false) => JournalUse::None,
            _ => JournalUse::Complete,
        };
        let units = row.stock.unsigned_abs();
        let reply = self.calendar.load(row.voucher, units, row.window(), journal).await;
        match reply.context("Failed to load a voucher into Redis")? {
            LoadReply::Loaded | LoadReply::LoadedPaused => {}
            LoadReply::Delisted => return Ok(Err("it is delisted in Redis".to_owned())),
            LoadReply::OnSale => return Ok(Err(ONLY_JOURNAL.to_owned())),
            LoadReply::Begun => return Ok(Err("its sale has just begun".to_owned())),
        }
        windows::note(mysql, row).await?;
        Ok(Ok(()))
    }

    /// Gives Redis the stock of the row. The inner error is a reason for an operator.
    async fn carry_stock(&self, voucher: VoucherId) -> anyhow::Result<Result<(), String>> {
        let VoucherStores { redis, mysql } = &self.stores;
        Ok(match carry_stock(redis, mysql, voucher, BY).await? {
            CarriedStock::Carried => Ok(()),
            CarriedStock::WasOn => Err("its stock differs, and MySQL has orders of it".to_owned()),
            CarriedStock::BeingAdjusted => {
                Err("its stock differs, because a change is unfinished".to_owned())
            }
            CarriedStock::NotOurs => {
                Err("its stock differs, and Redis has buyers or no complete journal of it".to_owned())
            }
        })
    }
}

/// Returns whether workers give Redis the stock of the row when the begin is near.
pub(crate) fn is_loaded_later(voucher: &UpcomingVoucher, in_redis: Option<i64>) -> bool {
    matches!(step(voucher, in_redis), Step::Load | Step::CarryStock)
}

/// Decides what a voucher needs, with its stock in Redis.
fn step(voucher: &UpcomingVoucher, in_redis: Option<i64>) -> Step {
    let row = &voucher.row;
    match in_redis {
        // A voucher without units is not for sale yet.
        None if row.stock <= 0 => Step::Nothing,
        None if voucher.has_begun => Step::Report(BEGUN),
        None if voucher.has_orders => Step::Report(ORDERS_LOST),
        None => Step::Load,
        // Without an initial stock, another program loaded the voucher.
        Some(_) if voucher.has_begun || voucher.has_orders || row.initial_stock.is_none() => Step::Nothing,
        Some(units) if units == row.stock && row.initial_stock == Some(units) => Step::Nothing,
        Some(_) => Step::CarryStock,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_orders::records::vouchers::VoucherRow;

    use super::*;

    fn voucher(stock: i64, initial_stock: Option<i64>) -> UpcomingVoucher {
        UpcomingVoucher::unbegun(VoucherRow {
            voucher: VoucherId::try_from(7).unwrap(),
            stock,
            initial_stock,
            begin_ms: Some(1),
            end_ms: None,
            pay_within_s: None,
            delisted_ms: None,
        })
    }

    #[test]
    fn only_a_sale_that_has_not_begun_is_loaded_or_gets_a_stock_that_a_shop_changed() {
        assert_eq!(step(&voucher(10, None), None), Step::Load);
        assert_eq!(step(&voucher(0, None), None), Step::Nothing);
        assert_eq!(step(&voucher(10, Some(10)), Some(10)), Step::Nothing);
        assert_eq!(step(&voucher(20, Some(10)), Some(10)), Step::CarryStock);
        assert_eq!(step(&voucher(0, Some(10)), Some(10)), Step::CarryStock, "it was taken off the shelf");
        assert_eq!(step(&voucher(20, Some(10)), Some(20)), Step::CarryStock, "it was killed half-way");
        assert_eq!(step(&voucher(50, Some(50)), Some(100)), Step::CarryStock, "a failover lost it");
        assert_eq!(step(&voucher(10, None), Some(10)), Step::Nothing, "the shop's own SET");
        let mut begun = voucher(10, Some(10));
        begun.has_begun = true;
        assert_eq!((step(&begun, None), step(&begun, Some(7))), (Step::Report(BEGUN), Step::Nothing));
        let mut put_off = voucher(9, Some(10));
        put_off.has_orders = true;
        assert_eq!(
            (step(&put_off, None), step(&put_off, Some(10))),
            (Step::Report(ORDERS_LOST), Step::Nothing)
        );
    }
}
