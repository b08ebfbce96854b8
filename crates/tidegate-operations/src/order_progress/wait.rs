//! Reads an order repeatedly, until it reaches the state that the caller waits for.

use std::time::Duration;

use anyhow::Context;
use tidegate_orders::{OrderId, OrderState, VoucherId};
use tidegate_stream::Backoff;
use tokio::time::{Instant, sleep};

use super::{OrderLookup, OrderProgress, WatchedOrder};

/// The first and the longest wait between two reads.
const LOOK_WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// The state of an order that ends the wait of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// MySQL has the row of the order.
    Confirmed,
    /// The order has been paid.
    Paid,
}

/// The reason why the wait for an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The order is in the expected state, or further.
    Reached,
    /// The order ended in another state, and will not reach the expected state.
    Ended,
    /// The waiting time was over.
    TimeOver,
}

/// The request to wait for an order, with the target state and the time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The id of the order.
    pub order: OrderId,
    /// The voucher of the order; None: the caller does not know the voucher, so that several vouchers must be searched.
    pub voucher: Option<VoucherId>,
    /// The state of the order that ends the wait.
    pub until: WaitTarget,
    /// The longest time to wait.
    pub wait: Duration,
}

impl WaitTarget {
    /// Returns the result of the wait if the order's state ends the wait; None: the wait continues. A cancelled order
    /// ends every wait, even if a payment arrives later.
    #[must_use]
    pub fn ends_with(self, state: OrderState, was_cancelled: bool) -> Option<WaitEnd> {
        match state {
            OrderState::Refunding if was_cancelled => Some(WaitEnd::Ended),
            // The order may still be paid, or paid again.
            OrderState::Confirmed | OrderState::Refunding if self == Self::Paid => None,
            OrderState::Confirmed | OrderState::Paid | OrderState::Used | OrderState::Refunding => {
                Some(WaitEnd::Reached)
            }
            OrderState::Refunded
            | OrderState::Cancelled
            | OrderState::Expired
            | OrderState::Refused
            | OrderState::Released
            | OrderState::Dead => Some(WaitEnd::Ended),
            OrderState::Waiting | OrderState::Contradictory | OrderState::Unsure | OrderState::Unknown => {
                None
            }
        }
    }
}

/// Reads the order repeatedly until the order reaches the target state, the order ends in another state, or the time
/// limit is over. Reads the order at least once. Calls `told` with the result of each read after which the wait
/// continues.
///
/// # Errors
/// If a store did not answer the last read. Earlier unanswered reads are no error.
pub async fn wait_for_order(
    lookup: &mut OrderLookup,
    request: &WaitRequest,
    mut told: impl FnMut(&OrderProgress),
) -> anyhow::Result<(OrderProgress, WaitEnd)> {
    let began = Instant::now();
    let mut waits = Backoff::new(LOOK_WAITS[0], LOOK_WAITS[1]);
    let mut orders = [WatchedOrder::new(request.order, request.voucher)];
    loop {
        let looked = lookup.read(&mut orders).await.map(|mut all| all.pop());
        let left = request.wait.saturating_sub(began.elapsed());
        match looked {
            Ok(Some(progress)) => match request.until.ends_with(progress.state, progress.was_cancelled) {
                Some(end) => return Ok((progress, end)),
                None if left.is_zero() => return Ok((progress, WaitEnd::TimeOver)),
                None => told(&progress),
            },
            // Workers also wait for a store that is unavailable.
            Err(_) | Ok(None) if !left.is_zero() => {}
            Err(error) => return Err(error).context("Failed to read the state of the order"),
            Ok(None) => anyhow::bail!("Failed to read the state of the order"),
        }
        sleep(waits.next_wait().min(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_where_nothing_more_is_to_come() {
        for state in OrderState::ALL {
            let confirmed = WaitTarget::Confirmed.ends_with(state, false);
            let paid = WaitTarget::Paid.ends_with(state, false);
            if matches!(state, OrderState::Confirmed | OrderState::Refunding) {
                assert_eq!((confirmed, paid), (Some(WaitEnd::Reached), None));
            } else {
                assert_eq!(confirmed, paid, "{state:?}");
            }
            if state.is_final() {
                assert!(confirmed.is_some(), "{state:?}");
            }
        }
        assert_eq!(WaitTarget::Confirmed.ends_with(OrderState::Waiting, false), None);
        assert_eq!(WaitTarget::Paid.ends_with(OrderState::Dead, false), Some(WaitEnd::Ended));
        for was_cancelled in [false, true] {
            let refunded = WaitTarget::Paid.ends_with(OrderState::Refunded, was_cancelled);
            assert_eq!(refunded, Some(WaitEnd::Ended), "nobody ships it");
        }
        let refunding = WaitTarget::Paid.ends_with(OrderState::Refunding, true);
        assert_eq!(refunding, Some(WaitEnd::Ended), "a late payment");
    }
}
