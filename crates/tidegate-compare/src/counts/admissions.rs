//! All admissions, sorted, so that an order is found among millions without an index.

use tidegate_orders::{OrderId, VoucherId, records::OrderRow};
use tidegate_stream::EntryId;

use super::admission::Admission;

/// The key of an order. It needs the voucher, because an id may have been admitted for several vouchers.
pub(crate) type OrderKey = (VoucherId, OrderId);

#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// The admissions, sorted by order, voucher and entry, except the last `unsorted`.
    all: Vec<Admission>,
    unsorted: usize,
}

impl Admissions {
    /// Adds an admission, which is not found before [`Admissions::sort`].
    pub(super) fn push(&mut self, admission: Admission) {
        self.all.push(admission);
        self.unsorted += 1;
    }

    /// Sorts the admissions that were added last.
    pub(super) fn sort(&mut self) {
        if self.unsorted > 0 {
            self.all.sort_unstable_by_key(|admission| (admission.order, admission.voucher, admission.entry));
            self.unsorted = 0;
        }
    }

    /// Notes that an entry became a dead letter. False: the entry is unknown.
    pub(super) fn bury(&mut self, entry: EntryId, key: OrderKey) -> bool {
        let mut is_known = false;
        for admission in self.of(key).filter(|admission| admission.entry == entry) {
            admission.bury();
            is_known = true;
        }
        is_known
    }

    /// Compares a row with the admissions of its id. False: Redis knows none for its voucher.
    pub(super) fn take_row(&mut self, row: &OrderRow) -> bool {
        let mut is_known = false;
        for admission in self.of_order(row.order) {
            admission.take_row(row);
            is_known |= admission.voucher.get() == row.voucher;
        }
        is_known
    }

    /// All admissions, in any order.
    pub(super) fn all(&mut self) -> &mut [Admission] {
        &mut self.all
    }

    /// All admissions, sorted, so that the admissions of an order and voucher follow each other.
    pub(super) fn into_sorted(mut self) -> Vec<Admission> {
        self.sort();
        self.all
    }

    pub(super) fn of(&mut self, (voucher, order): OrderKey) -> impl Iterator<Item = &mut Admission> {
        self.of_order(order).iter_mut().filter(move |admission| admission.voucher == voucher)
    }

    fn of_order(&mut self, order: OrderId) -> &mut [Admission] {
        let sorted = self.all.len() - self.unsorted;
        let sorted = &mut self.all[..sorted];
        let from = sorted.partition_point(|admission| admission.order < order);
        let length = sorted[from..].iter().take_while(|admission| admission.order == order).count();
        &mut sorted[from..from + length]
    }
}
