//! The commands `tidegate voucher add`, `take` and `transfer`: change the stock of a sale that is on, or move units
//! between regions of a campaign.

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    End, Stores, System, campaigns,
    vouchers::{
        MAX_STOCK, VoucherStores,
        stock_change::{
            self, ChangedStocks, Instead, StockChangeRequest, StockChangeState, StockOutcome, StockSide,
            added_or_taken,
        },
    },
};
use tidegate_orders::{CampaignId, VoucherId, scripts::StockTransfer};

use crate::{
    command_line::CommandLine,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope, SystemCommand},
};

macro_rules! help {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n\nChanges the stock and the initial stock (all loaded units) in MySQL, and the stock in Redis, by \
             the same number. If the command fails or is killed, run it again to complete the change. After that, \
             the same command is refused, because it may be a mistake. To make a second change, give the present \
             initial stock with --initial-stock. If the voucher is not on sale in both stores, or has too few units \
             left, the command changes nothing and exits with 1."
        )
    };
}

/// The help text of `tidegate voucher add`.
const ADD_HELP: &str = help!(
    "\
Examples:
  tidegate voucher add --voucher 7 --units 500 --dry-run
  tidegate voucher add --voucher 7 --units 500
  tidegate voucher add --voucher 7 --units 500 --initial-stock 1000 --yes"
);

/// The help text of `tidegate voucher take`.
const TAKE_HELP: &str = help!(
    "\
Examples:
  tidegate voucher take --voucher 7 --units 500 --dry-run
  tidegate voucher take --voucher 7 --units 500
  tidegate voucher take --voucher 7 --units 500 --initial-stock 1500 --yes"
);

const TRANSFER_EXAMPLES: &str = "\
Examples:
  tidegate voucher transfer --campaign 5 --from north --to south --units 500 --dry-run
  tidegate voucher transfer --campaign 5 --from north --to south --units 500
  tidegate voucher transfer --campaign 5 --from north --to south --units 500 --initial-stock 5000 --yes

Changes the stock and the initial stock of both regions in MySQL in one transaction, and their stocks in Redis, while
both are on sale. If the command fails or is killed, run it again to complete the transfer. After that, the same command
is refused, because it may be a mistake. To make a second transfer, give the present initial stock of the --from region
with --initial-stock. If a region does not exist, is not on sale in both stores, or has too few units left, the command
changes nothing and exits with 1.";

/// The arguments of `tidegate voucher add`.
#[derive(Args, Debug)]
#[command(after_help = ADD_HELP)]
pub struct StockAddArgs {
    #[command(flatten)]
    adjustment: StockAdjustmentArgs,
}

/// The arguments of `tidegate voucher take`.
#[derive(Args, Debug)]
#[command(after_help = TAKE_HELP)]
pub struct StockTakeArgs {
    #[command(flatten)]
    adjustment: StockAdjustmentArgs,
}

/// The arguments that `tidegate voucher add` and `take` share.
#[derive(Args, Debug)]
struct StockAdjustmentArgs {
    /// The voucher whose stock changes
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    /// The number of units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    units: i64,
    /// Change the stock only if initial_stock of the voucher's MySQL row is this number. Each change also changes it
    #[arg(long, value_name = "UNITS")]
    initial_stock: Option<i64>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// The arguments of `tidegate voucher transfer`.
#[derive(Args, Debug)]
#[command(after_help = TRANSFER_EXAMPLES)]
pub struct StockTransferArgs {
    /// The id of the campaign
    #[arg(long, value_name = "ID")]
    campaign: CampaignId,
    /// The region that the units are taken from
    #[arg(long, value_name = "REGION")]
    from: String,
    /// The region that receives the units
    #[arg(long, value_name = "REGION")]
    to: String,
    /// The number of units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    units: i64,
    /// Move the units only if the initial_stock of the --from region in MySQL is this number: every move changes
    /// initial_stock, so that a repeated command moves nothing
    #[arg(long, value_name = "UNITS")]
    initial_stock: Option<i64>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for StockAddArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.adjustment.voucher)
    }

    /// Adds units, completes an unfinished change, or reports why it refuses.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let StockAdjustmentArgs { voucher, units, initial_stock, ref change } = self.adjustment;
        run(stores, ChangedStocks::Of(voucher), (units, initial_stock), change).await
    }
}

impl PartitionCommand for StockTakeArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.adjustment.voucher)
    }

    /// Takes units, like [`StockAddArgs::run`].
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let StockAdjustmentArgs { voucher, units, initial_stock, ref change } = self.adjustment;
        run(stores, ChangedStocks::Of(voucher), (-units, initial_stock), change).await
    }
}

impl SystemCommand for StockTransferArgs {
    /// Moves units from one region to another, like [`StockAddArgs::run`].
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let Self { campaign, from, to, units, initial_stock, change } = self;
        let stores = Stores::new(campaigns::partition_of(system, *campaign).await?);
        let (from, to) = (from.clone(), to.clone());
        let stocks = ChangedStocks::Between(StockTransfer { campaign: *campaign, from, to });
        run(&stores, stocks, (*units, *initial_stock), change).await
    }
}

async fn run(
    stores: &Stores,
    stocks: ChangedStocks,
    (units, initial_stock): (i64, Option<i64>),
    change: &ChangeArgs,
) -> anyhow::Result<Exit> {
    let both = VoucherStores::connect(stores).await?;
    let request = StockChangeRequest { stocks, units, initial_stock };
    let plan = stock_change::plan(&both, request, &change.who()).await?;
    let report = plan.unfinished();
    Change::new(stores, change)
        .run_in_steps(plan, report, async |plan, report, _job| {
            stock_change::run(&both, &plan, report).await.map(|()| End::Whole)
        })
        .await
}

/// The command line that makes or completes a change of the stock.
pub fn command(request: &StockChangeRequest) -> CommandLine {
    let command = match &request.stocks {
        ChangedStocks::Of(voucher) => {
            let name = if request.units > 0 { "voucher add" } else { "voucher take" };
            CommandLine::new(name).flag("--voucher", Some(voucher))
        }
        ChangedStocks::Between(StockTransfer { campaign, from, to }) => {
            let command = CommandLine::new("voucher transfer").flag("--campaign", Some(campaign));
            command.flag("--from", Some(from)).flag("--to", Some(to))
        }
    };
    command.flag("--units", Some(request.units.abs())).flag("--initial-stock", request.initial_stock)
}

impl PlanText for StockChangeState {
    fn text(&self) -> String {
        let (what, begun, initial) = (what(self), self.begun(), initial_text(self));
        let text = match (self.outcome, &self.lost) {
            (StockOutcome::WouldComplete, Some(lost)) => format!(
                "Redis has lost the note of {lost} about the move. The unfinished move ({begun}) would be completed if \
                 MySQL has the move, otherwise cancelled; the stock of {lost} in Redis would not change"
            ),
            (StockOutcome::WouldComplete, None) => {
                format!(
                    "an unfinished {what} would be completed ({begun}){initial}; no other change would be made"
                )
            }
            (StockOutcome::DoneBefore, _) => {
                format!("both stores already have this change ({begun}){initial}; nothing was changed")
            }
            (StockOutcome::Refused, _) => refused_text(self),
            _ => format!("{} would be {}{}", units(self), done(self), details(self, stocks_text)),
        };
        format!("{}: {text}", subject(self))
    }
}

impl ReportText for StockChangeState {
    fn text(&self) -> String {
        let since = self.reason.iter().map(|since| format!("; {since}")).collect::<String>();
        let text = match self.outcome {
            StockOutcome::Changed => {
                let details = details(self, |_| String::new());
                format!("{} {} in both stores{details}{since}", units(self), done(self))
            }
            StockOutcome::Completed => format!(
                "the unfinished {} is now complete ({}){}; no other change was made{since}",
                what(self),
                self.begun(),
                initial_text(self)
            ),
            StockOutcome::Refused => refused_text(self),
            _ => "unfinished".to_owned(),
        };
        format!("{}: {text}", subject(self))
    }

    fn continue_with(&self) -> Option<CommandLine> {
        self.rest().as_ref().map(command)
    }
}

/// The text that names the changed stocks: `voucher 7`, or `campaign 5, north to south`.
fn subject(state: &StockChangeState) -> String {
    match &state.request.stocks {
        ChangedStocks::Of(voucher) => format!("voucher {voucher}"),
        ChangedStocks::Between(it) => format!("campaign {}, {} to {}", it.campaign, it.from, it.to),
    }
}

const fn what(state: &StockChangeState) -> &'static str {
    match state.request.stocks {
        ChangedStocks::Of(_) => "change",
        ChangedStocks::Between(_) => "move",
    }
}

const fn done(state: &StockChangeState) -> &'static str {
    match state.request.stocks {
        ChangedStocks::Of(_) => added_or_taken(state.request.units),
        ChangedStocks::Between(_) => "moved",
    }
}

fn units(state: &StockChangeState) -> String {
    counted(state.request.units.abs(), "unit")
}

/// The phrase about the change of the initial stock of a single voucher; empty for a transfer between two vouchers.
fn initial_text(state: &StockChangeState) -> String {
    if state.sides.len() == 1 { details(state, |_| String::new()) } else { String::new() }
}

/// The phrases about the changes of the initial stocks, with `more` text for each voucher.
fn details(state: &StockChangeState, more: fn(&StockSide) -> String) -> String {
    let of_side = |side: &StockSide| {
        let (name, whose) = match (side.voucher, state.sides.len()) {
            (Some(voucher), 2) => (format!("\n  {} (voucher {voucher})", side.name), "its"),
            _ => (String::new(), "the"),
        };
        let initial = side.change.as_ref();
        let initial =
            initial.map(|it| format!(", {whose} initial stock from {} to {}", it.before, it.after()));
        [name, initial.unwrap_or_default(), more(side)].concat()
    };
    state.sides.iter().map(of_side).collect()
}

fn stocks_text(side: &StockSide) -> String {
    let [redis, mysql] = [side.redis_stock, side.mysql_stock].map(Option::unwrap_or_default);
    format!("; the stock is now {redis} in Redis, {mysql} in MySQL")
}

/// The text about the reason for the refusal, and what to type first or instead.
fn refused_text(state: &StockChangeState) -> String {
    let reason = state.reason.as_deref().unwrap_or_default();
    let instead = match &state.instead {
        Some(Instead::First(request)) => {
            format!("; to complete the unfinished change first: {}", command(request))
        }
        Some(Instead::OnceMore(request)) => format!("; to do it a second time: {}", command(request)),
        None => String::new(),
    };
    let look = match &state.request.stocks {
        ChangedStocks::Of(voucher) => format!("voucher show --voucher {voucher}"),
        ChangedStocks::Between(it) => format!("campaign show --campaign {}", it.campaign),
    };
    format!("refused, {reason}{instead}\nSee: tidegate {look}")
}

#[cfg(test)]
mod tests {
    use tidegate_orders::scripts::{RecordedTransfer, StockChange};

    use super::*;

    #[test]
    fn what_to_type_is_made_from_the_request_or_the_note() {
        let voucher = VoucherId::try_from(7).unwrap();
        for (units, initial_stock, line) in [
            (50, Some(150), "tidegate voucher add --voucher 7 --units 50 --initial-stock 150"),
            (-50, None, "tidegate voucher take --voucher 7 --units 50"),
        ] {
            let request = StockChangeRequest { stocks: ChangedStocks::Of(voucher), units, initial_stock };
            assert_eq!(command(&request).to_string(), line);
        }
        let (from, to) = ("north".to_owned(), "south".to_owned());
        let transfer = StockTransfer { campaign: 5.try_into().unwrap(), from, to };
        let moved = RecordedTransfer { transfer, giver_before: 60, taker_before: 15 };
        let change = |units| {
            let change = StockChange::new(units, 60, "alice".to_owned());
            StockChange { moved: Some(Box::new(moved.clone())), ..change }
        };
        for units in [-20, 20] {
            let line = "tidegate voucher transfer --campaign 5 --from north --to south --units 20 --initial-stock 60";
            let request = StockChangeRequest::completing(voucher, &change(units));
            assert_eq!(command(&request).to_string(), line);
        }
    }
}
