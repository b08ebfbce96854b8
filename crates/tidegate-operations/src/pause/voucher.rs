//! Pauses or resumes the sale of one voucher.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    RedisStore, VoucherId,
    gate::{GateError, Pause, PauseScope},
    sale,
};
use tidegate_stream::readable;

use crate::change::{Next, Plan, Report};

/// What is to be done with the sale of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherPauseRequest {
    /// Stop it.
    Pause(VoucherId),
    /// End its pause, however it was paused.
    Resume(VoucherId),
}

impl VoucherPauseRequest {
    /// Which voucher's.
    #[must_use]
    pub const fn voucher(self) -> VoucherId {
        match self {
            Self::Pause(voucher) | Self::Resume(voucher) => voucher,
        }
    }
}

/// The result of the pause or resume, planned or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoucherPauseOutcome {
    /// It would be paused.
    WouldPause,
    /// It is paused.
    Paused,
    /// It was paused before.
    PausedBefore,
    /// It would go on.
    WouldResume,
    /// It goes on.
    Resumed,
    /// It was not paused.
    NotPaused,
    /// It is not paused, and Redis has no stock of the voucher.
    NoStock,
}

/// The plan and the report of a pause or resume of one sale.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherPauseState {
    /// Which.
    pub voucher: VoucherId,
    /// The result.
    pub outcome: VoucherPauseOutcome,
    /// Units left in Redis when the plan was read. None: no stock is loaded, or it cannot be read.
    pub stock: Option<i64>,
    /// Why the stock cannot be read: the key holds something else than a number.
    #[serde(skip)]
    pub stock_error: Option<String>,
    /// It is paused together with all others.
    #[serde(skip)]
    pub is_paused_with_all: bool,
}

impl Plan for VoucherPauseState {
    fn next(&self) -> Next {
        match self.outcome {
            VoucherPauseOutcome::WouldPause => {
                Next::Ask(format!("Pause the sale of voucher {}?", self.voucher))
            }
            VoucherPauseOutcome::WouldResume => {
                Next::Ask(format!("Go on with the sale of voucher {}?", self.voucher))
            }
            VoucherPauseOutcome::NoStock => Next::Refused,
            VoucherPauseOutcome::PausedBefore
            | VoucherPauseOutcome::NotPaused
            | VoucherPauseOutcome::Paused
            | VoucherPauseOutcome::Resumed => Next::NothingToDo,
        }
    }
}

impl Report for VoucherPauseState {
    fn counts(&self) -> Json {
        json!({ "vouchers": 1 })
    }
}

/// Pauses or resumes the sale of one voucher.
#[derive(Clone, Debug)]
pub struct VoucherPause<'a> {
    redis: &'a RedisStore,
    request: VoucherPauseRequest,
}

impl<'a> VoucherPause<'a> {
    /// A pause of one voucher in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: VoucherPauseRequest) -> Self {
        Self { redis, request }
    }

    /// Reads stock and pause, and no more: whatever else is wrong with a voucher must not keep an operator from stopping
    /// its sale.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn plan(&self) -> anyhow::Result<VoucherPauseState> {
        let voucher = self.request.voucher();
        let (stock, stock_error) = match sale::read_stock(self.redis, voucher).await {
            Ok(stock) => (stock, None),
            Err(error) => match GateError::from(error) {
                GateError::Refused(wrong) => (None, Some(readable(wrong.details()))),
                error => return Err(error).context("Failed to read the stock in Redis"),
            },
        };
        let pause = self.redis.sales().read_pauses(&[voucher]).await.pop().unwrap_or(Ok(Pause::Running));
        let pause = pause.context("Failed to read the pause in Redis")?;
        let is_known = stock.is_some() || stock_error.is_some();
        Ok(VoucherPauseState {
            voucher,
            outcome: outcome(self.request, pause, is_known),
            stock,
            stock_error,
            is_paused_with_all: pause == Pause::Paused(PauseScope::All),
        })
    }

    /// Does what is planned.
    ///
    /// # Errors
    /// When Redis does not answer or refuses.
    pub async fn run(&self, plan: VoucherPauseState) -> anyhow::Result<VoucherPauseState> {
        let sales = self.redis.sales();
        let outcome = match self.request {
            VoucherPauseRequest::Pause(voucher) => {
                sales.pause(voucher, PauseScope::Own).await.context("Failed to pause the sale")?;
                VoucherPauseOutcome::Paused
            }
            VoucherPauseRequest::Resume(voucher) => {
                let resumed = sales.resume(voucher, PauseScope::Own).await;
                resumed.context("Failed to end the pause of the sale")?;
                VoucherPauseOutcome::Resumed
            }
        };
        Ok(VoucherPauseState { outcome, ..plan })
    }
}

/// A stock that cannot be read counts as a stock: nobody can buy now, but somebody will repair the key.
fn outcome(request: VoucherPauseRequest, pause: Pause, has_stock: bool) -> VoucherPauseOutcome {
    match (request, pause) {
        (VoucherPauseRequest::Pause(_), Pause::Paused(PauseScope::Own)) => VoucherPauseOutcome::PausedBefore,
        // From then on it stays paused when all others go on.
        (VoucherPauseRequest::Pause(_), Pause::Paused(PauseScope::All)) => VoucherPauseOutcome::WouldPause,
        (VoucherPauseRequest::Resume(_), Pause::Paused(_)) => VoucherPauseOutcome::WouldResume,
        (_, Pause::Running) if !has_stock => VoucherPauseOutcome::NoStock,
        (VoucherPauseRequest::Pause(_), Pause::Running) => VoucherPauseOutcome::WouldPause,
        (VoucherPauseRequest::Resume(_), Pause::Running) => VoucherPauseOutcome::NotPaused,
    }
}
