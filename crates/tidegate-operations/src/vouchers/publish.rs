//! Publishes a voucher: puts its row with stock and window into MySQL, before its sale begins. Redis gets the voucher
//! later, from a worker that loads vouchers (`calendar.warm_up`), or from a load by an operator.

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_orders::{
    VoucherId,
    records::vouchers::{self, Inserted, NewVoucher, VoucherRow},
    scripts::SaleWindow,
};

use super::COLUMN_TOO_SMALL;
use crate::change::{Ending, InvalidInput, Next, Plan, Report};

/// The request to publish a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublishRequest {
    /// The voucher whose row is written.
    pub voucher: VoucherId,
    /// The number of units to sell, from 1 to [`super::MAX_STOCK`].
    pub stock: i64,
    /// The time when the sale begins, which lies in the future.
    pub begin: Timestamp,
    /// The time when the sale ends; None: the sale never ends.
    pub end: Option<Timestamp>,
    /// The time limit for the payment of an order, in seconds. 0: orders never expire. None: the configuration sets the
    /// time limit.
    pub pay_within_s: Option<i64>,
}

impl PublishRequest {
    /// Checks that the sale begins in the future, and before it ends.
    ///
    /// # Errors
    /// If the sale has begun by `now`, or would end before it begins.
    pub fn check(&self, now: Timestamp) -> Result<(), InvalidInput> {
        if self.begin <= now {
            return Err(InvalidInput("the sale must begin in the future".to_owned()));
        }
        if !self.window().can_open() {
            return Err(InvalidInput("the sale must begin before it ends".to_owned()));
        }
        Ok(())
    }

    const fn window(&self) -> SaleWindow {
        SaleWindow { begin: Some(self.begin), end: self.end }
    }

    /// Whether a row has what this request writes.
    fn is_in(&self, row: &VoucherRow) -> bool {
        let is_same = row.window().is_same_in_mysql(&self.window()) && row.pay_within_s == self.pay_within_s;
        is_same && row.stock == self.stock && row.delisted_ms.is_none()
    }
}

/// The planned or actual result of publishing a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishOutcome {
    /// The voucher can be published.
    WouldPublish,
    /// MySQL has the voucher now.
    Published,
    /// MySQL had exactly this voucher before.
    PublishedBefore,
    /// The voucher is not published, for a reason.
    Refused,
}

/// The reason why a voucher is not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishRefusal {
    /// MySQL has another row of the voucher.
    #[error(
        "MySQL already has this voucher, with a stock of {stock} and a sale {window}. Use another id; tidegate voucher schedule \
         changes the times"
    )]
    Exists {
        /// The stock of the voucher in MySQL.
        stock: i64,
        /// The window of the voucher in MySQL.
        window: SaleWindow,
    },
    /// The sale of the voucher has ended forever.
    #[error(
        "the voucher is delisted: its sale has ended forever. Use another voucher id; see docs/delist.md"
    )]
    Delisted,
    /// The column in MySQL cannot store the stock.
    #[error("{COLUMN_TOO_SMALL}")]
    ColumnTooSmall,
}

/// The plan or the report of publishing a voucher.
#[derive(Clone, Debug, Serialize)]
pub struct PublishState {
    /// The request to publish the voucher.
    #[serde(flatten)]
    pub request: PublishRequest,
    /// The planned or actual result of the request.
    pub outcome: PublishOutcome,
    /// The reason why the request is refused; None: it is not refused.
    #[serde(rename = "reason", serialize_with = "as_text")]
    pub refusal: Option<PublishRefusal>,
}

fn as_text<S: serde::Serializer>(refusal: &Option<PublishRefusal>, serializer: S) -> Result<S::Ok, S::Error> {
    refusal.as_ref().map(ToString::to_string).serialize(serializer)
}

impl PublishState {
    fn new(request: PublishRequest, found: Result<PublishOutcome, PublishRefusal>) -> Self {
        match found {
            Ok(outcome) => Self { request, outcome, refusal: None },
            Err(refusal) => Self { request, outcome: PublishOutcome::Refused, refusal: Some(refusal) },
        }
    }
}

impl Plan for PublishState {
    fn next(&self) -> Next {
        match self.outcome {
            PublishOutcome::Refused => Next::Refused,
            PublishOutcome::PublishedBefore => Next::NothingToDo,
            _ => Next::Go,
        }
    }
}

impl Report for PublishState {
    fn counts(&self) -> Json {
        json!({ "units": if self.refusal.is_none() { self.request.stock } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.refusal.is_none() { Ending::Done } else { Ending::Refused }
    }
}

/// Reads the row of the voucher in MySQL, plans to publish the voucher, and changes nothing.
///
/// # Errors
/// If MySQL does not answer.
pub async fn plan(mysql: &MySqlPool, request: PublishRequest) -> anyhow::Result<PublishState> {
    let found = existing(mysql, request).await?.unwrap_or(Ok(PublishOutcome::WouldPublish));
    Ok(PublishState::new(request, found))
}

/// Writes the row of the voucher to MySQL. If the call fails, call it again.
///
/// # Errors
/// If MySQL does not answer.
pub async fn run(mysql: &MySqlPool, request: PublishRequest) -> anyhow::Result<PublishState> {
    let (begin_ms, end_ms) = request.window().ms();
    let PublishRequest { voucher, stock, pay_within_s, .. } = request;
    let new = NewVoucher { voucher, stock, begin_ms, end_ms, pay_within_s, keeps_journal: true };
    let inserted = vouchers::insert(mysql, &new).await.context("Failed to write the voucher to MySQL")?;
    let found = match inserted {
        Inserted::New => Ok(PublishOutcome::Published),
        Inserted::TooMany => Err(PublishRefusal::ColumnTooSmall),
        Inserted::Existed => {
            existing(mysql, request).await?.context("The row of the voucher has just vanished")?
        }
    };
    Ok(PublishState::new(request, found))
}

/// Compares the request with the row that MySQL has. Returns None if MySQL has no row.
async fn existing(
    mysql: &MySqlPool,
    request: PublishRequest,
) -> anyhow::Result<Option<Result<PublishOutcome, PublishRefusal>>> {
    let row = vouchers::find(mysql, request.voucher).await.context("Failed to read the voucher in MySQL")?;
    Ok(row.map(|row| match row.delisted_ms {
        Some(_) => Err(PublishRefusal::Delisted),
        None if request.is_in(&row) => Ok(PublishOutcome::PublishedBefore),
        None => Err(PublishRefusal::Exists { stock: row.stock, window: row.window() }),
    }))
}
