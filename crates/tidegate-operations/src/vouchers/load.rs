//! Puts a voucher on sale: in MySQL first, because MySQL is the authority, then in Redis.

use anyhow::Context;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId,
    records::vouchers::{self, Inserted, NewVoucher, VoucherRow, windows},
    scripts::{JournalUse, LoadReply, SaleWindow, VoucherState},
};

use super::{
    COLUMN_TOO_SMALL, VoucherStores,
    limits::{self, NotShown},
};
use crate::change::{Ending, InvalidInput, Next, Plan, Report};

#[cfg(test)]
mod tests;

/// The name under which the journal notes the limits that a load writes to Redis.
const LOADED_BY: &str = "voucher_load";
const FAILED_IN_MYSQL: &str = "Failed to write the voucher to MySQL";

/// The request to put a voucher on sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadRequest {
    /// The voucher that is put on sale.
    pub voucher: VoucherId,
    /// The number of units to sell, from 1 to [`super::MAX_STOCK`].
    pub stock: i64,
    /// The time when the sale begins; None: the sale begins now.
    pub begin: Option<Timestamp>,
    /// The time when the sale ends; None: the sale never ends.
    pub end: Option<Timestamp>,
    /// The time limit for the payment of an order, in seconds. 0: orders never expire. None: the voucher's row or,
    /// without a row, the configuration sets the time limit.
    pub pay_within_s: Option<i64>,
    /// Whether the program that sells the voucher writes a journal, the Redis hash with a note for each order.
    #[serde(skip)]
    pub journal: JournalUse,
}

impl LoadRequest {
    /// Checks that the sale begins before it ends, and does not end in the past.
    ///
    /// # Errors
    /// If it begins after its end, or has ended before `now`.
    pub fn check(&self, now: Timestamp) -> Result<(), InvalidInput> {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) if begin >= end => {
                Err(InvalidInput("the sale must begin before it ends".to_owned()))
            }
            (_, Some(end)) if end <= now => Err(InvalidInput("the sale's end is in the past".to_owned())),
            _ => Ok(()),
        }
    }

    const fn window(&self) -> SaleWindow {
        SaleWindow { begin: self.begin, end: self.end }
    }
}

/// The planned or actual result of putting a voucher on sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadOutcome {
    /// The voucher can be loaded.
    WouldLoad,
    /// Exactly this sale is loaded already, and no unit was sold yet.
    LoadedBefore,
    /// The voucher is on sale now.
    Loaded,
    /// The voucher is loaded; its sale was paused before and is still paused.
    LoadedPaused,
    /// The voucher is not loaded, for a reason.
    Refused,
}

/// The reason why a voucher is not put on sale.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadRefusal {
    /// The sale of the voucher is on. Units can be added or taken instead.
    #[error("the voucher is on sale in Redis with {left} units left")]
    OnSale {
        /// The units left in Redis.
        left: i64,
    },
    /// The voucher was on sale, its end has not come, and Redis has no stock.
    #[error(
        "MySQL has {} of this voucher, but Redis has lost its stock: see docs/runbook/redis-lost-data.md. \
         For a new sale, use another voucher id",
        counted(*orders, "order")
    )]
    StockLost {
        /// The voucher's orders in MySQL that are not cancelled.
        orders: i64,
    },
    /// Redis has buyers of the voucher.
    #[error("Redis has {} of the voucher, so it was on sale: use another voucher id", counted(*buyers, "buyer"))]
    HasBuyers {
        /// The number of buyers in Redis.
        buyers: u64,
    },
    /// MySQL has orders of the voucher.
    #[error("MySQL has {} of the voucher, so it was on sale: use another voucher id", counted(*orders, "order"))]
    HasOrders {
        /// The number of orders that are not cancelled.
        orders: i64,
    },
    /// The sale of the voucher has ended forever.
    #[error(
        "the voucher is delisted: its sale has ended forever. Use another voucher id; see docs/delist.md"
    )]
    Delisted,
    /// MySQL has the row of the voucher, with another stock.
    #[error("MySQL has this voucher with a stock of {stock}")]
    OtherStock {
        /// The stock in MySQL, with which it could be loaded.
        stock: i64,
    },
    /// The column in MySQL cannot store the stock.
    #[error("{COLUMN_TOO_SMALL}")]
    ColumnTooSmall,
    /// The voucher has limits, and Redis does not take them.
    #[error("the limits of the voucher cannot be written to Redis: {0}")]
    LimitsNotShown(NotShown),
    /// Another program changed the row between plan and run.
    #[error("another program has just changed the voucher's row in MySQL")]
    RowChanged,
    /// Another program put the voucher on sale between plan and run.
    #[error("another program has just put the voucher on sale in Redis")]
    JustLoaded,
}

impl Serialize for LoadRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The plan or the report of putting a voucher on sale.
#[derive(Clone, Debug, Serialize)]
pub struct LoadState {
    /// The request to put the voucher on sale.
    #[serde(flatten)]
    pub request: LoadRequest,
    /// The planned or actual result of the request.
    pub outcome: LoadOutcome,
    /// The reason why the request is refused; None: the request is not refused.
    #[serde(rename = "reason")]
    pub refusal: Option<LoadRefusal>,
    /// The data in Redis or MySQL that the request overwrites; None: the request overwrites nothing.
    pub overwrites: Option<String>,
}

impl Plan for LoadState {
    fn next(&self) -> Next {
        match (self.outcome, &self.overwrites) {
            (LoadOutcome::LoadedBefore, _) => Next::NothingToDo,
            (LoadOutcome::Refused, _) => Next::Refused,
            (_, None) => Next::Go,
            (_, Some(_)) => Next::Ask(format!("Load voucher {} anyway?", self.request.voucher)),
        }
    }
}

impl Report for LoadState {
    fn counts(&self) -> Json {
        json!({ "units": if self.refusal.is_none() { self.request.stock } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.refusal.is_none() { Ending::Done } else { Ending::Refused }
    }
}

/// Reads the voucher in Redis and MySQL, plans to put the voucher on sale, and changes nothing.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(stores: &VoucherStores, request: LoadRequest) -> anyhow::Result<LoadState> {
    let LoadRequest { voucher, stock, .. } = request;
    let sale = stores.state(voucher).await?;
    let row = stores.row(voucher).await?;
    // A voucher that was never on sale may have cancelled orders: cancelling dead letters leaves them.
    let orders = stores.records().counts().live_of_voucher(voucher).await;
    let orders = orders.context("Failed to count the orders of the voucher")?;
    let now = Timestamp::now();
    let is_delisted = sale.delisted_ms.or(row.as_ref().and_then(|row| row.delisted_ms)).is_some();
    let is_untouched = sale.buyers + sale.journaled == 0 && orders == 0 && !is_delisted;
    if is_untouched && is_loaded(&sale, row.as_ref(), &request) {
        let outcome = LoadOutcome::LoadedBefore;
        return Ok(LoadState { request, outcome, refusal: None, overwrites: None });
    }
    let refusal = refusal(&sale, row.as_ref(), orders, stock, now);
    Ok(LoadState {
        request,
        outcome: if refusal.is_some() { LoadOutcome::Refused } else { LoadOutcome::WouldLoad },
        refusal,
        overwrites: overwrites(&sale, row.as_ref(), request.window(), now),
    })
}

/// Puts the voucher on sale as planned: first writes the row in MySQL, then the keys in Redis. If the call fails, call
/// it again to complete the work.
///
/// # Errors
/// If a store does not answer.
pub async fn run(stores: &VoucherStores, plan: LoadState) -> anyhow::Result<LoadState> {
    let LoadState { request, overwrites, .. } = plan;
    let (outcome, refusal) = match load(stores, &request).await? {
        Ok(outcome) => (outcome, None),
        Err(refusal) => (LoadOutcome::Refused, Some(refusal)),
    };
    Ok(LoadState { request, outcome, refusal, overwrites })
}

/// Returns whether both stores are as this load leaves them, with nothing sold.
fn is_loaded(sale: &VoucherState, row: Option<&VoucherRow>, request: &LoadRequest) -> bool {
    let stock = request.stock;
    let row = row.is_some_and(|row| {
        let pay_within_s = request.pay_within_s.or(row.pay_within_s);
        (row.stock, row.initial_stock, row.pay_within_s) == (stock, Some(stock), pay_within_s)
    });
    row && sale.stock == Some(stock) && sale.window.is_same(&request.window())
}

/// Returns why the voucher must not be loaded; None if both stores have nothing of it, or only what a load that was
/// killed half-way left.
fn refusal(
    sale: &VoucherState,
    row: Option<&VoucherRow>,
    orders: i64,
    stock: i64,
    now: Timestamp,
) -> Option<LoadRefusal> {
    if sale.delisted_ms.or(row.and_then(|row| row.delisted_ms)).is_some() {
        return Some(LoadRefusal::Delisted);
    }
    let is_over = sale.window.is_over(now);
    if let Some(left) = sale.stock.filter(|_| !is_over) {
        return Some(LoadRefusal::OnSale { left });
    }
    let has_ended = is_over || row.and_then(|row| row.end_ms).is_some_and(|end| end <= now.as_millisecond());
    if orders > 0 && !has_ended {
        return Some(LoadRefusal::StockLost { orders });
    }
    if sale.buyers > 0 {
        return Some(LoadRefusal::HasBuyers { buyers: sale.buyers });
    }
    if orders > 0 {
        return Some(LoadRefusal::HasOrders { orders });
    }
    let row = row?;
    let is_other = row.stock != stock || row.initial_stock.is_some_and(|initial| initial != stock);
    is_other.then_some(LoadRefusal::OtherStock { stock: row.stock })
}

/// Describes the data that loading would overwrite; None if there is none, or only what a load that was killed half-way
/// left.
fn overwrites(
    sale: &VoucherState,
    row: Option<&VoucherRow>,
    window: SaleWindow,
    now: Timestamp,
) -> Option<String> {
    if let Some(left) = sale.stock {
        return Some(format!("an ended sale that has {} left in Redis", counted(left, "unit")));
    }
    let row = row?;
    row.window()
        .differs_from(&window, now)
        .then(|| "a different begin or end of the sale in MySQL".to_owned())
}

/// Loads the voucher into both stores. The inner error means that another program changed it at the same time, or that
/// MySQL cannot store the number.
async fn load(
    stores: &VoucherStores,
    request: &LoadRequest,
) -> anyhow::Result<Result<LoadOutcome, LoadRefusal>> {
    let LoadRequest { voucher, stock, .. } = *request;
    let (begin_ms, end_ms) = request.window().ms();
    let (pay_within_s, keeps_journal) = (request.pay_within_s, request.journal == JournalUse::Complete);
    let new = NewVoucher { voucher, stock, begin_ms, end_ms, pay_within_s, keeps_journal };
    match vouchers::insert(&stores.mysql, &new).await.context(FAILED_IN_MYSQL)? {
        Inserted::New => {}
        Inserted::TooMany => return Ok(Err(LoadRefusal::ColumnTooSmall)),
        Inserted::Existed => {
            if !vouchers::complete(&stores.mysql, &new).await.context(FAILED_IN_MYSQL)? {
                return Ok(Err(LoadRefusal::RowChanged));
            }
        }
    }
    // The limits come first, because no one may buy before Redis has them.
    if let Err(not_shown) = limits::show_all(stores, voucher, LOADED_BY).await? {
        return Ok(Err(LoadRefusal::LimitsNotShown(not_shown)));
    }
    let reply = stores
        .redis
        .sales()
        .load_with(voucher, stock.unsigned_abs(), request.window(), request.journal)
        .await;
    let reply =
        reply.context("Failed to load the voucher into Redis; MySQL has its row: run this command again")?;
    let loaded = match reply {
        LoadReply::Loaded => Ok(LoadOutcome::Loaded),
        LoadReply::LoadedPaused => Ok(LoadOutcome::LoadedPaused),
        LoadReply::Delisted => Err(LoadRefusal::Delisted),
        LoadReply::OnSale | LoadReply::Begun => load_of_whom(stores, request).await?,
    };
    if loaded.is_ok() {
        let noted = async {
            let row = stores.row(voucher).await?;
            // If a shop has just changed the row, a comparison reports the difference.
            let is_loaded =
                |row: &VoucherRow| !row.window().differs_from(&request.window(), Timestamp::now());
            if let Some(row) = row.filter(is_loaded) {
                windows::note(&stores.mysql, &row).await?;
            }
            anyhow::Ok(())
        };
        noted.await.context("Failed to note in MySQL that Redis has the window; run this command again")?;
    }
    Ok(loaded)
}

/// Decides which load has put the voucher on sale since the plan was read. The client repeats a command whose reply was
/// lost, so the sale may come from the first attempt. Because the row in MySQL comes from this load, no other load can
/// have begun exactly this sale.
async fn load_of_whom(
    stores: &VoucherStores,
    request: &LoadRequest,
) -> anyhow::Result<Result<LoadOutcome, LoadRefusal>> {
    let sale = stores.state(request.voucher).await?;
    // Some units may be sold by now.
    let is_ours =
        sale.stock.is_some_and(|left| left <= request.stock) && sale.window.is_same(&request.window());
    Ok(match (is_ours, sale.pause.is_paused()) {
        (true, false) => Ok(LoadOutcome::Loaded),
        (true, true) => Ok(LoadOutcome::LoadedPaused),
        (false, _) => Err(LoadRefusal::JustLoaded),
    })
}
