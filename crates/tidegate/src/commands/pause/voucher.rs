//! Pausing and resuming the sale of one voucher, and what is said of it.

use tidegate_operations::{
    Stores,
    pause::voucher::{
        ChangedPause, PlannedPause, VoucherPause, VoucherPausePlan, VoucherPauseReport, VoucherPauseRequest,
    },
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

impl PlanText for VoucherPausePlan {
    fn text(&self) -> String {
        let sentence = match self.outcome {
            PlannedPause::WouldPause if self.is_paused_with_all => {
                "its sale is paused with all others, and would stay paused when they go on"
            }
            PlannedPause::WouldPause => "its sale would be paused",
            PlannedPause::PausedBefore => "its sale was paused before",
            PlannedPause::WouldResume => "its sale would go on",
            PlannedPause::NotPaused => "its sale was not paused",
            PlannedPause::NoStock => "Redis has no stock of it; nothing was changed",
        };
        let stock = self.stock_error.as_ref().map(|error| format!("; its stock cannot be read: {error}"));
        format!("voucher {}: {sentence}{}", self.voucher, stock.unwrap_or_default())
    }
}

impl ReportText for VoucherPauseReport {
    fn text(&self) -> String {
        let sentence = match self.outcome {
            ChangedPause::Paused => "its sale is paused",
            ChangedPause::Resumed => "its sale is not paused any more",
        };
        format!("voucher {}: {sentence}", self.voucher)
    }
}

/// Stops the sale, or ends its pause.
pub async fn run(stores: &Stores, request: VoucherPauseRequest, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let pause = VoucherPause::new(redis, request);
    let plan = pause.plan().await?;
    Change::new(stores, args).run(plan, async |plan, _job| pause.run(&plan).await).await
}
