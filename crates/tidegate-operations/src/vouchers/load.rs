//! Puts a voucher on sale: in MySQL first, because that is the authority, then in Redis.

use anyhow::Context;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tidegate_compare::text::counted;
use tidegate_orders::{
    VoucherId,
    gate::{JournalUse, LoadReply, SaleWindow, VoucherState},
    records::vouchers::{self, Inserted, NewVoucher, VoucherRow},
};

use super::{
    COLUMN_TOO_SMALL, VoucherStores,
    limits::{self, NotShown},
};
use crate::change::{Ending, InvalidInput, Next, Plan, Report};

#[cfg(test)]
mod tests;

/// Who shows Redis the limits of a voucher, as the journal has it.
const LOADED_BY: &str = "voucher_load";
const FAILED_IN_MYSQL: &str = "Failed to write the voucher to MySQL";

/// A sale that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadRequest {
    /// The voucher.
    pub voucher: VoucherId,
    /// Units to sell, 1 to [`super::MAX_STOCK`].
    pub stock: i64,
    /// The sale begins; None: now.
    pub begin: Option<Timestamp>,
    /// The sale ends; None: never.
    pub end: Option<Timestamp>,
    /// Seconds in which an order has to be paid; 0: it never expires. None: as the configuration says, or its row.
    pub pay_within_s: Option<i64>,
    /// Whether what sells it keeps a journal.
    #[serde(skip)]
    pub journal: JournalUse,
}

impl LoadRequest {
    /// Whether there is a moment at which it can be sold.
    ///
    /// # Errors
    /// When it begins after its end, or has ended before `now`.
    pub fn check(&self, now: Timestamp) -> Result<(), InvalidInput> {
        match (self.begin, self.end) {
            (Some(begin), Some(end)) if begin >= end => {
                Err(InvalidInput("begin must lie before end".to_owned()))
            }
            (_, Some(end)) if end <= now => Err(InvalidInput("end lies in the past".to_owned())),
            _ => Ok(()),
        }
    }

    const fn window(&self) -> SaleWindow {
        SaleWindow { begin: self.begin, end: self.end }
    }
}

/// What loading came to, or would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadOutcome {
    /// It can be loaded.
    WouldLoad,
    /// This very sale is on already, and nothing of it was sold yet.
    LoadedBefore,
    /// It is on sale.
    Loaded,
    /// It is loaded; its sale was paused before and still is.
    LoadedPaused,
    /// It is not loaded, for a reason.
    Refused,
}

/// Why a voucher must not be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadRefusal {
    /// Its sale is on. Units can be added or taken instead.
    #[error("it is on sale in Redis with {left} units left")]
    OnSale {
        /// Units left.
        left: i64,
    },
    /// It was on sale, its end has not come, and Redis has no stock.
    #[error(
        "MySQL holds {} of it, so it was on sale, and Redis lost its stock: see docs/runbook/redis-lost-data.md. \
         Another voucher id is for another sale only",
        counted(*orders, "order")
    )]
    StockLost {
        /// Its orders in MySQL that are not cancelled.
        orders: i64,
    },
    /// Redis knows who bought it.
    #[error("Redis holds {} of it, so it was on sale; a new sale takes another voucher id", counted(*buyers, "buyer"))]
    HasBuyers {
        /// How many.
        buyers: u64,
    },
    /// MySQL has orders of it.
    #[error("MySQL holds {} of it, so it was on sale; a new sale takes another voucher id", counted(*orders, "order"))]
    HasOrders {
        /// How many are not cancelled.
        orders: i64,
    },
    /// Its sale is over for good.
    #[error(
        "it is delisted: its sale is over for good, and a new one takes another voucher id; see docs/delist.md"
    )]
    Delisted,
    /// MySQL has its row, with another stock.
    #[error("MySQL holds it with a stock of {stock}")]
    OtherStock {
        /// What it could be loaded with.
        stock: i64,
    },
    /// MySQL cannot store the number.
    #[error("{COLUMN_TOO_SMALL}")]
    ColumnTooSmall,
    /// It has limits, and Redis does not take them.
    #[error("its limits cannot be shown to Redis: {0}")]
    LimitsNotShown(NotShown),
    /// Somebody else was at work between plan and run.
    #[error("its row in MySQL was changed at this very moment")]
    RowChanged,
    /// Somebody else was at work between plan and run.
    #[error("it is on sale in Redis, since this very moment")]
    JustLoaded,
}

impl Serialize for LoadRefusal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A load before it is made, which is its plan, and afterwards, which is its report.
#[derive(Clone, Debug, Serialize)]
pub struct LoadState {
    /// What was asked for.
    #[serde(flatten)]
    pub request: LoadRequest,
    /// What came of it, or would come.
    pub outcome: LoadOutcome,
    /// Why it is refused.
    #[serde(rename = "reason")]
    pub refusal: Option<LoadRefusal>,
    /// What it writes over.
    pub overwrites: Option<String>,
}

impl Plan for LoadState {
    fn next(&self) -> Next {
        match (self.outcome, &self.overwrites) {
            (LoadOutcome::LoadedBefore, _) => Next::NothingToDo,
            (LoadOutcome::Refused, _) => Next::Refused,
            (_, None) => Next::Go,
            (_, Some(_)) => Next::Ask(format!("Load voucher {} all the same?", self.request.voucher)),
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

/// Looks at both sides, and changes nothing.
///
/// # Errors
/// When a store does not answer.
pub async fn plan(stores: &VoucherStores, request: LoadRequest) -> anyhow::Result<LoadState> {
    let LoadRequest { voucher, stock, .. } = request;
    let sale = stores.state(voucher).await?;
    let row = stores.row(voucher).await?;
    // Cancelled ones of a voucher that was never on sale may be there: cancelling dead letters leaves them.
    let orders = stores.records().counts().live_of_voucher(voucher).await;
    let orders = orders.context("Failed to count its orders")?;
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

/// Loads what was planned: the row, then the keys. May be called again after a failure, and completes it then.
///
/// # Errors
/// When a store does not answer.
pub async fn run(stores: &VoucherStores, plan: LoadState) -> anyhow::Result<LoadState> {
    let LoadState { request, overwrites, .. } = plan;
    let (outcome, refusal) = match load(stores, &request).await? {
        Ok(outcome) => (outcome, None),
        Err(refusal) => (LoadOutcome::Refused, Some(refusal)),
    };
    Ok(LoadState { request, outcome, refusal, overwrites })
}

/// Whether both sides are as this load leaves them, with nothing sold.
fn is_loaded(sale: &VoucherState, row: Option<&VoucherRow>, request: &LoadRequest) -> bool {
    let stock = request.stock;
    let row = row.is_some_and(|row| {
        let pay_within_s = request.pay_within_s.or(row.pay_within_s);
        (row.stock, row.initial_stock, row.pay_within_s) == (stock, Some(stock), pay_within_s)
    });
    row && sale.stock == Some(stock) && is_same(sale.window, request.window())
}

/// To the millisecond, which is what Redis keeps.
fn is_same(one: SaleWindow, other: SaleWindow) -> bool {
    let ms =
        |window: SaleWindow| [window.begin, window.end].map(|bound| bound.map(Timestamp::as_millisecond));
    ms(one) == ms(other)
}

/// Why the voucher must not be loaded; None where both sides are free, or hold what a load left that died half-way.
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
    let is_over = sale.window.end.is_some_and(|end| end <= now);
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

/// What is there and would be lost by loading; None where that is nothing, or what a load left that died half-way.
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
    let second = |moment: Timestamp| moment.as_millisecond().div_euclid(1000);
    let ends_otherwise = row.end_ms.map(|ms| ms.div_euclid(1000)) != window.end.map(second);
    // Without a moment to begin, a load writes the present one.
    let begins_otherwise = row.begin_ms.is_some_and(|ms| match window.begin {
        Some(begin) => ms.div_euclid(1000) != second(begin),
        None => ms > now.as_millisecond(),
    });
    (ends_otherwise || begins_otherwise).then(|| "the times of its row in MySQL, which are others".to_owned())
}

/// The inner error: somebody else was at work, or MySQL cannot store the number.
async fn load(
    stores: &VoucherStores,
    request: &LoadRequest,
) -> anyhow::Result<Result<LoadOutcome, LoadRefusal>> {
    let LoadRequest { voucher, stock, .. } = *request;
    let ms = |moment: Option<Timestamp>| moment.map(Timestamp::as_millisecond);
    let (begin_ms, end_ms) = (ms(request.begin), ms(request.end));
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
    // Nobody may buy before Redis knows them.
    if let Err(not_shown) = limits::show_all(stores, voucher, LOADED_BY).await? {
        return Ok(Err(LoadRefusal::LimitsNotShown(not_shown)));
    }
    let reply = stores
        .redis
        .sales()
        .load_with(voucher, stock.unsigned_abs(), request.window(), request.journal)
        .await;
    let reply =
        reply.context("Failed to load the voucher into Redis; its MySQL row is there, run this again")?;
    Ok(match reply {
        LoadReply::Loaded => Ok(LoadOutcome::Loaded),
        LoadReply::LoadedPaused => Ok(LoadOutcome::LoadedPaused),
        LoadReply::Delisted => Err(LoadRefusal::Delisted),
        LoadReply::OnSale => load_of_whom(stores, request).await?,
    })
}

/// The sale is on although it was not a moment ago. The client sends a command again whose reply was lost, so this
/// may be what the first one did; since its row in MySQL is ours, no other load can have begun the sale that we wanted.
async fn load_of_whom(
    stores: &VoucherStores,
    request: &LoadRequest,
) -> anyhow::Result<Result<LoadOutcome, LoadRefusal>> {
    let sale = stores.state(request.voucher).await?;
    // Some may be sold by now.
    let is_ours =
        sale.stock.is_some_and(|left| left <= request.stock) && is_same(sale.window, request.window());
    Ok(match (is_ours, sale.pause.is_paused()) {
        (true, false) => Ok(LoadOutcome::Loaded),
        (true, true) => Ok(LoadOutcome::LoadedPaused),
        (false, _) => Err(LoadRefusal::JustLoaded),
    })
}
