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

/// The change that an operator wants for the sale of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoucherPauseRequest {
    /// Pause the sale of this voucher.
    Pause(VoucherId),
    /// End the pause of this sale, whether it was paused individually or together with all.
    Resume(VoucherId),
}

impl VoucherPauseRequest {
    /// Returns the voucher of the request.
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

/// The plan and the report of a pause or resume of one sale.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherPauseState {
    /// The voucher of the sale.
    pub voucher: VoucherId,
    /// The result, planned or done.
    pub outcome: VoucherPauseOutcome,
    /// The units left in Redis when the plan was read. None: no stock is loaded, or it cannot be read.
    pub stock: Option<i64>,
    /// The error if the stock cannot be read: the key has a wrong type.
    #[serde(skip)]
    pub stock_error: Option<String>,
    /// Whether the sale is paused together with all others.
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

/// Pauses or resumes the sale of one voucher.
#[derive(Clone, Debug)]
pub struct VoucherPause<'a> {
    redis: &'a RedisStore,
    request: VoucherPauseRequest,
}

impl<'a> VoucherPause<'a> {
    /// Creates a pause of one voucher in this Redis.
    #[must_use]
    pub fn new(redis: &'a RedisStore, request: VoucherPauseRequest) -> Self {
        Self { redis, request }
    }

    /// Reads only the stock and the pause: other faults of a voucher must not keep an operator from stopping its sale.
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

    /// Runs the planned pause or resume.
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
