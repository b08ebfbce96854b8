//! The command `tidegate order wait`: waits until an order is written or paid, and prints its state.

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
    output::{OutputArgs, print_note},
    scope::{PartitionCommand, Scope},
    times,
};

/// The default time to wait.
const WAIT: &str = "30s";

const EXAMPLES: &str = "\
Examples:
  tidegate order wait 693106606080001 --voucher 7
  tidegate order wait 693106606080001 --until paid --for 15m
  tidegate order wait 693106606080001 --for 0s --json | jq -r .state

Queries MySQL. While MySQL does not know the order, the command also queries Redis. Without --voucher, it searches only
the journals (the Redis hashes of all admissions) of the 16 vouchers with the highest ids. When it begins to wait, it
prints how many entries are before the order, and estimates when a worker will write the order.

States: waiting, confirmed (written, not paid), paid, used, refunding, refunded, cancelled, expired, refused, released,
dead, contradictory, unsure, unknown.

Exit codes:
  0   the order has reached the state of --until
  1   when the time ended, no store knew the order
  7   the order was refused
  8   the order was cancelled, released or refunded
  9   the order has expired
  10  the order is a dead letter
  11  when the time ended, the order was still waiting

With --for 0s, the command checks once.";

/// The arguments of `tidegate order wait`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OrderWaitArgs {
    /// The id of the order
    #[arg(value_name = "ORDER")]
    pub order: OrderId,
    /// The voucher of the order, if you know it: avoids a search
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// The state to wait for
    #[arg(long, value_name = "STATE", default_value = "confirmed")]
    until: Until,
    /// The longest time to wait
    #[arg(long = "for", value_name = "SPAN", value_parser = times::parse_span, default_value = WAIT)]
    wait: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

/// The states that the command can wait for.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Until {
    /// The order is written in MySQL
    Confirmed,
    /// The payment of the order is recorded
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

    /// Waits for one order.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let OrderWaitArgs { order, voucher, until, wait, output } = *self;
        let request = WaitRequest { order, voucher, until: until.into(), wait };
        let mut lookup = OrderLookup::connect(stores).await?;
        let (mut is_told, began) = (false, Instant::now());
        let (progress, end) = wait_for_order(&mut lookup, &request, |progress| {
            // The first readings cannot show yet how fast the queue moves.
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
