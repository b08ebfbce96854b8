//! The command `tidegate voucher load`: puts a voucher on sale.

use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    vouchers::{
        MAX_STOCK, VoucherStores,
        load::{self, LoadOutcome, LoadRefusal, LoadRequest, LoadState},
    },
};
use tidegate_orders::{VoucherId, scripts::JournalUse};

use crate::{
    exit::{Exit, WrongUsage},
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope},
    times,
};

const MOST_SECONDS: u32 = 365 * 24 * 3600;

const EXAMPLES: &str = "\
Examples:
  tidegate voucher load --voucher 7 --stock 1000
  tidegate voucher load --voucher 7 --stock 1000 --begin \"2026-11-20 10:00\" --end \"2026-11-20 12:00\"
  tidegate voucher load --voucher 7 --stock 1000 --begin 2026-11-20T10:00:00Z --pay-within 15m

Writes the MySQL row, then the Redis keys. If the command fails half-way, run it again to complete it. If the voucher is
or was on sale in either store, the command changes nothing and exits with 1, except in two cases. If the same sale is
loaded and no order was placed since, it says so and exits with 0. If an ended sale has no orders, the command
overwrites that sale. It asks only before it overwrites an ended sale, or a different begin or end in MySQL.

Without --no-journal, only orders that lua/admit.lua admitted count as taken from the stock in Redis. The units of other
orders, such as orders that a producer appends with XADD alone, are never released to the stock in Redis.";

/// The arguments of `tidegate voucher load`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherLoadArgs {
    /// The voucher to put on sale
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// The number of units to sell
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    stock: i64,
    /// When the sale begins: RFC 3339, local time or Unix milliseconds; now by default
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    begin: Option<Timestamp>,
    /// When the sale ends, in the same formats; never by default
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    end: Option<Timestamp>,
    #[command(flatten)]
    pay_within: PayWithinArgs,
    /// Your own script sells the voucher and notes no admissions in Redis: comparisons then do not check the stock
    #[arg(long)]
    no_journal: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for VoucherLoadArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Loads the voucher, or reports why it refuses.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let VoucherLoadArgs { voucher, stock, begin, end, pay_within, no_journal, ref change } = *self;
        let pay_within_s = pay_within.seconds()?;
        let journal = if no_journal { JournalUse::None } else { JournalUse::Complete };
        let request = LoadRequest { voucher, stock, begin, end, pay_within_s, journal };
        request.check(Timestamp::now())?;
        let both = VoucherStores::connect(stores).await?;
        let plan = load::plan(&both, request).await?;
        Change::new(stores, change).run(plan, async |plan, _job| load::run(&both, plan).await).await
    }
}

/// The argument for the time limit for payments of a voucher's orders.
#[derive(Args, Clone, Copy, Debug)]
pub struct PayWithinArgs {
    /// The time after which a written, unpaid order expires, such as 15m. 0s: never. Default: the setting
    /// order.pay_within_s
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    pay_within: Option<Duration>,
}

impl PayWithinArgs {
    /// The time limit in whole seconds, as MySQL stores it. None: the setting decides.
    pub fn seconds(self) -> Result<Option<i64>, WrongUsage> {
        let Some(span) = self.pay_within else { return Ok(None) };
        let seconds = u32::try_from(span.as_secs()).ok().filter(|_| span.subsec_nanos() == 0);
        let seconds = seconds.filter(|seconds| *seconds <= MOST_SECONDS);
        let wrong = || WrongUsage("--pay-within must be whole seconds, up to 365d".to_owned());
        seconds.map(|seconds| Some(seconds.into())).ok_or_else(wrong)
    }
}

impl PlanText for LoadState {
    fn text(&self) -> String {
        render(self)
    }
}

impl ReportText for LoadState {
    fn text(&self) -> String {
        render(self)
    }
}

fn render(LoadState { request, outcome, refusal, overwrites }: &LoadState) -> String {
    let LoadRequest { voucher, stock, .. } = request;
    let units = counted(*stock, "unit");
    match outcome {
        LoadOutcome::Refused => {
            let refusal = refusal.as_ref().map(refusal_text).unwrap_or_default();
            format!("voucher {voucher}: refused, {refusal}\nSee: tidegate voucher show --voucher {voucher}")
        }
        LoadOutcome::WouldLoad => {
            let overwrites = overwrites.as_ref().map(|what| format!(", over {what}")).unwrap_or_default();
            format!("voucher {voucher}: would be loaded with {units}{overwrites}")
        }
        LoadOutcome::LoadedBefore => {
            format!("voucher {voucher}: is already loaded with {units} and these times; nothing was changed")
        }
        LoadOutcome::LoadedPaused => {
            format!("voucher {voucher}: loaded with {units}; its sale was paused and stays paused")
        }
        LoadOutcome::Loaded => format!("voucher {voucher}: loaded with {units}"),
    }
}

/// The text about the reason for the refusal, and what to type instead.
fn refusal_text(refusal: &LoadRefusal) -> String {
    match refusal {
        LoadRefusal::OnSale { .. } => {
            format!("{refusal}; to change the stock: tidegate voucher add, tidegate voucher take")
        }
        LoadRefusal::OtherStock { stock } => format!("{refusal}; load it with --stock {stock}"),
        _ => refusal.to_string(),
    }
}
