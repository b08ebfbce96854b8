//! The command `tidegate voucher publish`: puts a voucher with its schedule into MySQL.

use clap::Args;
use jiff::Timestamp;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    vouchers::{
        MAX_STOCK,
        publish::{self, PublishOutcome, PublishRequest, PublishState},
    },
};
use tidegate_orders::VoucherId;

use super::voucher_load::PayWithinArgs;
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    output::print_note,
    scope::{PartitionCommand, Scope},
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher publish --voucher 7 --stock 1000 --begin \"2026-11-20 10:00\" --end \"2026-11-20 12:00\"
  tidegate voucher publish --voucher 7 --stock 1000 --begin 2026-11-20T10:00:00Z --pay-within 15m

Writes only the MySQL row. With the setting calendar.warm_up, workers load the voucher into Redis before its begin, so no
other command is needed. Without this setting, run
tidegate voucher load with the same --stock, --begin and --end before the begin. If the command fails, run it
again. If MySQL has the voucher with other values, the command changes nothing and exits with 1: tidegate voucher
schedule changes the times. See docs/calendar.md.";

/// The arguments of `tidegate voucher publish`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherPublishArgs {
    /// The voucher whose row is written
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// The number of units to sell
    #[arg(long, value_name = "UNITS", value_parser = clap::value_parser!(i64).range(1..=MAX_STOCK), allow_negative_numbers = true)]
    stock: i64,
    /// When the sale begins, in the future: RFC 3339, local time or Unix milliseconds
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    begin: Timestamp,
    /// When the sale ends, in the same formats; never by default
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    end: Option<Timestamp>,
    #[command(flatten)]
    pay_within: PayWithinArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for VoucherPublishArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Publishes the voucher, or reports why it refuses.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let Self { voucher, stock, begin, end, pay_within, ref change } = *self;
        let pay_within_s = pay_within.seconds()?;
        let request = PublishRequest { voucher, stock, begin, end, pay_within_s };
        request.check(Timestamp::now())?;
        let mysql = stores.mysql().await?;
        let plan = publish::plan(mysql, request).await?;
        let exit =
            Change::new(stores, change).run(plan, async |_, _job| publish::run(mysql, request).await).await?;
        if exit == Exit::Ok && stores.settings().calendar.warm_up.is_none() {
            print_note(
                "calendar.warm_up is off in this configuration. If it is also off in that of the workers, run tidegate voucher \
                 load with the same --stock, --begin and --end before the sale begins",
            );
        }
        Ok(exit)
    }
}

impl PlanText for PublishState {
    fn text(&self) -> String {
        render(self)
    }
}

impl ReportText for PublishState {
    fn text(&self) -> String {
        render(self)
    }
}

fn render(PublishState { request, outcome, refusal }: &PublishState) -> String {
    let PublishRequest { voucher, stock, begin, .. } = request;
    let units = counted(*stock, "unit");
    match (outcome, refusal) {
        (_, Some(refusal)) => format!("voucher {voucher}: refused, {refusal}"),
        (PublishOutcome::WouldPublish, _) => {
            format!("voucher {voucher}: would be published with {units}, and begin at {begin}")
        }
        (PublishOutcome::PublishedBefore, _) => {
            format!("voucher {voucher}: is already published with these values; nothing was changed")
        }
        _ => format!("voucher {voucher}: published with {units}; its sale begins at {begin}"),
    }
}
