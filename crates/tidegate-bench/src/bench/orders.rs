//! The orders of a measurement. Each order is new, and its user has no order yet. Users come in random order, as in a
//! rush: each falls into another part of the unique key.

use std::ops::Range;

use anyhow::{Context, Result};

use super::resp::Resp;

/// The first order id. Ids have 18 digits, like real ones.
pub const FIRST_ID: i64 = 600_000_000_000_000_000;
/// The first number of new orders; smaller ones belong to orders that a table holds before.
pub const FIRST_NEW: i64 = 20_000_000;
/// An odd number, so that `n * SPREAD mod 2^40` differs for each n below 2^40.
pub const SPREAD: i64 = 0x9E_3779_B97F;
pub const USERS: i64 = 1 << 40;

const PIPELINE: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub struct NewOrder {
    pub id: i64,
    pub user: i64,
    pub voucher: i64,
}

/// Orders with consecutive numbers for vouchers 1 ..= `vouchers`.
#[derive(Clone, Debug)]
pub struct Orders {
    numbers: Range<i64>,
    vouchers: i64,
}

impl Orders {
    pub fn len(&self) -> usize {
        usize::try_from(self.numbers.end - self.numbers.start).unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = NewOrder> + use<> {
        let vouchers = self.vouchers;
        self.numbers.clone().map(move |number| NewOrder {
            id: FIRST_ID + number,
            user: 1 + (number.wrapping_mul(SPREAD) & (USERS - 1)),
            voucher: 1 + number.wrapping_mul(7_919) % vouchers,
        })
    }

    /// The first and the last order id.
    pub fn ids(&self) -> (i64, i64) {
        (FIRST_ID + self.numbers.start, FIRST_ID + self.numbers.end - 1)
    }

    /// The orders in parts of `size`; the last part may be smaller.
    pub fn chunks(&self, size: usize) -> Vec<Self> {
        let size = size.max(1);
        let part = |at: i64| {
            let end = self.numbers.end.min(at + size as i64);
            Self { numbers: at..end, vouchers: self.vouchers }
        };
        self.numbers.clone().step_by(size).map(part).collect()
    }
}

/// A source of numbers. A run uses each number once.
#[derive(Debug)]
pub struct Numbers {
    next: i64,
}

impl Numbers {
    pub fn new() -> Self {
        Self { next: FIRST_NEW }
    }

    pub fn take(&mut self, count: usize, vouchers: i64) -> Orders {
        let first = self.next;
        self.next += count as i64;
        Orders { numbers: first..self.next, vouchers }
    }
}

/// Appends orders to a stream, pipelined, and returns the id of the last entry.
pub async fn fill(redis: &mut Resp, stream: &str, orders: &Orders) -> Result<String> {
    let mut last = None;
    for part in orders.chunks(PIPELINE) {
        for order in part.iter() {
            let [id, user, voucher] = [order.id, order.user, order.voucher].map(|number| number.to_string());
            redis.queue(&["XADD", stream, "*", "userId", &user, "voucherId", &voucher, "id", &id]);
        }
        redis.flush().await?;
        for _ in 0..part.len() {
            last = Some(redis.receive().await?);
        }
    }
    Ok(last.context("No orders to append")?.text().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_orders_have_the_same_user() {
        let orders = Numbers::new().take(100_000, 100);
        let users: HashSet<i64> = orders.iter().map(|order| order.user).collect();
        assert_eq!(users.len(), 100_000);
        assert!(orders.iter().all(|order| order.user > 0 && (1..=100).contains(&order.voucher)));
    }

    #[test]
    fn chunks_cover_all_orders_once() {
        let orders = Numbers::new().take(1_001, 1);
        let chunks = orders.chunks(500);
        assert_eq!(chunks.iter().map(Orders::len).collect::<Vec<_>>(), [500, 500, 1]);
        assert_eq!(chunks.iter().flat_map(Orders::iter).count(), 1_001);
    }
}
