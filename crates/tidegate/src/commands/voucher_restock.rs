//! `tidegate voucher add` and `tidegate voucher take`: more units for a sale that is on, or fewer, on both sides.
//!
//! Three steps: Redis notes the change as open (and gives up the units that are taken), MySQL has it, Redis notes
//! that it is done (and gets the units that are added). So Redis never offers what MySQL does not have, and each step
//! is made once.

mod wanted;
mod words;

use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};
use sqlx::MySqlPool;
use tidegate_orders::{
    Gate, Keys, VoucherId,
    gate::{ChangeState, RestockReply, StockChange},
    vouchers::{self, Restocked},
};

use self::{
    wanted::Wanted,
    words::{apart, imperative, participle, redis_side, refusal, refused_by_mysql, told, typed},
};
use super::voucher_load::MAX_STOCK;
use crate::{
    command_line::CommandLine,
    config::Settings,
    connect,
    exit::Exit,
    operator::{Change, ChangeArgs, End, Ending, Job, Next, Plan, Report},
    output::counted,
};

macro_rules! help {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n\nChanges stock and initial stock in MySQL and the stock in Redis by the same difference, while the sale \
             goes on. If it fails or is killed half-way, the same command again completes it. When both sides have it, \
             the same command again is refused, unless --initial-stock says that it is meant. Exits with 1, changing \
             nothing, where the voucher is not on sale on both sides, or fewer units are left."
        )
    };
}

/// Help of `tidegate voucher add`.
pub const ADD_HELP: &str = help!(
    "\
Examples:
  tidegate voucher add --voucher 7 --units 500 --dry-run
  tidegate voucher add --voucher 7 --units 500
  tidegate voucher add --voucher 7 --units 500 --initial-stock 1000 --yes"
);

/// Help of `tidegate voucher take`.
pub const TAKE_HELP: &str = help!(
    "\
Examples:
  tidegate voucher take --voucher 7 --units 500 --dry-run
  tidegate voucher take --voucher 7 --units 500
  tidegate voucher take --voucher 7 --units 500 --initial-stock 1500 --yes"
);

/// What `tidegate voucher add` and `tidegate voucher take` take.
#[derive(Args, Debug)]
pub struct VoucherRestockArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    /// How many units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK))]
    units: i64,
    /// Only if the initial stock in MySQL is this: so the same command changes it once, however often it is typed
    #[arg(long, value_name = "UNITS")]
    initial_stock: Option<i64>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What was found and, then, what was done.
#[derive(Clone, Debug, Serialize)]
struct Answer {
    voucher: VoucherId,
    /// Added; below 0: taken.
    units: i64,
    outcome: Outcome,
    /// Why it was refused.
    reason: Option<String>,
    /// Units left, when it was looked.
    redis_stock: Option<i64>,
    mysql_stock: Option<i64>,
    /// The change itself; None where it was refused.
    change: Option<StockChange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    WouldChange,
    /// It was begun before, and would be completed.
    WouldComplete,
    Changed,
    Completed,
    /// Both sides have it already.
    DoneBefore,
    Refused,
    /// One side may have it and the other not: the same command again completes it.
    Unfinished,
}

impl Plan for Answer {
    fn text(&self) -> String {
        render(self)
    }

    fn next(&self) -> Next {
        match self.outcome {
            Outcome::Refused => Next::Nothing(Exit::No),
            Outcome::DoneBefore => Next::Nothing(Exit::Ok),
            Outcome::WouldComplete => Next::Ask(format!("Complete this change of voucher {}?", self.voucher)),
            _ => Next::Ask(format!("{} voucher {}?", imperative(self.units), self.voucher)),
        }
    }
}

impl Report for Answer {
    fn text(&self) -> String {
        render(self)
    }

    fn counts(&self) -> Json {
        let is_done = matches!(self.outcome, Outcome::Changed | Outcome::Completed);
        json!({ "units": if is_done { self.units } else { 0 } })
    }

    fn ending(&self) -> Ending {
        if self.outcome == Outcome::Refused { Ending::Refused } else { Ending::Done }
    }

    fn go_on(&self) -> Option<CommandLine> {
        self.change.as_ref().map(|change| typed(self.voucher, change.units, change.before))
    }
}

/// Adds units, goes on with adding them where that died half-way, or says why not.
///
/// # Errors
/// When a store cannot be reached, or refuses before anything was done.
pub async fn add(settings: &Settings, args: &VoucherRestockArgs) -> anyhow::Result<Exit> {
    run(settings, args, args.units).await
}

/// As [`add`], the other way round.
///
/// # Errors
/// As [`add`].
pub async fn take(settings: &Settings, args: &VoucherRestockArgs) -> anyhow::Result<Exit> {
    run(settings, args, -args.units).await
}

async fn run(settings: &Settings, args: &VoucherRestockArgs, units: i64) -> anyhow::Result<Exit> {
    let (redis, mysql) = tokio::try_join!(connect::redis(settings), connect::mysql(settings))?;
    let gate = Gate::new(redis, Keys::new(settings.keys.clone()), settings.stream.name.as_str());
    // Before all else: what is read after it is at least as new, and a change since then is refused by the note.
    let last = gate.read_change(args.voucher).await.context("Failed to read the voucher in Redis")?;
    let plan = look(&gate, &mysql, args, units, last.as_ref()).await?;
    // So it is told until all is done.
    let report = Answer { outcome: Outcome::Unfinished, ..plan.clone() };
    let work = async |plan: Answer, report: &mut Answer, _job: &Job| {
        *report = change(&gate, &mysql, last.as_ref(), plan).await;
        match report.reason.take_if(|_| report.outcome == Outcome::Unfinished) {
            Some(error) => Err(anyhow!(error)),
            None => Ok(End::Whole),
        }
    };
    Change::new(settings, &args.change).run_in_steps(plan, report, work).await
}

async fn look(
    gate: &Gate,
    mysql: &MySqlPool,
    args: &VoucherRestockArgs,
    units: i64,
    last: Option<&StockChange>,
) -> anyhow::Result<Answer> {
    let voucher = args.voucher;
    let sale = gate.read_voucher(voucher).await.context("Failed to read the voucher in Redis")?;
    let row = vouchers::find(mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
    let answer = |outcome, reason, change| Answer {
        voucher,
        units,
        outcome,
        reason,
        redis_stock: sale.stock,
        mysql_stock: row.as_ref().map(|row| row.stock),
        change,
    };
    let wanted = Wanted { voucher, units, initial: args.initial_stock };
    if let Some(open) = last.filter(|last| wanted.is_begun_by(last)) {
        return Ok(answer(Outcome::WouldComplete, None, Some(open.clone())));
    }
    let initial = row.as_ref().and_then(|row| row.initial_stock);
    let done = last.filter(|last| initial.is_some_and(|initial| wanted.is_done_by(last, initial)));
    if let Some(done) = done.filter(|done| args.initial_stock == Some(done.before)) {
        return Ok(answer(Outcome::DoneBefore, None, Some(done.clone())));
    }
    Ok(match wanted.check(sale.stock, row.as_ref(), last) {
        Ok(before) => {
            answer(Outcome::WouldChange, None, Some(StockChange::new(units, before, args.change.who())))
        }
        Err(reason) => answer(Outcome::Refused, Some(reason), None),
    })
}

/// The three steps. Each may have been done before: the note and the initial stock tell.
async fn change(gate: &Gate, mysql: &MySqlPool, last: Option<&StockChange>, plan: Answer) -> Answer {
    let Some(change) = plan.change.clone() else { return plan };
    let (voucher, units) = (plan.voucher, plan.units);
    let is_new = plan.outcome == Outcome::WouldChange;
    let unfinished = |reason: String| (Outcome::Unfinished, Some(reason));
    let steps = async {
        if is_new {
            match gate.restock(voucher, last, &change, units.min(0)).await {
                Ok(RestockReply::Done) => {}
                Ok(reply) => return (Outcome::Refused, Some(refusal(reply))),
                Err(error) => {
                    return unfinished(format!("Redis may have noted it, and MySQL has not got it: {error}"));
                }
            }
        }
        match vouchers::restock(mysql, voucher, change.before, units).await {
            Ok(Restocked::Done) => {}
            Ok(refused @ (Restocked::TooFew | Restocked::TooMany)) => {
                let withdrawn = change.as_now(ChangeState::Withdrawn);
                let given_back = gate.restock(voucher, Some(&change), &withdrawn, -units.min(0)).await;
                return match given_back {
                    Ok(RestockReply::Done) => (Outcome::Refused, Some(refused_by_mysql(refused))),
                    Ok(reply) => unfinished(refusal(reply)),
                    Err(error) => unfinished(format!("{}, and {error}", refused_by_mysql(refused))),
                };
            }
            Ok(Restocked::Apart(initial)) => return unfinished(apart(&change, initial)),
            Err(error) => {
                return unfinished(format!("{} and MySQL may have it or not: {error}", redis_side(units)));
            }
        }
        let done = change.as_now(ChangeState::Done);
        match gate.restock(voucher, Some(&change), &done, units.max(0)).await {
            Ok(RestockReply::Done) if is_new => (Outcome::Changed, None),
            Ok(RestockReply::Done) => (Outcome::Completed, None),
            Ok(reply) => unfinished(format!("MySQL has it, and {}", refusal(reply))),
            Err(error) => unfinished(format!("MySQL has it, and Redis may have it or not: {error}")),
        }
    };
    let (outcome, reason) = steps.await;
    let change = match outcome {
        Outcome::Changed | Outcome::Completed => Some(change.as_now(ChangeState::Done)),
        Outcome::Refused => None,
        _ => Some(change),
    };
    Answer { outcome, reason, change, ..plan }
}

fn render(answer: &Answer) -> String {
    let Answer { voucher, units, change, .. } = answer;
    let initial = change.as_ref().map_or_else(String::new, |change| {
        format!("the initial stock from {} to {}", change.before, change.after())
    });
    let begun = change.as_ref().map(told).unwrap_or_default();
    let reason = answer.reason.as_deref().unwrap_or_default();
    match answer.outcome {
        Outcome::WouldChange => format!(
            "voucher {voucher}: {} would be {}, {initial}; Redis has {} now, MySQL {}",
            counted(units.abs(), "unit"),
            participle(*units),
            answer.redis_stock.unwrap_or_default(),
            answer.mysql_stock.unwrap_or_default()
        ),
        Outcome::WouldComplete => format!(
            "voucher {voucher}: an unfinished change would be completed ({begun}), {initial}; nothing more would \
             be done"
        ),
        Outcome::Changed => format!(
            "voucher {voucher}: {} {} on both sides, {initial}",
            counted(units.abs(), "unit"),
            participle(*units)
        ),
        Outcome::Completed => format!(
            "voucher {voucher}: the unfinished change is complete ({begun}), {initial}; nothing more was done"
        ),
        Outcome::DoneBefore => {
            format!("voucher {voucher}: both sides have it already ({begun}), {initial}; nothing was done")
        }
        Outcome::Refused => {
            format!("voucher {voucher}: refused, {reason}\nSee: tidegate voucher show --voucher {voucher}")
        }
        Outcome::Unfinished => format!("voucher {voucher}: unfinished"),
    }
}
