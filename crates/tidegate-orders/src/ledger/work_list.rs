//! What is still to be done of a batch: parts that go in one transaction each, and what became of the other orders.

use std::collections::BTreeSet;

use super::{
    Incoming,
    verdict::{Contention, Verdict},
};
use crate::order::VoucherId;

/// The orders of a batch, with an outcome for each.
pub(super) struct WorkList<'a, V> {
    orders: &'a [Incoming],
    outcomes: Vec<V>,
    /// Places in the batch. The last part is the next, so that parts run in stream order.
    parts: Vec<Vec<usize>>,
}

/// Orders that go in one transaction, in stream order. Never empty.
pub(super) struct Part<'a> {
    places: Vec<usize>,
    pub orders: Vec<&'a Incoming>,
}

impl Part<'_> {
    pub fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    pub fn vouchers(&self) -> BTreeSet<VoucherId> {
        self.orders.iter().map(|incoming| incoming.order.voucher).collect()
    }
}

impl<'a, V: Clone> WorkList<'a, V> {
    /// All of a batch as one part. `unfinished` is the outcome of whatever is not finished.
    pub fn new(orders: &'a [Incoming], unfinished: V) -> Self {
        Self { orders, outcomes: vec![unfinished; orders.len()], parts: vec![(0..orders.len()).collect()] }
    }

    pub fn next(&mut self) -> Option<Part<'a>> {
        let places = self.parts.pop()?;
        if places.is_empty() {
            return self.next();
        }
        let orders = places.iter().map(|at| &self.orders[*at]).collect();
        Some(Part { places, orders })
    }

    /// The outcomes of a part, one an order.
    pub fn finish(&mut self, part: &Part<'_>, outcomes: impl IntoIterator<Item = V>) {
        for (at, outcome) in part.places.iter().zip(outcomes) {
            self.outcomes[*at] = outcome;
        }
    }

    /// Does the earlier half of a part next, then the later one.
    pub fn halve(&mut self, part: Part<'_>) {
        self.halve_places(part.places);
    }

    fn halve_places(&mut self, mut places: Vec<usize>) {
        let later = places.split_off(places.len() / 2);
        self.parts.extend([later, places]);
    }

    pub fn into_outcomes(self) -> Vec<V> {
        self.outcomes
    }
}

impl WorkList<'_, Verdict> {
    /// Somebody holds a row that a part needs. The orders of the `held` vouchers wait, and the others are done without them.
    /// Where no voucher is held, it is some other row: smaller parts tell whose.
    pub fn set_aside(&mut self, part: Part<'_>, held: &BTreeSet<VoucherId>) {
        let (waiting, free): (Vec<usize>, Vec<usize>) =
            part.places.into_iter().partition(|at| held.contains(&self.orders[*at].order.voucher));
        for at in &waiting {
            self.outcomes[*at] = Verdict::Contended(Contention::Voucher(self.orders[*at].order.voucher));
        }
        match free.as_slice() {
            _ if !waiting.is_empty() => self.parts.push(free),
            [at] => self.outcomes[*at] = Verdict::Contended(Contention::Row(self.orders[*at].order.id)),
            _ => self.halve_places(free),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::order::{Order, Quantity, Slot};

    /// Orders 1, 2, ... for these vouchers.
    fn orders<const N: usize>(vouchers: [i64; N]) -> Vec<Incoming> {
        let order = |(id, voucher): (i64, i64)| Order {
            id: id.try_into().unwrap(),
            user: id.try_into().unwrap(),
            voucher: voucher.try_into().unwrap(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
        };
        (1..).zip(vouchers).map(|of| Incoming { order: order(of), entry: EntryId::MIN }).collect()
    }

    fn ids(part: &Part<'_>) -> Vec<i64> {
        part.orders.iter().map(|incoming| incoming.order.id.get()).collect()
    }

    #[test]
    fn halves_run_in_stream_order_until_a_row_stands_alone() {
        let orders = orders([7, 7, 7]);
        let mut list = WorkList::new(&orders, 0);
        let mut seen = Vec::new();
        while let Some(part) = list.next() {
            seen.push(ids(&part));
            if part.is_single() { list.finish(&part, [seen.len()]) } else { list.halve(part) }
        }
        assert_eq!(seen, [vec![1, 2, 3], vec![1], vec![2, 3], vec![2], vec![3]]);
        assert_eq!(list.into_outcomes(), [2, 4, 5]);
        assert!(WorkList::new(&[], 0).next().is_none());
    }

    #[test]
    fn only_the_orders_of_a_held_voucher_wait_and_some_other_row_is_searched_by_halves() {
        let orders = orders([7, 8, 8]);
        let mut list = WorkList::new(&orders, Verdict::Created);
        let part = list.next().unwrap();
        list.set_aside(part, &BTreeSet::from([7.try_into().unwrap()]));
        for expected in [vec![2, 3], vec![2], vec![3]] {
            let part = list.next().unwrap();
            assert_eq!(ids(&part), expected);
            list.set_aside(part, &BTreeSet::new());
        }
        let row = |id: i64| Verdict::Contended(Contention::Row(id.try_into().unwrap()));
        let voucher = Verdict::Contended(Contention::Voucher(7.try_into().unwrap()));
        assert_eq!(list.into_outcomes(), [voucher, row(2), row(3)]);
    }
}
