//! `tidegate voucher transfer`: units go from one region of a campaign to another.

use clap::Args;
use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    End, System,
    campaigns::{
        self,
        transfer::{self, TransferOutcome, TransferRefusal, TransferRequest, TransferSide, TransferState},
    },
    vouchers::{MAX_STOCK, VoucherStores, restock::described},
};
use tidegate_orders::CampaignId;

use crate::{
    command_line::CommandLine,
    commands::open_change,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher transfer --campaign 5 --from north --to south --units 500 --dry-run
  tidegate voucher transfer --campaign 5 --from north --to south --units 500
  tidegate voucher transfer --campaign 5 --from north --to south --units 500 --initial-stock 5000 --yes

Changes stock and initial stock of both regions in MySQL in one transaction, and their stocks in Redis, while both are sold. If
it fails or is killed half-way, the same command again completes it. When both sides have it, the same command again is
refused, unless --initial-stock says that it is meant. Exits with 1, changing nothing, where a region is not there or not on
sale on both sides, or has fewer units left.";

/// What `tidegate voucher transfer` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherTransferArgs {
    /// The campaign
    #[arg(long, value_name = "ID")]
    campaign: CampaignId,
    /// The region that gives
    #[arg(long, value_name = "REGION")]
    from: String,
    /// The region that gets
    #[arg(long, value_name = "REGION")]
    to: String,
    /// How many units
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    units: i64,
    /// Only if the initial stock of the region that gives is this in MySQL: so the same command moves them once
    #[arg(long, value_name = "UNITS")]
    initial_stock: Option<i64>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Moves units, goes on with moving them where that died half-way, or says why not.
///
/// # Errors
/// When a store cannot be reached, or refuses before anything was done.
pub async fn run(system: &System, args: &VoucherTransferArgs) -> anyhow::Result<Exit> {
    let VoucherTransferArgs { campaign, from, to, units, initial_stock, change } = args;
    let settings = campaigns::partition_of(system, *campaign).await?;
    let stores = VoucherStores::connect(settings).await?;
    let (campaign, from, to) = (*campaign, from.clone(), to.clone());
    let request = TransferRequest { campaign, from, to, units: *units, initial_stock: *initial_stock };
    let plan = transfer::plan(&stores, request, &change.who()).await?;
    let report = plan.unfinished();
    let work = async |plan: TransferState, report: &mut TransferState, _job: &Job| {
        transfer::run(&stores, plan, report).await.map(|()| End::Whole)
    };
    Change::new(settings, change).run_in_steps(plan, report, work).await
}

impl PlanText for TransferState {
    fn text(&self) -> String {
        let begun = self.from.change.as_ref().map(described).unwrap_or_default();
        let (sides, lost) = (sides(self), self.lost().unwrap_or_default());
        match self.outcome {
            TransferOutcome::WouldComplete if self.lost().is_some() => format!(
                "{sides}: Redis has lost the note of {lost}, so this unfinished move would be ended ({begun}): it is done \
                 if MySQL has it, and cancelled if not; the stock of {lost} in Redis would stay as it is"
            ),
            TransferOutcome::WouldComplete => {
                format!(
                    "{sides}: an unfinished move would be completed ({begun}); nothing more would be done"
                )
            }
            TransferOutcome::DoneBefore => {
                format!("{sides}: both sides have it already ({begun}); nothing was done")
            }
            TransferOutcome::Refused => refused_text(self),
            _ => format!(
                "{sides}: {} would be moved{}{}",
                counted(self.units, "unit"),
                stocks(&self.from),
                stocks(&self.to)
            ),
        }
    }
}

impl ReportText for TransferState {
    fn text(&self) -> String {
        let begun = self.from.change.as_ref().map(described).unwrap_or_default();
        let sides = sides(self);
        let since = self.reason.iter().map(|since| format!("; {since}")).collect::<String>();
        match self.outcome {
            TransferOutcome::Moved => {
                let initials = [initial(&self.from), initial(&self.to)].concat();
                format!("{sides}: {} moved on both sides{initials}{since}", counted(self.units, "unit"))
            }
            TransferOutcome::Completed => {
                format!("{sides}: the unfinished move is complete ({begun}); nothing more was done{since}")
            }
            TransferOutcome::Refused => refused_text(self),
            _ => format!("{sides}: unfinished"),
        }
    }

    fn continue_with(&self) -> Option<CommandLine> {
        self.rest().as_ref().map(open_change::transfer)
    }
}

fn sides(state: &TransferState) -> String {
    format!("campaign {}, {} to {}", state.campaign, state.from.region, state.to.region)
}

fn stocks(side: &TransferSide) -> String {
    let shown = |units: Option<i64>| units.map_or_else(|| "none".to_owned(), |units| units.to_string());
    let (redis, mysql) = (shown(side.redis_stock), shown(side.mysql_stock));
    format!("{}; Redis has {redis} now, MySQL {mysql}", initial(side))
}

fn initial(side: &TransferSide) -> String {
    let change = side.change.as_ref();
    let initial = change.map(|it| format!(", its initial stock from {} to {}", it.before, it.after()));
    let voucher = side.voucher.map(|voucher| format!(" (voucher {voucher})")).unwrap_or_default();
    format!("\n  {}{voucher}{}", side.region, initial.unwrap_or_default())
}

/// Why not, and what to type first or instead.
fn refused_text(state: &TransferState) -> String {
    let reason = state.reason.as_deref().unwrap_or_default();
    let command = match &state.refusal {
        Some(TransferRefusal::AnotherIsOpen { voucher, open, .. }) => {
            format!("; complete that first: {}", open_change::complete(*voucher, open))
        }
        Some(TransferRefusal::SameAsLast { initial, .. }) => {
            format!("; once more: {}", open_change::transfer(&state.asked(Some(*initial))))
        }
        Some(TransferRefusal::NoInitialStock { voucher, .. }) => {
            format!("; tidegate voucher add --voucher {voucher} --units 1 says how to write that down")
        }
        _ => String::new(),
    };
    let campaign = state.campaign;
    format!("{}: refused, {reason}{command}\nSee: tidegate campaign show --campaign {campaign}", sides(state))
}
