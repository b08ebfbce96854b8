//! The option `tidegate resume --expirations`: lets unpaid orders expire again after a store lost data.

use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    expirations::{self, ExpirationsReport, ExpirationsView, WENT_BACK},
};
use tidegate_orders::RestoreState;

use crate::{
    commands::status::expirations::stores,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

/// Lets unpaid orders expire again: writes a new restore counter, by which the stores detect lost data, to both stores.
///
/// # Errors
/// When a store cannot be reached.
pub async fn run(stores: &Stores, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let plan = expirations::plan(stores).await?;
    Change::new(stores, change).run(plan, async |_, _job| expirations::run(stores).await).await
}

impl PlanText for ExpirationsView {
    fn text(&self) -> String {
        match self.state {
            RestoreState::Whole => {
                "Redis and MySQL have the same restore counter, so unpaid orders expire. Nothing was changed."
                    .to_owned()
            }
            _ => format!(
                "{}.\n{} would expire",
                stores(self),
                counted(self.unpaid.overdue, "overdue unpaid order")
            ),
        }
    }
}

impl ReportText for ExpirationsReport {
    fn text(&self) -> String {
        match self.state {
            RestoreState::Whole => {
                format!("unpaid orders expire again (restore counter {})", self.counters.mark)
            }
            _ => format!("a store went back in time again at this moment; see {WENT_BACK}"),
        }
    }
}
