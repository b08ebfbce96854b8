//! Pausing the sales of all vouchers, and its report.

use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    pause::sales::{SalesPause, SalesPausePlan, SalesPauseReport},
};
use tidegate_orders::VoucherId;

use super::{failures, names};
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ProgressBar, ReportText},
};

impl PlanText for SalesPausePlan {
    fn text(&self) -> String {
        if self.running.is_empty() {
            return nothing_to_pause(&self.paused_before);
        }
        let before = paused_before(&self.paused_before);
        let sales = counted(self.running.len() as u64, "sale");
        format!("{sales} would be paused: {}{before}", names(&self.running))
    }
}

impl ReportText for SalesPauseReport {
    fn text(&self) -> String {
        let sales = counted(self.changed.vouchers.len() as u64, "sale");
        let before = paused_before(&self.paused_before);
        format!("{sales} paused: {}{before}{}", names(&self.changed.vouchers), failures(&self.changed))
    }
}

fn nothing_to_pause(before: &[VoucherId]) -> String {
    let named = names(before);
    match before.len() as u64 {
        0 => "no voucher is on sale in Redis".to_owned(),
        1 => format!("nothing to pause: 1 sale is already paused ({named}); its reason stays"),
        count => format!("nothing to pause: {count} sales are already paused ({named}); their reasons stay"),
    }
}

fn paused_before(vouchers: &[VoucherId]) -> String {
    match vouchers.len() as u64 {
        0 => String::new(),
        count => format!("\n{} already paused: {}", counted(count, "sale"), names(vouchers)),
    }
}

/// Pauses the sales of all vouchers that have a stock in Redis.
pub async fn run(stores: &Stores, args: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let pause = SalesPause::new(redis);
    let plan = pause.plan(&ProgressBar::new()).await?;
    let report = SalesPauseReport::from(&plan);
    Change::new(stores, args)
        .run_in_steps(plan, report, async |plan, report, job| pause.run(&plan, report, job).await)
        .await
}
