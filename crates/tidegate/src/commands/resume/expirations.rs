//! `tidegate resume --expirations`: lets unpaid orders expire again after a store went back in time.

use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    SystemSettings, connect,
    expirations::{self, ExpirationsPlan, ExpirationsReport, WENT_BACK},
};
use tidegate_orders::MarkState;

use crate::{
    commands::status::expirations::stores,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

/// Marks both stores anew.
///
/// # Errors
/// When a store cannot be reached.
pub async fn run(settings: &SystemSettings, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let plan = expirations::plan(settings, &redis, &mysql).await?;
    let work = async |_: ExpirationsPlan, _job: &Job| expirations::run(settings, &redis, &mysql).await;
    Change::new(settings, change).run(plan, work).await
}

impl PlanText for ExpirationsPlan {
    fn text(&self) -> String {
        let view = &self.expirations;
        match view.state {
            MarkState::Whole => {
                "The stores fit each other, so nothing stands still. Nothing was changed.".to_owned()
            }
            _ => format!(
                "{}.\n{} of which the time is over would expire",
                stores(view),
                counted(view.unpaid.overdue, "unpaid order")
            ),
        }
    }
}

impl ReportText for ExpirationsReport {
    fn text(&self) -> String {
        match self.state {
            MarkState::Whole => format!("unpaid orders expire again (mark {})", self.marks.mark),
            _ => format!("a store went back in time at this very moment; see {WENT_BACK}"),
        }
    }
}
