//! `tidegate expirations resume`: lets unpaid orders expire again after a store went back in time.

use clap::Args;
use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    SystemSettings, connect,
    expirations::{self, ExpirationsPlan, ExpirationsReport, WENT_BACK},
};
use tidegate_orders::MarkState;

use super::expirations_show::stores;
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate expirations resume --dry-run
  tidegate expirations resume

Workers raise a number in MySQL and in Redis while orders wait to be paid. Where one of the two has a lower one than it had,
that store lost something, perhaps payments, and no order expires. This takes both stores as they are: first find out what is
lost, and tell Tidegate of payments that it does not know (tidegate order event paid). Orders of which the time is over are
cancelled at once then.";

/// What `tidegate expirations resume` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExpirationsResumeArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

/// Marks both stores anew.
///
/// # Errors
/// When a store cannot be reached.
pub async fn run(settings: &SystemSettings, args: &ExpirationsResumeArgs) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let plan = expirations::plan(settings, &redis, &mysql).await?;
    let work = async |_: ExpirationsPlan, _job: &Job| expirations::run(settings, &redis, &mysql).await;
    Change::new(settings, &args.change).run(plan, work).await
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
