//! The remaining work of a batch: parts of one transaction each, and the outcomes of the other orders.

use std::collections::BTreeSet;

use super::{Incoming, verdict::Contention};
use crate::order::{OrderId, VoucherId};

/// An item of a batch.
pub(super) trait Item {
    /// The voucher whose row the item may need.
    fn voucher(&self) -> VoucherId;
    /// The order that the item is, or is about.
    fn order(&self) -> OrderId;
}

impl Item for Incoming {
    fn voucher(&self) -> VoucherId {
        self.order.voucher
    }

    fn order(&self) -> OrderId {
        self.order.id
    }
}

/// The items of a batch, with an outcome for each.
pub(super) struct WorkList<'a, T, V> {
    items: &'a [T],
    outcomes: Vec<V>,
    /// The parts as places in the batch. The last part is the next, so that parts run in stream order.
    parts: Vec<Vec<usize>>,
}

/// Items that are written in one transaction, in stream order. Never empty.
pub(super) struct Part<'a, T> {
    places: Vec<usize>,
    pub items: Vec<&'a T>,
}

impl<T: Item> Part<'_, T> {
    pub fn is_single(&self) -> bool {
        self.places.len() == 1
    }

    pub fn vouchers(&self) -> BTreeSet<VoucherId> {
        self.items.iter().map(|item| item.voucher()).collect()
    }
}

impl<'a, T: Item, V: Clone> WorkList<'a, T, V> {
    /// Creates a list of the parts of a batch that must still be written. At first, the whole batch is one part.
    /// `unfinished` is the outcome of every item that is not finished.
    pub fn new(items: &'a [T], unfinished: V) -> Self {
        Self { items, outcomes: vec![unfinished; items.len()], parts: vec![(0..items.len()).collect()] }
    }

    pub fn next(&mut self) -> Option<Part<'a, T>> {
        let places = self.parts.pop()?;
        if places.is_empty() {
            return self.next();
        }
        let items = places.iter().map(|at| &self.items[*at]).collect();
        Some(Part { places, items })
    }

    /// Sets the outcomes of a part of the batch, one for each item.
    pub fn finish(&mut self, part: &Part<'_, T>, outcomes: impl IntoIterator<Item = V>) {
        for (at, outcome) in part.places.iter().zip(outcomes) {
            self.outcomes[*at] = outcome;
        }
    }

    /// Splits a part of the batch: its earlier half runs next, then its later half.
    pub fn halve(&mut self, part: Part<'_, T>) {
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

impl<T: Item, V: Clone + From<Contention>> WorkList<'_, T, V> {
    /// Sets aside (leaves for a later try) the items of the vouchers in `held`, because another session has locked a
    /// row that these vouchers need. The remaining items are tried again. If `held` is empty, another row is locked:
    /// the part is then split, to find which order needs that row.
    pub fn set_aside(&mut self, part: Part<'_, T>, held: &BTreeSet<VoucherId>) {
        let (waiting, free): (Vec<usize>, Vec<usize>) =
            part.places.into_iter().partition(|at| held.contains(&self.items[*at].voucher()));
        for at in &waiting {
            self.outcomes[*at] = Contention::Voucher(self.items[*at].voucher()).into();
        }
        match free.as_slice() {
            _ if !waiting.is_empty() => self.parts.push(free),
            [at] => self.outcomes[*at] = Contention::Row(self.items[*at].order()).into(),
            _ => self.halve_places(free),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_stream::EntryId;

    use super::*;
    use crate::{
        ledger::Verdict,
        order::{Order, Quantity, Slot},
    };

    /// Orders 1, 2, ... for these vouchers.
    fn orders<const N: usize>(vouchers: [i64; N]) -> Vec<Incoming> {
        let order = |(id, voucher): (i64, i64)| Order {
            id: id.try_into().unwrap(),
            user: id.try_into().unwrap(),
            voucher: voucher.try_into().unwrap(),
            quantity: Quantity::ONE,
            slot: Slot::FIRST,
            uses: None,
        };
        (1..).zip(vouchers).map(|of| Incoming { order: order(of), entry: EntryId::MIN }).collect()
    }

    fn ids(part: &Part<'_, Incoming>) -> Vec<i64> {
        part.items.iter().map(|incoming| incoming.order.id.get()).collect()
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
        assert!(WorkList::<Incoming, _>::new(&[], 0).next().is_none());
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
