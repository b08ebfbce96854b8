//! The command `tidegate rebuild`: restores Redis from MySQL, the stream and the dead letters.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::Stores;
use tidegate_orders::{VoucherId, order_id::counter::RaisedCounter};
use tidegate_reconcile::rebuild::{
    Rebuild, RebuildPlan, RebuildRefusal, RebuildReport, RebuildRequest, VoucherPlan, VoucherReport,
};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate rebuild --all --dry-run
  tidegate rebuild --all
  tidegate rebuild --voucher 7 --yes

Use it if Redis is empty or older than MySQL. For each voucher, it restores buyers, stock, sale window and journal (the
Redis hash of all admissions) from MySQL, the stream, the dead letters and the rest of the journal. Gates and workers
keep running: while a voucher is rebuilt, for some seconds, workers do not write its orders. The new stock is the stock
in MySQL, minus the units of orders that MySQL does not know yet.

First it raises the counter of order ids, and waits until every worker has finished its batch in progress. If the
command is killed, run it again. If it cannot rebuild a voucher, it says why and exits with 1. Then run tidegate audit";

/// The arguments of `tidegate rebuild`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RebuildArgs {
    /// Rebuild only this voucher
    #[arg(long, value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub voucher: Option<VoucherId>,
    /// Rebuild all vouchers whose sale has not ended, except vouchers that were neither loaded nor ordered
    #[arg(long)]
    all: bool,
    /// Do not wait for these workers. Units of their orders in progress may be sold twice; MySQL then refuses orders
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    despite_workers: Vec<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for RebuildArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::EveryPartition(self.voucher)
    }

    /// Rebuilds the selected vouchers.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let RebuildArgs { voucher, ref despite_workers, ref change, .. } = *self;
        let rebuild = Rebuild::connect(stores, format!("{}: tidegate rebuild", change.who())).await?;
        let plan = rebuild.plan(RebuildRequest { voucher, despite_workers: despite_workers.clone() }).await?;
        let report = RebuildReport::new(&plan);
        Change::new(stores, change)
            .run_in_steps(plan, report, async |plan, report, job| rebuild.run(&plan, report, job).await)
            .await
    }
}

impl PlanText for RebuildPlan {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.vouchers.iter().map(planned).collect();
        if self.vouchers.is_empty() {
            lines.push(
                "There is nothing to rebuild: the sales of all loaded or ordered vouchers have ended."
                    .to_owned(),
            );
        }
        if self.ended > 0 {
            let sales = counted(self.ended, "sale");
            lines.push(format!(
                "{sales} ended, according to MySQL: to rebuild such a voucher, add --voucher ID"
            ));
        }
        if self.delisted > 0 {
            let vouchers = counted(self.delisted, "voucher");
            lines.push(format!(
                "{vouchers} delisted: a delisted voucher cannot be rebuilt, see docs/delist.md"
            ));
        }
        if !self.never_sold.is_empty() {
            let ids: Vec<String> = self.never_sold.iter().take(20).map(VoucherId::to_string).collect();
            let vouchers = counted(self.never_sold.len() as u64, "voucher");
            lines.push(format!(
                "{vouchers} never loaded or ordered: to rebuild such a voucher, add --voucher ID: {}",
                ids.join(", ")
            ));
        }
        lines.join("\n")
    }
}

fn planned(plan: &VoucherPlan) -> String {
    let VoucherPlan { voucher, mysql_stock, live_orders, redis_stock, journaled, is_delisted } = plan;
    if *is_delisted {
        return format!("voucher {voucher}: is not rebuilt, because it is delisted, see docs/delist.md");
    }
    let Some(stock) = mysql_stock else {
        return format!("voucher {voucher}: cannot be rebuilt, because MySQL has no row of it");
    };
    let (units, orders) = (counted(*stock, "unit"), counted(*live_orders, "live order"));
    let redis = redis_stock.map_or_else(|| "no stock".to_owned(), |stock| counted(stock, "unit"));
    let notes = counted(*journaled, "note");
    format!(
        "voucher {voucher}: MySQL has {units} left and {orders}; Redis has {redis} and {notes} in its journal"
    )
}

impl ReportText for RebuildReport {
    fn text(&self) -> String {
        if let Some(refusal) = &self.refusal {
            let RebuildRefusal::SilentWorkers { workers } = refusal;
            return format!(
                "Nothing was rebuilt: {refusal}. Restart these workers with this version, or stop them and wait \
                 until they are gone. If they have had no entry in progress since before Redis lost its data, add: --despite-workers {}",
                workers.join(",")
            );
        }
        let mut lines: Vec<String> = self.vouchers.iter().flat_map(rebuilt).collect();
        lines.extend(raised(&self.counters));
        if !self.vouchers.is_empty() {
            lines.push(match self.unknown_ids() {
                Some(0) => "Redis or MySQL knows each order id that the counter in Redis gave out today. If the counter is old, later ids are not counted.".to_owned(),
                Some(ids) => format!(
                    "{} of today that no store knows: from refused requests, or from lost orders. If the counter of \
                     order ids is old, later ids are not counted",
                    counted(ids, "order id")
                ),
                None => "It is unknown how many order ids no store knows, because the counter of order ids was lost."
                    .to_owned(),
            });
        }
        if self.vouchers.iter().any(|voucher| voucher.by_source.lost.orders > 0) {
            lines.push("Acknowledged orders that are not written keep their units. To write these orders: tidegate reconcile --repair".to_owned());
        }
        lines.join("\n")
    }
}

/// The lines about counters of order ids that were raised.
pub(super) fn raised(counters: &[RaisedCounter]) -> impl Iterator<Item = String> {
    counters.iter().filter(|counter| counter.raised).map(|counter| {
        let before = counter.before.map_or_else(|| "none".to_owned(), |before| before.to_string());
        format!("order ids of {}: the counter was raised from {before} to {}", counter.day, counter.now)
    })
}

fn rebuilt(report: &VoucherReport) -> Vec<String> {
    let mut lines = vec![report.line()];
    if !report.first_unknown.is_empty() {
        let ids: Vec<String> = report.first_unknown.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "  the first orders that MySQL lacks and no worker will write: {}",
            ids.join(", ")
        ));
    }
    if report.unreadable_notes > 0 {
        lines.push(format!(
            "  {} of the old journal could not be read, and cannot be restored",
            counted(report.unreadable_notes, "note")
        ));
    }
    if let Some(mismatch) = report.mysql_mismatch.filter(|mismatch| *mismatch != 0) {
        let (units, word) = (counted(mismatch.abs(), "unit"), if mismatch > 0 { "above" } else { "below" });
        lines.push(format!(
            "  MySQL's stock is {units} {word} the loaded stock minus the live orders: see \
             docs/runbook/stock-is-wrong.md#the-stock-in-mysql-is-wrong"
        ));
    }
    lines
}
