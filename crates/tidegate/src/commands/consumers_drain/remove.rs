//! The option `tidegate consumers drain --remove`: removes dead consumers, after workers have taken their entries.

use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    Stores,
    consumers::remove::{
        ConsumerRemoval, ConsumerRemovalPlan, ConsumerRemovalReport, ConsumerRemovalRequest,
    },
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

impl PlanText for ConsumerRemovalPlan {
    fn text(&self) -> String {
        let Self { group, pending, .. } = self;
        if !self.unknown.is_empty() {
            return format!("Group {group} has no consumer {}.", printable(&self.unknown.join(", ")));
        }
        if !self.living.is_empty() {
            let living = printable(&self.living.join(", "));
            return format!(
                "{living} is alive, so no consumer was removed: stop its process (SIGTERM) first."
            );
        }
        if self.consumers.is_empty() {
            return format!("No consumer of group {group} is dead.");
        }
        let names: Vec<String> = self
            .consumers
            .iter()
            .map(|consumer| {
                format!("{}: {} pending", printable(&consumer.name), counted(consumer.pending, "entry"))
            })
            .collect();
        let names = names.join("\n");
        if self.has_no_taker() {
            let pending = counted(*pending, "entry");
            return format!(
                "{names}\nNo living worker reads the stream and can take {pending}: start a worker, then try again."
            );
        }
        names
    }
}

impl ReportText for ConsumerRemovalReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} removed.", counted(self.removed.len() as u64, "consumer"))];
        if self.handed_over > 0 {
            lines.push(format!("{} handed over to workers.", counted(self.handed_over, "entry")));
        }
        lines.extend(self.kept.iter().map(|kept| {
            let consumer = printable(&kept.consumer);
            if kept.alive {
                return format!("{consumer} is alive again, so it was not removed.");
            }
            let pending = counted(kept.pending, "entry");
            format!(
                "{consumer} still has {pending} pending, so it was not removed. See: tidegate pending list"
            )
        }));
        lines.join("\n")
    }
}

/// Removes dead consumers from the group, after workers have claimed their pending entries.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(
    stores: &Stores,
    request: ConsumerRemovalRequest,
    change: &ChangeArgs,
) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let removal = ConsumerRemoval::new(redis, stores.settings(), request);
    let plan = removal.plan().await?;
    let report = ConsumerRemovalReport::default();
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, job| removal.run(&plan, report, job).await)
        .await
}
