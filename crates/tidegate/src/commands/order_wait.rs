//! `tidegate order wait`: waits until an order is written, or paid, and ends with what became of it.

mod text;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use tidegate_operations::{
    Stores,
    order_progress::{OrderLookup, WaitEnd, WaitRequest, WaitTarget, wait_for_order},
};
use tidegate_orders::{OrderId, OrderState, VoucherId};

use crate::{
    exit::Exit,
    times,
    output::{OutputArgs, print_note},
    scope::{PartitionCommand, Scope},
};

/// How long it waits, unless it is told otherwise.
const WAIT: &str = "30s";

const EXAMPLES: &str = "\
Examples:
  tidegate order wait 693106606080001 --voucher 7
  tidegate order wait 693106606080001 --until paid --for 15m
  tidegate order wait 693106606080001 --for 0s --json | jq -r .state

Looks into MySQL, and into Redis while MySQL does not know the order. --voucher says into which journal; without it, those of
the 16 vouchers with the highest ids are looked into. While it waits, it says once where in the queue the order stands, and
when its turn comes: an estimate. It needs no stream of results.

States: waiting, confirmed (written, not paid), paid, used, refunding, refunded, cancelled, expired, refused, released,
dead, contradictory, unsure, unknown.

Exits with 0 when the order is written, or in a later state; with 7 if it was refused, 8 if it was cancelled, released or refunded, 9
if it has expired, 10 if it is a dead letter; with 11 if it is still on its way when the time is over, and with 1 if nothing
was found of it by then. With --for 0s it looks once.";

/// What `tidegate order wait` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderWaitArgs {
    /// The id of the order
    #[arg(value_name = "ORDER")]
    pub order: OrderId,
    /// Its voucher, if it is known: saves a search
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Until what
    #[arg(long, value_name = "STATE", default_value = "confirmed")]
    until: Until,
    /// For how long at most
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_span, default_value = WAIT)]
    wait: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Until {
    /// MySQL has the order
    Confirmed,
    /// It is paid
    Paid,
}

impl From<Until> for WaitTarget {
    fn from(until: Until) -> Self {
        match until {
            Until::Confirmed => Self::Confirmed,
            Until::Paid => Self::Paid,
        }
    }
}

impl PartitionCommand for OrderWaitArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Order(self.order, self.voucher)
    }

    /// Waits.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let OrderWaitArgs { order, voucher, until, wait, output } = *self;
        let request = WaitRequest { order, voucher, until: until.into(), wait };
        let mut lookup = OrderLookup::connect(stores).await?;
        let (mut is_told, began) = (false, Instant::now());
        let (progress, end) = wait_for_order(&mut lookup, &request, |progress| {
            // The first looks cannot tell yet how fast the queue moves.
            if !is_told && (began.elapsed() >= text::WITHOUT_RATE || text::has_whole_estimate(progress)) {
                is_told = true;
                print_note(&text::waits(progress, request.until, wait));
            }
        })
        .await?;
        output.print(&progress, |progress| text::told(progress, end))?;
        Ok(exit(progress.state, end))
    }
}

fn exit(state: OrderState, end: WaitEnd) -> Exit {
    match (end, state) {
        (WaitEnd::Reached, _) => Exit::Ok,
        (WaitEnd::Ended, OrderState::Refused) => Exit::OrderRefused,
        (WaitEnd::Ended, OrderState::Expired) => Exit::OrderExpired,
        (WaitEnd::Ended, OrderState::Dead) => Exit::OrderDead,
        (WaitEnd::Ended, _) => Exit::OrderCancelled,
        (WaitEnd::TimeOver, OrderState::Unknown) => Exit::No,
        (WaitEnd::TimeOver, _) => Exit::TimeOver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_exit_code() {
        for (state, code) in [
            (OrderState::Waiting, 11),
            (OrderState::Confirmed, 0),
            (OrderState::Paid, 0),
            (OrderState::Used, 0),
            (OrderState::Refunding, 0),
            (OrderState::Refunded, 8),
            (OrderState::Cancelled, 8),
            (OrderState::Expired, 9),
            (OrderState::Refused, 7),
            (OrderState::Released, 8),
            (OrderState::Dead, 10),
            (OrderState::Contradictory, 11),
            (OrderState::Unsure, 11),
            (OrderState::Unknown, 1),
        ] {
            let end = WaitTarget::Confirmed.ends_with(state, false).unwrap_or(WaitEnd::TimeOver);
            assert_eq!(exit(state, end) as i32, code, "{state:?}");
        }
        assert_eq!(exit(OrderState::Confirmed, WaitEnd::TimeOver), Exit::TimeOver, "it was to be paid");
    }
}
