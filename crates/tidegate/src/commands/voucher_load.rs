//! `tidegate voucher load`: puts a voucher on sale.

use clap::Args;
use jiff::Timestamp;
use tidegate_operations::{
    Job, SystemSettings,
    text::counted,
    vouchers::{
        MAX_STOCK, VoucherStores,
        load::{self, LoadOutcome, LoadPlan, LoadRefusal, LoadReport, LoadRequest},
    },
};
use tidegate_orders::VoucherId;

use crate::{
    exit::Exit,
    moment,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher load --voucher 7 --stock 1000
  tidegate voucher load --voucher 7 --stock 1000 --begin \"2026-11-20 10:00\" --end \"2026-11-20 12:00\"
  tidegate voucher load --voucher 7 --stock 1000 --begin 2026-11-20T10:00:00Z

Writes the MySQL row, then the Redis keys. Exits with 1, changing nothing, where the voucher is or was on sale on
either side. Asks only where it would write over what an ended sale left, or over other times in MySQL. If it fails
half-way, the same command again completes it; if it was done and nobody bought since, it says so and exits with 0.";

/// What `tidegate voucher load` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherLoadArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    voucher: VoucherId,
    /// Units to sell
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    stock: i64,
    /// The sale begins: RFC 3339, local time or Unix milliseconds; now by default
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    begin: Option<Timestamp>,
    /// The sale ends, likewise; never by default
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    end: Option<Timestamp>,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Loads the voucher, or says why not.
///
/// # Errors
/// When the times contradict each other, or a store cannot be reached or refuses.
pub async fn run(settings: &SystemSettings, args: &VoucherLoadArgs) -> anyhow::Result<Exit> {
    let VoucherLoadArgs { voucher, stock, begin, end, ref change } = *args;
    let request = LoadRequest { voucher, stock, begin, end };
    request.check(Timestamp::now())?;
    let stores = VoucherStores::connect(settings).await?;
    let plan = load::plan(&stores, request).await?;
    let work = async |plan: LoadPlan, _job: &Job| load::run(&stores, plan).await;
    Change::new(settings, change).run(plan, work).await
}

impl PlanText for LoadPlan {
    fn text(&self) -> String {
        render(&self.request, self.outcome, self.refusal.as_ref(), self.overwrites.as_deref())
    }
}

impl ReportText for LoadReport {
    fn text(&self) -> String {
        render(&self.request, self.outcome, self.refusal.as_ref(), self.overwrites.as_deref())
    }
}

fn render(
    LoadRequest { voucher, stock, .. }: &LoadRequest,
    outcome: LoadOutcome,
    refusal: Option<&LoadRefusal>,
    overwrites: Option<&str>,
) -> String {
    let units = counted(*stock, "unit");
    match outcome {
        LoadOutcome::Refused => {
            let refusal = refusal.map(refusal_text).unwrap_or_default();
            format!("voucher {voucher}: refused, {refusal}\nSee: tidegate voucher show --voucher {voucher}")
        }
        LoadOutcome::WouldLoad => {
            let overwrites = overwrites.map(|what| format!(", over {what}")).unwrap_or_default();
            format!("voucher {voucher}: would be loaded with {units}{overwrites}")
        }
        LoadOutcome::LoadedBefore => {
            format!("voucher {voucher}: is loaded with {units}, just so; nothing was changed")
        }
        LoadOutcome::LoadedPaused => {
            format!("voucher {voucher}: loaded with {units}; its sale was paused and still is")
        }
        LoadOutcome::Loaded => format!("voucher {voucher}: loaded with {units}"),
    }
}

/// Why not, and what to type instead.
fn refusal_text(refusal: &LoadRefusal) -> String {
    match refusal {
        LoadRefusal::OnSale { .. } => {
            format!("{refusal}; for more or fewer: tidegate voucher add, tidegate voucher take")
        }
        LoadRefusal::OtherStock { stock } => format!("{refusal}; load it with --stock {stock}"),
        _ => refusal.to_string(),
    }
}
