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
/// The most vouchers that a sentence names.
const NAMED: usize = 10;

const EXAMPLES: &str = "\
Examples:
  tidegate pause --voucher 7
  tidegate pause --dry-run
  tidegate pause --workers --for 10m --reason 'new disk for MySQL'
  tidegate pause --workers --yes --json

--voucher pauses the sale of one voucher: from now on, requests for orders are refused with reply 7. Orders that were
admitted are written. Without --voucher, the command pauses all vouchers that have a stock in Redis now. A voucher that
is loaded later is not paused. If there is no stock, it changes nothing and exits with 1.

--workers does not stop admissions: orders wait in the stream. Every worker finishes the batch in progress and stops
reading within 2 s. A worker that is started later does not read either. Heartbeats continue, and entries that are set
aside stay with their worker. tidegate status shows the pause.

Pausing again does no harm. With --for or --reason, a new pause of the workers replaces the old one. tidegate resume
with the same flag ends a pause.";

/// The arguments of `tidegate pause`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PauseArgs {
    /// Only this voucher; by default all vouchers that are on sale
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Pause all workers, instead of sales
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
                let message = "--for belongs to --workers: only a pause of workers can end by itself; a paused sale goes on with \
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

/// Some vouchers by their ids, such as `7, 8 and 12 more`.
pub fn names(vouchers: &[VoucherId]) -> String {
    let named: Vec<String> = vouchers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = vouchers.len().saturating_sub(NAMED);
    format!("{}{}", named.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// The vouchers that could not be changed, one a line.
pub fn failures(changes: &VoucherChanges) -> String {
    let failed = changes.failed.iter();
    failed.map(|failed| format!("\nvoucher {}: {}", failed.voucher, failed.error)).collect()
}
