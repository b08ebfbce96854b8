//! The command `tidegate order release-unpaid`: cancels the overdue unpaid orders of a voucher.

use std::time::Duration;

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    order_event::SentEvent,
    release_unpaid::{ReleaseCounts, ReleasePlan, ReleaseReport, ReleaseRequest, ReleaseUnpaid},
};
use tidegate_orders::{VoucherId, event::EventText};

use super::order_event::{WAIT_TEXT, older_workers, told};
use crate::{
    command_line::CommandLine,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope},
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate order release-unpaid --voucher 7 --older-than 30m --dry-run
  tidegate order release-unpaid --voucher 7 --older-than 2h --reason not_paid_in_time --yes

It selects every unpaid order of the voucher that holds units and was written longer ago than --older-than, by MySQL's
clock. Each of these orders gets the event `expired`: its units are on sale again, and its user may order again. If the
payment of an order is already in the stream, that order stays unchanged.

You may run it again at any time. Exits with 1 if events were not recorded in time: the events stay in the stream, and
workers record them later. Ctrl-C ends the command with 6 after the events in progress.";

/// The arguments of `tidegate order release-unpaid`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderReleaseUnpaidArgs {
    /// The voucher whose overdue orders expire
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// Select orders that were written longer ago than this, such as 30m
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    older_than: Duration,
    /// The reason, in one word
    #[arg(long, value_name = "WORD")]
    reason: Option<EventText>,
    /// Stop if workers have recorded no event for this time, such as 1m
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_span, default_value = WAIT_TEXT)]
    wait: Duration,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for OrderReleaseUnpaidArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Appends the event `expired` to the overdue orders.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let OrderReleaseUnpaidArgs { voucher, older_than, ref reason, wait, ref change } = *self;
        let request = ReleaseRequest { voucher, older_than, reason: reason.clone(), wait };
        let release = ReleaseUnpaid::connect(stores, request).await?;
        let plan = release.plan().await?;
        let report = ReleaseReport::new(&plan);
        Change::new(stores, change)
            .run_in_steps(plan, report, async |plan, report, job| release.run(&plan, report, job).await)
            .await
    }
}

impl PlanText for ReleasePlan {
    fn text(&self) -> String {
        let Self { voucher, until, orders, units, oldest, ref older_workers, .. } = *self;
        let until = times::utc_whole(until.as_millisecond());
        if orders == 0 {
            return format!("voucher {voucher}: no unpaid order was written before {until}");
        }
        if !older_workers.is_empty() {
            return self::older_workers(older_workers);
        }
        let oldest = oldest.map(|at| format!(", the oldest at {}", times::utc_whole(at.as_millisecond())));
        format!(
            "voucher {voucher}: {} with {}, written before {until}{}, would be cancelled",
            counted(orders, "unpaid order"),
            counted(units, "unit"),
            oldest.unwrap_or_default()
        )
    }
}

impl ReportText for ReleaseReport {
    fn text(&self) -> String {
        let counts = self.counts();
        let mut lines = vec![format!(
            "voucher {}: {} cancelled, {} released{}",
            self.voucher,
            counted(counts.applied, "order"),
            counted(counts.units, "unit"),
            others(&counts)
        )];
        lines.extend(self.first().map(|sent: &SentEvent| told("expired", sent)));
        if self.is_cut_short() {
            lines.push("The rest of the unpaid orders got no event.".to_owned());
        }
        if let Some(false) = self.workers_live {
            lines.push("No living worker reads the stream: start a worker (tidegate worker).".to_owned());
        }
        lines.join("\n")
    }

    fn look_with(&self) -> Option<CommandLine> {
        let counts = self.counts();
        let is_waited_for = counts.not_recorded > 0 && counts.unknown + counts.not_appended == 0;
        (is_waited_for && !self.is_cut_short()).then(|| CommandLine::new("status"))
    }
}

/// The text about the orders that did not expire: a count and a reason for each outcome.
fn others(counts: &ReleaseCounts) -> String {
    let rejected = counts.rejected.iter().map(|(why, orders)| (*orders, why.replace('_', " ")));
    let open = [
        (counts.unchanged, "cancelled before"),
        (counts.not_recorded, "not recorded yet"),
        (counts.unknown, "unknown"),
        (counts.not_appended, "not appended"),
    ];
    let open = open.into_iter().map(|(orders, words)| (orders, words.to_owned()));
    let all = rejected.map(|(orders, why)| (orders, format!("stay ({why})"))).chain(open);
    all.filter(|(orders, _)| *orders > 0).map(|(orders, words)| format!(", {orders} {words}")).collect()
}
