//! Looks again and again, until an order is where somebody waits for it.

use std::time::Duration;

use anyhow::Context;
use tidegate_orders::{OrderId, OrderState, VoucherId};
use tidegate_stream::Backoff;
use tokio::time::{Instant, sleep};

use super::{OrderLookup, OrderProgress, WatchedOrder};

/// The first wait between two looks, and the longest.
const LOOK_WAITS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitTarget {
    /// MySQL has the order.
    Confirmed,
    /// It is paid.
    Paid,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The order is where it was waited for, or further.
    Reached,
    /// It ended elsewhere, and will not get there.
    Ended,
    /// The time was over.
    TimeOver,
}

/// Which order is waited for, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The order.
    pub order: OrderId,
    /// Its voucher, where it is known: that saves a search.
    pub voucher: Option<VoucherId>,
    /// Until what.
    pub until: WaitTarget,
    /// For how long at most.
    pub wait: Duration,
}

impl WaitTarget {
    /// How a wait ends for an order in this state; None: it goes on. One that was cancelled is never sold again, whatever was
    /// paid for it later.
    #[must_use]
    pub fn ends_with(self, state: OrderState, was_cancelled: bool) -> Option<WaitEnd> {
        match state {
            OrderState::Refunding if was_cancelled => Some(WaitEnd::Ended),
            // It may yet be paid, or paid again.
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

/// Looks until the order is there, has ended elsewhere, or the time is over; at least once. Each look that leads to another
/// is told to `told`.
///
/// # Errors
/// When a store did not answer the last look. One that is back by then is no error.
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
            // Workers wait for a store that is away, too.
            Err(_) | Ok(None) if !left.is_zero() => {}
            Err(error) => return Err(error).context("Failed to look where the order is"),
            Ok(None) => anyhow::bail!("Failed to look where the order is"),
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
