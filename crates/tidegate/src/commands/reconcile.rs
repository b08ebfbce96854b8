//! The command `tidegate reconcile`: compares each order in Redis and MySQL during a sale.

mod text;

use std::cell::Cell;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate_compare::{
    CompareError, Comparison, ComparisonReport, ComparisonRequest, Job, Pace, VoucherComparison,
    reconciled::Reconciled,
};
use tidegate_operations::{End, InvalidInput, Next, Plan, Stores, vouchers};
use tidegate_orders::{RedisStore, VoucherId};
use tidegate_reconcile::{
    MOST_REPAIRED, Repair, RepairPlan, RepairReport,
    lease::{self, LEASE_WAS_LOST, TakenLease},
    plan_repair,
};
use tidegate_stream::{LeaseGuard, server_time_ms};

use crate::{
    exit::{Exit, WrongUsage},
    invocation::{self, Invocation},
    operator::{Change, ChangeArgs, ProgressBar},
    output::print_note,
    scope::PartitionCommand,
    times::{self, Point},
};

const EXAMPLES: &str = "\
Examples:
  tidegate reconcile
  tidegate reconcile --voucher 10
  tidegate reconcile --since -1h
  tidegate reconcile --repair --dry-run
  tidegate reconcile --repair
  tidegate reconcile --json | jq '.vouchers[] | {voucher, differences}'

Compares the journals (the Redis hashes of all admissions), the stream and the dead letters with the rows, refusals and
events in MySQL. Without --repair, it changes nothing. You may run it during a sale. It checks each suspected difference
again, until two checks agree, and leaves out orders that workers have not written yet (in flight). Exits with 1 if it
finds a difference that is a failure. For the kinds of differences and their repair, see docs/reconcile.md.

--repair compares, shows the plan, asks, and repairs each difference. A caller's answer (admitted or refused) stays
true. Orders that are in flight or have changed since the comparison are skipped: run the command again later.

Only one comparison runs at a time, and workers start a comparison every reconcile.every_s seconds. If another
comparison is running, this command prints who runs it, and exits with 1.

If a producer does not use lua/admit.lua, the journal of the voucher is incomplete, and the command compares only the
orders that the stream still holds.";

/// The arguments of `tidegate reconcile`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReconcileArgs {
    /// Compare only this voucher. You can give several vouchers
    #[arg(long = "voucher", value_name = "ID")]
    vouchers: Vec<VoucherId>,
    /// Compare only orders that were admitted since this time; -2h means two hours ago. Stocks are always compared
    #[arg(long, value_name = "TIME", value_parser = times::parse_point, allow_hyphen_values = true)]
    since: Option<Point>,
    /// Repair each difference: show the plan, ask, then repair
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// The result of a comparison, as the command prints it as JSON.
#[derive(Serialize)]
struct Look {
    clean: bool,
    #[serde(flatten)]
    report: ComparisonReport,
}

impl PartitionCommand for ReconcileArgs {
    /// Compares both stores, prints the differences, and returns whether they agree.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let who = format!("{}: tidegate reconcile", invocation::account());
        let lease = match lease::take_over(redis, &who).await.context("Failed to query Redis")? {
            TakenLease::Held(lease) => lease,
            TakenLease::Of(who) => {
                print_note(&format!(
                    "only one comparison, repair or rebuild runs at a time, and {who} is running; try again later"
                ));
                return Ok(Exit::No);
            }
        };
        let ended = run_alone(stores, self, &lease).await;
        let is_lost = lease.lost().is_cancelled();
        lease.end().await;
        match ended {
            Err(error) if is_lost && matches!(error.downcast_ref(), Some(CompareError::Stopped)) => {
                let invocation = Invocation::current();
                let line = invocation.line(&invocation.again());
                print_note(&format!(
                    "{LEASE_WAS_LOST}\nThere is no result, and nothing was changed. Go on with:\n  {line}"
                ));
                invocation.note().inspect(|note| print_note(note));
                Ok(Exit::Stopped)
            }
            ended => ended,
        }
    }
}

async fn run_alone(stores: &Stores, args: &ReconcileArgs, lease: &LeaseGuard) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let now_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
    let since_ms = args.since.as_ref().map(|since| since.first(now_ms).ms);
    if since_ms.is_some_and(|since_ms| since_ms > now_ms) {
        return Err(WrongUsage("--since lies in the future: give an earlier time".to_owned()).into());
    }
    let request = ComparisonRequest {
        vouchers: args.vouchers.clone(),
        since_ms: since_ms.and_then(|ms| i64::try_from(ms).ok()),
        pace: Pace::Full,
    };
    let is_whole = request.is_whole();
    let comparison = stores.comparison(request).await?;
    if args.repair {
        let repaired = Cell::new(false);
        let exit = repair(stores, args, (&comparison, &repaired), lease).await?;
        if repaired.get() {
            keep_repaired(redis, &comparison, lease).await;
        }
        return Ok(exit);
    }
    let looked = {
        let job = Job { stop: lease.lost().clone(), progress: Box::new(ProgressBar::new()) };
        comparison.run(&job, |_| {}).await
    };
    if let (Ok(report), true) = (&looked, is_whole) {
        keep(redis, report).await;
    }
    let look = looked.map(|report| Look { clean: report.is_clean(), report })?;
    is_known(args, &look.report)?;
    args.change.output().print(&look, |look| text::render(&look.report))?;
    Ok(if look.clean { Exit::Ok } else { Exit::No })
}

/// Checks that one of both stores knows each voucher that was named.
fn is_known(args: &ReconcileArgs, report: &ComparisonReport) -> Result<(), InvalidInput> {
    let is_nothing = |look: &&VoucherComparison| {
        let totals = &look.totals;
        args.vouchers.contains(&totals.voucher)
            && look.differences.is_empty()
            && totals.redis.unreadable.is_none()
            && (totals.redis.stock, totals.mysql.stock, totals.redis.loaded) == (None, None, None)
    };
    let unknown = report.vouchers.iter().find(is_nothing);
    unknown.map_or(Ok(()), |look| Err(vouchers::unknown(look.totals.voucher)))
}

/// Compares both stores, asks the operator, and repairs the differences.
async fn repair(
    stores: &Stores,
    args: &ReconcileArgs,
    (comparison, repaired): (&Comparison, &Cell<bool>),
    lease: &LeaseGuard,
) -> anyhow::Result<Exit> {
    let change = &args.change;
    let (look, plan) = {
        let job = Job { stop: lease.lost().clone(), progress: Box::new(ProgressBar::new()) };
        plan_repair(comparison, MOST_REPAIRED, &job).await?
    };
    is_known(args, &look)?;
    if plan.next() == Next::NothingToDo && !look.is_clean() {
        // An example is a key that cannot be read: nothing can be planned, but that does not mean that all is well.
        let look = Look { clean: false, report: look };
        change.output().print(&look, |look| text::render(&look.report))?;
        return Ok(Exit::No);
    }
    let report = RepairReport::new(&plan);
    let work = async |plan: RepairPlan, report: &mut RepairReport, job: &Job| {
        let repair = Repair::connect(stores, change.who()).await?;
        let _stopped = job.stop_when_lost(lease);
        repaired.set(true);
        let end = repair.run(&plan, report, job).await?;
        if end == End::Stopped && lease.lost().is_cancelled() {
            job.progress.say(LEASE_WAS_LOST);
        }
        Ok(end)
    };
    Change::new(stores, change).run_in_steps(plan, report, work).await
}

/// Removes the repaired differences from the results that `status`, `top` and `doctor` show.
async fn keep_repaired(redis: &RedisStore, comparison: &Comparison, lease: &LeaseGuard) {
    let kept = async {
        let before = Reconciled::read(redis).await?;
        let job = Job { stop: lease.lost().clone(), progress: Box::new(ProgressBar::new()) };
        anyhow::Ok(comparison.keep_repaired(before, &job).await?)
    };
    let until = "tidegate status may still show repaired differences. To update it, run tidegate reconcile";
    match kept.await {
        Ok(true) => {}
        Ok(false) => print_note(until),
        Err(error) => print_note(&format!("{until} ({error:#})")),
    }
}

/// Stores the result of a comparison in Redis, for metrics and `tidegate doctor`. If that fails, prints a note.
async fn keep(redis: &RedisStore, report: &ComparisonReport) {
    let kept = async {
        let before = Reconciled::read(redis).await?;
        report.outcome(before).write(redis).await
    };
    if let Err(error) = kept.await {
        print_note(&format!(
            "the result could not be stored in Redis for tidegate status and metrics: {error}"
        ));
    }
}
