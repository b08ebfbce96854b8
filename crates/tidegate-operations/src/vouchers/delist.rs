//! Ends the sale of a voucher for good: in MySQL first, because MySQL is the authority, then in Redis.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    VoucherId,
    delist::{DelistedRow, delist_in_mysql},
    scripts::{ChangeState, DelistReply, StockChange},
};

use super::VoucherStores;
use crate::change::{Ending, Next, Plan, Report};

/// The planned or actual result of delisting a voucher, which ends its sale permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DelistOutcome {
    /// The voucher can be delisted.
    WouldDelist,
    /// The voucher is delisted in MySQL, and would be in Redis.
    WouldComplete,
    /// The voucher is delisted in both stores now.
    Delisted,
    /// The voucher was delisted in MySQL, and is now in Redis, too.
    Completed,
    /// The voucher was delisted in both stores before.
    DelistedBefore,
    /// The delisting is refused: MySQL has no row of the voucher.
    NoRow,
    /// The delisting is refused: a change of the voucher's stock is unfinished.
    ChangeIsOpen,
}

impl DelistOutcome {
    const fn is_refused(self) -> bool {
        matches!(self, Self::NoRow | Self::ChangeIsOpen)
    }
}

/// The plan or the report of delisting a voucher, which ends its sale permanently.
#[derive(Clone, Debug, Serialize)]
pub struct DelistState {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The planned or actual result of the delisting.
    pub outcome: DelistOutcome,
    /// The number of units left in Redis when the plan was read. After the delisting, these units cannot be sold.
    pub redis_stock: Option<i64>,
    /// The number of orders in MySQL that were not cancelled when the plan was read.
    pub orders: i64,
    /// Whether Redis has keys of the voucher. Workers remove these keys some time after the delisting.
    pub has_keys: bool,
    /// The change of the voucher's stock that is not finished; None: no change is unfinished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<Box<StockChange>>,
}

impl Plan for DelistState {
    fn next(&self) -> Next {
        match self.outcome {
            outcome if outcome.is_refused() => Next::Refused,
            DelistOutcome::WouldDelist => {
                Next::Ask(format!("End the sale of voucher {} forever?", self.voucher))
            }
            DelistOutcome::WouldComplete => Next::Go,
            _ => Next::NothingToDo,
        }
    }
}

impl Report for DelistState {
    fn counts(&self) -> Json {
        json!({ "vouchers": u8::from(!self.outcome.is_refused()) })
    }

    fn ending(&self) -> Ending {
        if self.outcome.is_refused() { Ending::Refused } else { Ending::Done }
    }
}

/// Reads the voucher from Redis and MySQL, plans the delisting, and changes nothing.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(stores: &VoucherStores, voucher: VoucherId) -> anyhow::Result<DelistState> {
    let note =
        stores.redis.sales().read_change(voucher).await.context("Failed to read the voucher in Redis")?;
    let open = note.filter(|note| note.state == ChangeState::Open).map(Box::new);
    let sale = stores.state(voucher).await?;
    let row = stores.row(voucher).await?;
    let orders = stores.records().counts().live_of_voucher(voucher).await;
    let has_sale = sale.stock.is_some() || sale.buyers + sale.journaled > 0;
    let outcome = match row.map(|row| row.delisted_ms) {
        None => DelistOutcome::NoRow,
        Some(_) if open.is_some() => DelistOutcome::ChangeIsOpen,
        Some(None) => DelistOutcome::WouldDelist,
        Some(Some(_)) if has_sale && sale.delisted_ms.is_none() => DelistOutcome::WouldComplete,
        Some(Some(_)) => DelistOutcome::DelistedBefore,
    };
    let orders = orders.context("Failed to count the orders of the voucher")?;
    Ok(DelistState { voucher, outcome, redis_stock: sale.stock, orders, has_keys: sale.has_keys(), open })
}

/// Ends the sale permanently: first in the row of MySQL, then in the keys of Redis. If the call fails, call it again to
/// complete the delisting.
///
/// # Errors
/// If a store does not answer.
pub async fn run(stores: &VoucherStores, plan: DelistState) -> anyhow::Result<DelistState> {
    let DelistState { voucher, outcome, .. } = plan;
    let row = delist_in_mysql(stores.redis.sales(), &stores.mysql, voucher).await;
    let refused = match row.context("Failed to delist the voucher in MySQL")? {
        DelistedRow::Delisted => None,
        DelistedRow::NoRow => Some((DelistOutcome::NoRow, None)),
        DelistedRow::ChangeIsOpen(open) => Some((DelistOutcome::ChangeIsOpen, Some(open))),
    };
    if let Some((outcome, open)) = refused {
        return Ok(DelistState { outcome, open, ..plan });
    }
    let reply = stores.redis.sales().delist(voucher).await;
    let reply =
        reply.context("Failed to end the sale in Redis, but MySQL has ended it: run this command again")?;
    let outcome = match outcome {
        DelistOutcome::WouldComplete => DelistOutcome::Completed,
        _ => DelistOutcome::Delisted,
    };
    Ok(DelistState { outcome, has_keys: reply != DelistReply::NoSale, open: None, ..plan })
}
