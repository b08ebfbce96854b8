//! The entries of a case, and the expected result in the end.

use anyhow::{Context, Result};

use super::case::Case;
use crate::bench::{orders::Orders, resp::Resp};

const PIPELINE: usize = 1_000;
/// A voucher that MySQL does not know.
const UNKNOWN: i64 = 999_999;
/// The distance of second orders and second entries from the ones that they repeat: whole batches lie between them.
const BEHIND: usize = 4_999;
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

/// One entry to be added.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The id of the order. None: an entry that cannot be an order.
    pub id: Option<i64>,
    /// The event of this order. None: the entry places the order.
    pub event: Option<&'static str>,
    pub user: i64,
    pub voucher: i64,
    pub quantity: i64,
    pub is_traced: bool,
}

/// All entries of a measurement.
pub struct Load {
    pub entries: Vec<Entry>,
    /// The orders that are rows in the end.
    pub rows: usize,
    /// The users whose locks another program holds.
    pub locked: Vec<i64>,
}

impl Load {
    /// The entries of `orders`, changed for the case.
    pub fn of(case: Case, orders: &Orders) -> Self {
        let plain = orders.iter().map(|order| Entry {
            id: Some(order.id),
            event: None,
            user: order.user,
            voucher: if case == Case::Expiring { 1 } else { order.voucher },
            quantity: 1,
            is_traced: false,
        });
        let mut load = Self { entries: plain.collect(), rows: orders.len(), locked: Vec::new() };
        let behind = BEHIND.min(orders.len() / 10).max(1);
        for at in 0..load.entries.len() {
            load.change(case, at, behind);
        }
        load.rows = case.mysql_stock(orders.len()).unwrap_or(load.rows);
        if case == Case::Paid {
            load.pay(behind);
        }
        load
    }

    /// Keeps the first half of the orders, and adds the payment of each, this many entries later.
    fn pay(&mut self, behind: usize) {
        let orders = self.entries[..self.entries.len() / 2].to_vec();
        let payments = orders.iter().map(|order| Entry { event: Some("paid"), ..*order });
        let (first, rest) = orders.split_at((behind / 2).min(orders.len()));
        let mut payments = payments.collect::<Vec<_>>().into_iter();
        let mixed = rest.iter().flat_map(|order| [Some(*order), payments.next()]).flatten();
        self.entries = first.iter().copied().chain(mixed.collect::<Vec<_>>()).chain(payments).collect();
        self.rows = orders.len();
    }

    fn change(&mut self, case: Case, at: usize, behind: usize) {
        let earlier = at.checked_sub(behind).map(|earlier| self.entries[earlier]);
        let (entry, is_hundredth) = (&mut self.entries[at], at % 100 == 99);
        match (case, earlier) {
            (Case::UnknownVoucher, _) if is_hundredth => entry.voucher = UNKNOWN,
            (Case::SecondOrders, Some(earlier)) if is_hundredth => entry.user = earlier.user,
            (Case::Twice, Some(earlier)) if at % 20 == 19 => *entry = earlier,
            (Case::Poison, _) if is_hundredth => entry.id = None,
            (Case::LockedUsers, _) if is_hundredth => {
                // Its row is written in the end, when the lock is gone.
                self.locked.push(entry.user);
                return;
            }
            (Case::Mixed, _) => {
                (entry.quantity, entry.is_traced) = (1 + at as i64 % 3, true);
                return;
            }
            _ => return,
        }
        self.rows -= 1;
    }
}

/// Appends entries to a stream, pipelined, and returns the id of the last one.
pub async fn fill(redis: &mut Resp, stream: &str, entries: &[Entry]) -> Result<String> {
    let mut last = None;
    for part in entries.chunks(PIPELINE) {
        for entry in part {
            put(redis, stream, entry, None);
        }
        redis.flush().await?;
        for _ in part {
            last = Some(redis.receive().await?);
        }
    }
    Ok(last.context("No entries to append")?.text().to_owned())
}

/// Queues the XADD of one entry, with another field of any text.
pub fn put(redis: &mut Resp, stream: &str, entry: &Entry, note: Option<&str>) {
    let [user, voucher, quantity] =
        [entry.user, entry.voucher, entry.quantity].map(|number| number.to_string());
    let id = entry.id.map(|id| id.to_string());
    let mut words = vec!["XADD", stream, "*", "userId", &user, "voucherId", &voucher];
    match (&id, entry.event) {
        (Some(id), Some(event)) => words.extend(["event", event, "orderId", id.as_str()]),
        (Some(id), None) => words.extend(["id", id.as_str()]),
        (None, _) => {}
    }
    if entry.quantity != 1 {
        words.extend(["quantity", quantity.as_str()]);
    }
    if entry.is_traced {
        words.extend(["traceparent", TRACEPARENT]);
    }
    if let Some(note) = note {
        words.extend(["note", note]);
    }
    redis.queue(&words);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::bench::orders::Numbers;

    #[test]
    fn what_is_to_become_a_row_is_counted_right() {
        for case in Case::ALL.into_iter().chain(Case::OF_LIFE) {
            let orders = Numbers::new().take(10_000, case.vouchers());
            let load = Load::of(case, &orders);
            assert_eq!(load.entries.len(), 10_000);
            let payments = load.entries.iter().filter(|entry| entry.event.is_some()).count();
            assert_eq!(payments, if case == Case::Paid { 5_000 } else { 0 });
            let readable = load.entries.iter().filter(|entry| entry.id.is_some() && entry.voucher != UNKNOWN);
            let users: HashSet<(i64, i64)> = readable.map(|entry| (entry.user, entry.voucher)).collect();
            let wanted = case.mysql_stock(10_000).unwrap_or(users.len());
            assert_eq!(load.rows, wanted, "{case:?}");
            assert_eq!(load.locked.len(), if case == Case::LockedUsers { 100 } else { 0 });
        }
    }
}
