//! Pausing and resuming the sale of one voucher, and its report.

use tidegate_operations::{
    Stores,
    pause::voucher::{VoucherPause, VoucherPauseOutcome, VoucherPauseRequest, VoucherPauseState},
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

impl PlanText for VoucherPauseState {
    fn text(&self) -> String {
        let stock = self.stock_error.as_ref().map(|error| format!("; its stock cannot be read: {error}"));
        format!("voucher {}: {}{}", self.voucher, sentence(self), stock.unwrap_or_default())
    }
}

impl ReportText for VoucherPauseState {
    fn text(&self) -> String {
        format!("voucher {}: {}", self.voucher, sentence(self))
    }
}

fn sentence(state: &VoucherPauseState) -> &'static str {
    match state.outcome {
        VoucherPauseOutcome::WouldPause if state.is_paused_with_all => {
            "its sale is paused with all sales, and would stay paused when all sales are resumed"
        }
        VoucherPauseOutcome::WouldPause => "its sale would be paused",
        VoucherPauseOutcome::Paused => "its sale is paused",
        VoucherPauseOutcome::PausedBefore => "its sale is already paused",
        VoucherPauseOutcome::WouldResume => "its sale would be resumed",
        VoucherPauseOutcome::Resumed => "its sale is not paused any more",
        VoucherPauseOutcome::NotPaused => "its sale was not paused",
        VoucherPauseOutcome::NoStock => "Redis has no stock of this voucher; nothing was changed",
    }
}

/// Pauses the sale of a voucher, or resumes it.
pub async fn run(stores: &Stores, request: VoucherPauseRequest, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let pause = VoucherPause::new(redis, request);
    let plan = pause.plan().await?;
    Change::new(stores, args).run(plan, async |plan, _job| pause.run(plan).await).await
}
