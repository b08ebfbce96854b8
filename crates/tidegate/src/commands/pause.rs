//! The command `tidegate pause`: pauses the sale of one voucher or of all vouchers, or the workers.

mod sales;
pub mod voucher;
mod workers;

use std::time::Duration;

use clap::Args;
use tidegate_operations::{
    Stores, fleet_pause::FleetPauseRequest, pause::VoucherChanges, pause::voucher::VoucherPauseRequest,
};
use tidegate_orders::VoucherId;

use crate::{
    exit::{Exit, WrongUsage},
    operator::ChangeArgs,
    scope::{PartitionCommand, Scope},
    times,
};
/// The most vouchers that a sentence lists by their ids.
const NAMED: usize = 10;

const EXAMPLES: &str = "\
Examples:
  tidegate pause --voucher 7
  tidegate pause --dry-run
  tidegate pause --workers --for 10m --reason 'new disk for MySQL'
  tidegate pause --workers --yes --json

--voucher pauses the sale of one voucher: from now on, requests for orders are refused with reply 7. Workers
still write the orders that were admitted. Without --voucher, the command pauses all vouchers that have a stock in Redis
now. A voucher that is loaded later is not paused. If no voucher has a stock, it changes nothing and exits with 1.

--workers does not stop admissions: orders wait in the stream. Every worker finishes the batch in progress and stops
reading within 2 s. A worker that is started later does not read either. Heartbeats continue, and pending entries stay
with their worker. tidegate status shows the pause.

You may pause again. With --for or --reason, a new pause of the workers replaces the old pause. To end a pause, use
tidegate resume with the same flag (--voucher, --workers, or none).";

/// The arguments of `tidegate pause`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PauseArgs {
    /// Pause the sale of only this voucher; by default, all sales
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Pause all workers, and no sale
    #[arg(long, conflicts_with = "voucher")]
    workers: bool,
    /// The time after which the workers resume by themselves, such as 10m
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_span)]
    span: Option<Duration>,
    /// The reason: shown in `tidegate log`, and for workers also in `tidegate status` and their logs
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for PauseArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::AnyPartition(self.voucher)
    }

    /// Pauses the sales or the workers.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        match (self.voucher, self.workers) {
            (Some(_), _) | (None, false) if self.span.is_some() => {
                let message = "--for needs --workers: only a pause of workers ends by itself. To end the pause of a sale: \
                               tidegate resume";
                Err(WrongUsage(message.to_owned()).into())
            }
            (Some(voucher), _) => {
                voucher::run(stores, VoucherPauseRequest::Pause(voucher), &self.change).await
            }
            (None, false) => sales::run(stores, &self.change).await,
            (None, true) => {
                let request = FleetPauseRequest::new(self.change.who(), self.span, self.reason.clone())?;
                workers::run(stores, request, &self.change).await
            }
        }
    }
}

/// A text that lists vouchers by their ids, such as `7, 8 and 12 more`.
pub fn names(vouchers: &[VoucherId]) -> String {
    let named: Vec<String> = vouchers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = vouchers.len().saturating_sub(NAMED);
    format!("{}{}", named.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// The text about vouchers that Redis refused to pause or resume, one voucher in each line.
pub fn failures(changes: &VoucherChanges) -> String {
    let failed = changes.failed.iter();
    failed.map(|failed| format!("\nvoucher {}: {}", failed.voucher, failed.error)).collect()
}
