//! `tidegate voucher add` and `tidegate voucher take`: more units for a sale that is on, or fewer, on both sides.

use clap::Args;
use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    End, SystemSettings,
    vouchers::{
        MAX_STOCK, VoucherStores,
        restock::{
            self, RestockOutcome, RestockPlan, RestockRefusal, RestockReport, RestockRequest, added_or_taken,
            described,
        },
    },
};
use tidegate_orders::{VoucherId, gate::StockChange};

use crate::{
    command_line::CommandLine,
    commands::open_change,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
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
    pub voucher: VoucherId,
    /// How many units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    units: i64,
    /// Only if the initial stock in MySQL is this: so the same command changes it once, however often it is typed
    #[arg(long, value_name = "UNITS")]
    initial_stock: Option<i64>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Adds units, goes on with adding them where that died half-way, or says why not.
///
/// # Errors
/// When a store cannot be reached, or refuses before anything was done.
pub async fn add(settings: &SystemSettings, args: &VoucherRestockArgs) -> anyhow::Result<Exit> {
    run(settings, args, args.units).await
}

/// As [`add`], the other way round.
///
/// # Errors
/// As [`add`].
pub async fn take(settings: &SystemSettings, args: &VoucherRestockArgs) -> anyhow::Result<Exit> {
    run(settings, args, -args.units).await
}

async fn run(settings: &SystemSettings, args: &VoucherRestockArgs, units: i64) -> anyhow::Result<Exit> {
    let VoucherRestockArgs { voucher, initial_stock, ref change, .. } = *args;
    let stores = VoucherStores::connect(settings).await?;
    let plan = restock::plan(&stores, RestockRequest { voucher, units, initial_stock }, change.who()).await?;
    let report = RestockReport::unfinished(&plan);
    let work = async |plan: RestockPlan, report: &mut RestockReport, _job: &Job| {
        restock::run(&stores, plan, report).await.map(|()| End::Whole)
    };
    Change::new(settings, change).run_in_steps(plan, report, work).await
}

impl PlanText for RestockPlan {
    fn text(&self) -> String {
        let Self { voucher, units, .. } = self;
        let initial = self.change.as_ref().map(initial_text).unwrap_or_default();
        let begun = self.change.as_ref().map(described).unwrap_or_default();
        match self.outcome {
            RestockOutcome::WouldComplete => format!(
                "voucher {voucher}: an unfinished change would be completed ({begun}), {initial}; nothing more would \
                 be done"
            ),
            RestockOutcome::DoneBefore => {
                format!(
                    "voucher {voucher}: both sides have it already ({begun}), {initial}; nothing was done"
                )
            }
            RestockOutcome::Refused => {
                refused_text(*voucher, &self.refusal.as_ref().map(refusal_text).unwrap_or_default())
            }
            _ => format!(
                "voucher {voucher}: {} would be {}, {initial}; Redis has {} now, MySQL {}",
                counted(units.abs(), "unit"),
                added_or_taken(*units),
                self.redis_stock.unwrap_or_default(),
                self.mysql_stock.unwrap_or_default()
            ),
        }
    }
}

impl ReportText for RestockReport {
    fn text(&self) -> String {
        let Self { voucher, units, .. } = self;
        let initial = self.change.as_ref().map(initial_text).unwrap_or_default();
        let begun = self.change.as_ref().map(described).unwrap_or_default();
        let since = self.reason.iter().map(|since| format!("; {since}")).collect::<String>();
        match self.outcome {
            RestockOutcome::Changed => format!(
                "voucher {voucher}: {} {} on both sides, {initial}{since}",
                counted(units.abs(), "unit"),
                added_or_taken(*units)
            ),
            RestockOutcome::Completed => format!(
                "voucher {voucher}: the unfinished change is complete ({begun}), {initial}; nothing more was \
                 done{since}"
            ),
            RestockOutcome::Refused => refused_text(*voucher, self.reason.as_deref().unwrap_or_default()),
            _ => format!("voucher {voucher}: unfinished"),
        }
    }

    fn continue_with(&self) -> Option<CommandLine> {
        self.rest().as_ref().map(open_change::restock)
    }
}

fn initial_text(change: &StockChange) -> String {
    format!("the initial stock from {} to {}", change.before, change.after())
}

fn refused_text(voucher: VoucherId, reason: &str) -> String {
    format!("voucher {voucher}: refused, {reason}\nSee: tidegate voucher show --voucher {voucher}")
}

/// Why not, and what to type first or instead.
fn refusal_text(refusal: &RestockRefusal) -> String {
    match refusal {
        RestockRefusal::AnotherIsOpen { open, voucher } => {
            format!("{refusal}; complete that first: {}", open_change::complete(*voucher, open))
        }
        RestockRefusal::SameAsLast { again, .. } => {
            format!("{refusal}; once more: {}", open_change::restock(again))
        }
        _ => refusal.to_string(),
    }
}
