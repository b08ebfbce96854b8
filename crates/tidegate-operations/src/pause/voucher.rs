//! Pauses or resumes the sale of one voucher.

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    RedisStore, VoucherId, sale,
    scripts::{Pause, PauseScope, ScriptError},
};
use tidegate_stream::readable;

use crate::change::{Next, Plan, Report};

/// The request of an operator to pause or resume the sale of one voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherPauseRequest {
    /// Pause the sale of this voucher.
    Pause(VoucherId),
    /// End the pause of this sale, whether it was paused individually or together with all sales.
    Resume(VoucherId),
}

impl VoucherPauseRequest {
    /// Returns the voucher whose sale is paused or resumed.
    #[must_use]
    pub const fn voucher(self) -> VoucherId {
        match self {
            Self::Pause(voucher) | Self::Resume(voucher) => voucher,
        }
    }
}

/// The planned or actual result of pausing or resuming the sale of one voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoucherPauseOutcome {
    /// The sale would be paused.
    WouldPause,
    /// The sale is paused now.
    Paused,
    /// The sale was paused before.
    PausedBefore,
    /// The sale would be resumed.
    WouldResume,
    /// The sale is resumed now.
    Resumed,
    /// The sale was not paused.
    NotPaused,
    /// The sale is not paused, and Redis has no stock of the voucher.
    NoStock,
}

/// The plan or the report of pausing or resuming the sale of one voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherPauseState {
    /// The voucher whose sale is paused or resumed.
    pub voucher: VoucherId,
    /// The planned or actual result of the request.
    pub outcome: VoucherPauseOutcome,
    /// The number of units left in Redis when the plan was read. None: Redis has no stock of the voucher, or the stock
    /// cannot be read.
    pub stock: Option<i64>,
    /// The error if the stock cannot be read, because the key has a wrong type.
    #[serde(skip)]
    pub stock_error: Option<String>,
    /// Whether the sale is paused because an operator paused all sales.
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
                Next::Ask(format!("Resume the sale of voucher {}?", self.voucher))
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

/// The operation that pauses or resumes the sale of one voucher.
#[derive(Clone, Debug)]
pub struct VoucherPause<'a> {
    redis: &'a RedisStore,
    request: VoucherPauseRequest,
}

impl<'a> VoucherPause<'a> {
    /// Creates the operation that pauses or resumes the sale of one voucher in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: VoucherPauseRequest) -> Self {
        Self { redis, request }
    }

    /// Reads the stock and the pause of the voucher. Unreadable data of the voucher is ignored, because it must not
    /// prevent an operator from pausing the sale.
    ///
    /// # Errors
    /// If Redis does not answer.
    pub async fn plan(&self) -> anyhow::Result<VoucherPauseState> {
        let voucher = self.request.voucher();
        let (stock, stock_error) = match sale::read_stock(self.redis, voucher).await {
            Ok(stock) => (stock, None),
            Err(error) => match ScriptError::from(error) {
                ScriptError::Refused(wrong) => (None, Some(readable(wrong.details()))),
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

    /// Pauses or resumes the sale as planned.
    ///
    /// # Errors
    /// If Redis does not answer or refuses.
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

/// Returns the outcome of the request. A stock that cannot be read counts as a stock: no one can buy now, but an
/// operator will repair the key.
fn outcome(request: VoucherPauseRequest, pause: Pause, has_stock: bool) -> VoucherPauseOutcome {
    match (request, pause) {
        (VoucherPauseRequest::Pause(_), Pause::Paused(PauseScope::Own)) => VoucherPauseOutcome::PausedBefore,
        // From then on, the sale stays paused when all others are resumed.
        (VoucherPauseRequest::Pause(_), Pause::Paused(PauseScope::All)) => VoucherPauseOutcome::WouldPause,
        (VoucherPauseRequest::Resume(_), Pause::Paused(_)) => VoucherPauseOutcome::WouldResume,
        (_, Pause::Running) if !has_stock => VoucherPauseOutcome::NoStock,
        (VoucherPauseRequest::Pause(_), Pause::Running) => VoucherPauseOutcome::WouldPause,
        (VoucherPauseRequest::Resume(_), Pause::Running) => VoucherPauseOutcome::NotPaused,
    }
}
