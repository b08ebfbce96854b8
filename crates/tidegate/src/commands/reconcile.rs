//! `tidegate reconcile`: compares each order on both sides while the sale goes on.

mod text;

use std::cell::Cell;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate_compare::{
    CompareError, Job, ComparisonReport, ComparisonRequest, Comparison, Pace, VoucherComparison, reconciled::Reconciled,
};
use tidegate_operations::{End, Next, Plan, Stores};
use tidegate_orders::{RedisStore, VoucherId};
use tidegate_reconcile::{
    MOST_REPAIRED, Repair, RepairPlan, RepairReport,
    lease::{self, LEASE_WAS_LOST, TakenLease},
    plan_repair,
};
use tidegate_stream::{HeldLease, server_time_ms};

use crate::{
    exit::{Exit, WrongUsage},
    invocation::{self, Invocation},
    times::{self, Point},
    operator::{Change, ChangeArgs, ProgressBar},
    output::print_note,
    scope::PartitionCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate reconcile
  tidegate reconcile --voucher 10
  tidegate reconcile --since -1h
  tidegate reconcile --repair --dry-run
  tidegate reconcile --repair
  tidegate reconcile --json | jq '.vouchers[] | {voucher, differences}'

Reads the journals, the stream, the dead letters and MySQL's rows, refusals and events, changes
nothing without --repair, and may run beside a sale. Whatever seems different is checked again by itself, until it
is the same twice; what is in flight is left out. It exits with 1 when something is different that
must not be. What each kind means and what repairs it: docs/reconcile.md.

--repair looks, says what it would do, asks, and does it. It repairs by difference, takes back nothing
that a caller was told, and leaves what is in flight or has moved since. Type it again for the rest.

One comparison at a time in a fleet: workers look by themselves every reconcile.every_s. While one does,
this says who, and exits with 1.

Of a voucher whose journal is not complete (its producer does not use lua/admit.lua, or it was
loaded before this version) only what the stream still holds is compared.";

/// What `tidegate reconcile` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ReconcileArgs {
    /// Look at this voucher only; may be given several times
    #[arg(long = "voucher", value_name = "ID")]
    vouchers: Vec<VoucherId>,
    /// Look only at orders that were admitted since: a time, or -2h for so long ago. Stocks are compared all the same
    #[arg(long, value_name = "TIME", value_parser = times::parse_point, allow_hyphen_values = true)]
    since: Option<Point>,
    /// Repair what is different, by difference: shows what would be done, asks, and does it
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Look {
    clean: bool,
    #[serde(flatten)]
    report: ComparisonReport,
}

impl PartitionCommand for ReconcileArgs {
    /// Looks, prints what was found, and answers whether all agrees.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let redis = stores.redis().await?;
        let who = format!("{}: tidegate reconcile", invocation::account());
        let lease = match lease::take_over(redis, &who).await.context("Failed to ask Redis")? {
            TakenLease::Held(lease) => lease,
            TakenLease::Of(who) => {
                print_note(&format!(
                    "one comparison, repair or rebuild at a time: {who} is at it; try again later"
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
                    "{LEASE_WAS_LOST}\nNothing is known, and nothing was changed. Go on with:\n  {line}"
                ));
                invocation.note().inspect(|note| print_note(note));
                Ok(Exit::Stopped)
            }
            ended => ended,
        }
    }
}

async fn run_alone(stores: &Stores, args: &ReconcileArgs, lease: &HeldLease) -> anyhow::Result<Exit> {
    let redis = stores.redis().await?;
    let now_ms = server_time_ms(redis.pool()).await.context("Failed to read the clock of Redis")?;
    let since_ms = args.since.as_ref().map(|since| since.first(now_ms).ms);
    if since_ms.is_some_and(|since_ms| since_ms > now_ms) {
        return Err(WrongUsage("--since lies in the future: nothing was admitted since".to_owned()).into());
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

/// That one of both stores knows each voucher that was named.
fn is_known(args: &ReconcileArgs, report: &ComparisonReport) -> Result<(), WrongUsage> {
    let is_nothing = |look: &&VoucherComparison| {
        let totals = &look.totals;
        args.vouchers.contains(&totals.voucher)
            && look.differences.is_empty()
            && totals.redis.unreadable.is_none()
            && (totals.redis.stock, totals.mysql.stock, totals.redis.loaded) == (None, None, None)
    };
    let wrong = |look: &VoucherComparison| {
        WrongUsage(format!("neither Redis nor MySQL knows voucher {}: is its id right?", look.totals.voucher))
    };
    report.vouchers.iter().find(is_nothing).map_or(Ok(()), |look| Err(wrong(look)))
}

/// Looks, asks, and repairs.
async fn repair(
    stores: &Stores,
    args: &ReconcileArgs,
    (comparison, repaired): (&Comparison, &Cell<bool>),
    lease: &HeldLease,
) -> anyhow::Result<Exit> {
    let change = &args.change;
    let (look, plan) = {
        let job = Job { stop: lease.lost().clone(), progress: Box::new(ProgressBar::new()) };
        plan_repair(comparison, MOST_REPAIRED, &job).await?
    };
    is_known(args, &look)?;
    if plan.next() == Next::NothingToDo && !look.is_clean() {
        // Such as a key that cannot be read: nothing can be planned, and that is not to say that all is well.
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

/// What was repaired is told no more by `status`, `top` and `doctor`.
async fn keep_repaired(redis: &RedisStore, comparison: &Comparison, lease: &HeldLease) {
    let kept = async {
        let before = Reconciled::read(redis).await?;
        let job = Job { stop: lease.lost().clone(), progress: Box::new(ProgressBar::new()) };
        anyhow::Ok(comparison.keep_repaired(before, &job).await?)
    };
    let until = "tidegate status may tell of what was repaired until all is compared: tidegate reconcile";
    match kept.await {
        Ok(true) => {}
        Ok(false) => print_note(until),
        Err(error) => print_note(&format!("{until} ({error:#})")),
    }
}

/// For metrics and doctor. What was found is said all the same where Redis does not keep it.
async fn keep(redis: &RedisStore, report: &ComparisonReport) {
    let kept = async {
        let before = Reconciled::read(redis).await?;
        report.outcome(before).write(redis).await
    };
    if let Err(error) = kept.await {
        print_note(&format!("what was found could not be kept for others: {error}"));
    }
}
