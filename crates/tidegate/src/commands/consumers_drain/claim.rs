//! Draining consumers: makes their entries claimable for the living workers at once.

use tidegate_compare::text::{counted, printable};
use tidegate_operations::{
    Stores,
    pending::claim::{ClaimPlan, ClaimReport, ClaimRequest, PendingClaim},
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

impl PlanText for ClaimPlan {
    fn text(&self) -> String {
        if !self.unknown.is_empty() {
            return format!("The group has no consumer {}.", printable(&self.unknown.join(", ")));
        }
        if self.is_refused() {
            return format!(
                "{} is alive and works on its entries, so nothing was changed. If this lane hangs, or if its process \
                 does not run it any more, add --force. Otherwise stop the process (SIGTERM): it finishes the entries \
                 in progress.",
                printable(&self.living.join(", "))
            );
        }
        if self.pending == 0 {
            let dead = if self.consumers.is_empty() {
                "No consumer is dead: nothing"
            } else {
                "The consumers hold nothing"
            };
            return format!("{dead} to claim.");
        }
        let each = self.consumers.iter().filter(|consumer| consumer.pending > 0);
        let each: Vec<String> = each
            .map(|consumer| format!("{}: {}", printable(&consumer.name), counted(consumer.pending, "entry")))
            .collect();
        let forced = if self.living.is_empty() {
            String::new()
        } else {
            let living = printable(&self.living.join(", "));
            format!("\n{living} is alive: the entries that it has in progress are handled twice.")
        };
        format!("{}{forced}\n{}", each.join("\n"), who_takes_them(self.workers_live, self.taken_within_s))
    }
}

fn who_takes_them(workers_live: bool, within_s: f64) -> String {
    if workers_live {
        format!("Living workers begin to take the claimable entries within about {within_s:.0} s.")
    } else {
        "No living worker reads the stream. The claimable entries wait until you start a worker.".to_owned()
    }
}

impl ReportText for ClaimReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} made claimable for all workers.", counted(self.offered, "entry"))];
        let lives = self.consumers.iter().filter(|consumer| consumer.lives);
        lines.extend(lives.map(|consumer| {
            format!("{} is alive again, so it keeps the rest of its entries.", printable(&consumer.consumer))
        }));
        if self.young > 0 {
            lines.push(format!(
                "{} skipped: delivered less than {:.0} s ago, so a worker may still hold the locks. Run the command \
                 again later.",
                counted(self.young, "entry"),
                self.young_for_s
            ));
        }
        if self.gone > 0 {
            lines.push(format!(
                "{} without payload skipped: workers acknowledge and log such entries.",
                counted(self.gone, "entry")
            ));
        }
        let claimable: u64 = self.consumers.iter().map(|consumer| consumer.offered + consumer.before).sum();
        lines.extend(match self.left {
            _ if claimable == 0 => None,
            Some(0) => Some("Workers have taken all claimable entries.".to_owned()),
            Some(left) => Some(format!("{} not taken yet.", counted(left, "entry"))),
            None => Some(who_takes_them(self.workers_live, self.taken_within_s)),
        });
        lines.join("\n")
    }
}

/// Makes the pending entries of the consumers claimable (free for any worker), and waits until workers have claimed the
/// entries.
///
/// # Errors
/// When Redis cannot be reached, or the key holds no stream.
pub async fn run(stores: &Stores, request: ClaimRequest, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let claim = PendingClaim::new(redis, stores.settings(), request);
    let plan = claim.plan().await?;
    let report = claim.report(&plan);
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, job| claim.run(&plan, report, job).await)
        .await
}
