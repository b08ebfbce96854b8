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
    restock::{self, Restocked},
    vouchers,
};

use self::{
    wanted::Wanted,
    words::{apart, imperative, participle, redis_side, refusal, told, typed},
};
use super::voucher_load::{COLUMN_TOO_SMALL, MAX_STOCK};
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
    /// Why it was refused, or what came after it.
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

/// What has become of a change, and why, or what came after it.
type Became = (Outcome, Option<String>);

/// The three steps. Each may have been done before, by this command or another: the note and the initial stock tell.
async fn change(gate: &Gate, mysql: &MySqlPool, last: Option<&StockChange>, plan: Answer) -> Answer {
    let Some(change) = plan.change.clone() else { return plan };
    let whole = if plan.outcome == Outcome::WouldChange { Outcome::Changed } else { Outcome::Completed };
    let refused = match whole {
        Outcome::Changed => begin(gate, plan.voucher, last, &change).await,
        _ => None,
    };
    let (outcome, reason) = match refused {
        Some(refused) => refused,
        None => complete(gate, mysql, plan.voucher, &change, whole).await,
    };
    let change = match outcome {
        Outcome::Changed | Outcome::Completed => Some(change.as_now(ChangeState::Done)),
        Outcome::Refused => None,
        _ => Some(change),
    };
    Answer { outcome, reason, change, ..plan }
}

/// Redis notes it. Some: it does not go on from here.
async fn begin(
    gate: &Gate,
    voucher: VoucherId,
    last: Option<&StockChange>,
    change: &StockChange,
) -> Option<Became> {
    match gate.restock(voucher, last, change, change.units.min(0)).await {
        Ok(RestockReply::Done) => None,
        Ok(reply) => Some((Outcome::Refused, Some(refusal(reply)))),
        Err(error) => Some(unfinished(format!("Redis may have noted it, and MySQL has not got it: {error}"))),
    }
}

/// The steps after it was noted. Somebody else may have gone them: then there is nothing to go on with.
async fn complete(
    gate: &Gate,
    mysql: &MySqlPool,
    voucher: VoucherId,
    change: &StockChange,
    whole: Outcome,
) -> Became {
    let became = go_on(gate, mysql, voucher, change, whole).await;
    if became.0 != Outcome::Unfinished {
        return became;
    }
    match gate.read_change(voucher).await {
        Ok(Some(note)) => ended(change, &note, whole).unwrap_or(became),
        _ => became,
    }
}

async fn go_on(
    gate: &Gate,
    mysql: &MySqlPool,
    voucher: VoucherId,
    change: &StockChange,
    whole: Outcome,
) -> Became {
    match restock::bring_to_mysql(gate, mysql, voucher, change).await {
        Ok(Restocked::Done) => {}
        Ok(Restocked::TooFew) => {
            return (Outcome::Refused, Some("MySQL has fewer units left by now".to_owned()));
        }
        Ok(Restocked::TooMany) => return (Outcome::Refused, Some(COLUMN_TOO_SMALL.to_owned())),
        Ok(Restocked::NotWithdrawn(reply)) => {
            return unfinished(format!("MySQL refused it, and {}", refusal(reply)));
        }
        Ok(Restocked::Apart(initial)) => return unfinished(apart(change, initial)),
        Ok(Restocked::Over) => return unfinished("Redis has no open note of it any more".to_owned()),
        Err(error) => {
            return unfinished(format!("{} and MySQL may have it or not: {error}", redis_side(change.units)));
        }
    }
    let done = change.as_now(ChangeState::Done);
    match gate.restock(voucher, Some(change), &done, change.units.max(0)).await {
        Ok(RestockReply::Done) => (whole, None),
        Ok(reply) => unfinished(format!("MySQL has it, and {}", refusal(reply))),
        Err(error) => unfinished(format!("MySQL has it, and Redis may have it or not: {error}")),
    }
}

fn unfinished(reason: String) -> Became {
    (Outcome::Unfinished, Some(reason))
}

/// What others have made of a change that was noted, by the note that stands there now. None: it is still open.
fn ended(change: &StockChange, note: &StockChange, whole: Outcome) -> Option<Became> {
    let since = || told(note);
    match note.state {
        // Nothing else is begun while a change is open, so what began with what this one left shows that it was made.
        _ if note.id != change.id && note.before == change.after() => {
            Some((whole, Some(format!("since then: {}", since()))))
        }
        _ if note.id != change.id => Some((
            Outcome::Refused,
            Some(format!(
                "others have ended it, so that both sides have it or neither; since then: {}",
                since()
            )),
        )),
        ChangeState::Open => None,
        ChangeState::Done => Some((whole, None)),
        ChangeState::Withdrawn => {
            Some((Outcome::Refused, Some("MySQL refused it, and others have withdrawn it".to_owned())))
        }
    }
}

fn render(answer: &Answer) -> String {
    let Answer { voucher, units, change, .. } = answer;
    let initial = change.as_ref().map_or_else(String::new, |change| {
        format!("the initial stock from {} to {}", change.before, change.after())
    });
    let begun = change.as_ref().map(told).unwrap_or_default();
    let reason = answer.reason.as_deref().unwrap_or_default();
    let since = answer.reason.iter().map(|since| format!("; {since}")).collect::<String>();
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
            "voucher {voucher}: {} {} on both sides, {initial}{since}",
            counted(units.abs(), "unit"),
            participle(*units)
        ),
        Outcome::Completed => format!(
            "voucher {voucher}: the unfinished change is complete ({begun}), {initial}; nothing more was done{since}"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_others_have_ended_is_not_gone_on_with() {
        let change = StockChange::new(50, 150, "alice".to_owned());
        let ended = |note: &StockChange| ended(&change, note, Outcome::Changed);
        assert_eq!(ended(&change), None, "it is open");
        assert_eq!(ended(&change.as_now(ChangeState::Done)), Some((Outcome::Changed, None)));
        let (outcome, _) = ended(&change.as_now(ChangeState::Withdrawn)).unwrap();
        assert_eq!(outcome, Outcome::Refused);
        for state in [ChangeState::Open, ChangeState::Done] {
            let next = StockChange::new(-50, 200, "bob".to_owned()).as_now(state);
            let (outcome, since) = ended(&next).unwrap();
            assert_eq!(outcome, Outcome::Changed, "it began with what the change left");
            assert!(since.unwrap().contains("by bob"));
            let later = StockChange::new(-50, 300, "bob".to_owned()).as_now(state);
            assert_eq!(ended(&later).unwrap().0, Outcome::Refused, "nobody knows");
        }
    }
}
