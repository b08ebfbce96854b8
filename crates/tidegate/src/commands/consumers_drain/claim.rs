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
                "{} is alive and works on its entries, so nothing is done. If one of its lanes hangs or does not exist any \
                 more, add --force. To take over from a living process, stop it (SIGTERM): it finishes its entries in \
                 progress.",
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
            format!("\n{living} is alive: its entries in progress will be handled twice.")
        };
        format!("{}{forced}\n{}", each.join("\n"), who_takes_them(self.workers_live, self.taken_within_s))
    }
}

fn who_takes_them(workers_live: bool, within_s: f64) -> String {
    if workers_live {
        format!(
            "Living workers take the claimable entries within about {within_s:.0} s, as fast as they write."
        )
    } else {
        "No living worker reads the stream: the claimable entries wait until one starts.".to_owned()
    }
}

impl ReportText for ClaimReport {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} made claimable for all workers.", counted(self.offered, "entry"))];
        let lives = self.consumers.iter().filter(|consumer| consumer.lives);
        lines.extend(lives.map(|consumer| {
            format!(
                "{} is alive by now: the rest of its entries was left to it.",
                printable(&consumer.consumer)
            )
        }));
        if self.young > 0 {
            lines.push(format!(
                "{} left: delivered less than {:.0} s ago, the locks of their worker may still be held. Run it again \
                 later.",
                counted(self.young, "entry"),
                self.young_for_s
            ));
        }
        if self.gone > 0 {
            lines.push(format!(
                "{} without payload left: workers acknowledge them, and log that.",
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

/// Makes the entries claimable.
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
