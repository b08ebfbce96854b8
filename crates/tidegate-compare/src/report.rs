//! The report of a comparison.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    difference::Difference,
    limit_counters::NotCompared,
    reconciled::{DifferenceKind, Reconciled},
    totals::VoucherTotals,
};
use serde::Serialize;
use tidegate_orders::VoucherId;

/// The largest number of differences of a kind that are listed for a voucher.
const LISTED: usize = 20;
/// The largest number of vouchers whose memory is kept: each becomes a label.
const MEASURED: usize = 50;

/// The results of comparing the orders and stocks in Redis and MySQL.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// The time when the comparison began, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The duration of the comparison, in milliseconds.
    pub took_ms: u64,
    /// The number of journal notes (fields of the Redis hash of orders) and stream entries that were compared.
    pub redis_orders: u64,
    /// The number of MySQL rows that were compared.
    pub mysql_orders: u64,
    /// The number of times that both stores were read. It is above 1 only if there are very many differences.
    pub passes: u64,
    /// The results of each compared voucher, in ascending order.
    pub vouchers: Vec<VoucherComparison>,
    /// The limit counters that were not compared. They do not count as differences.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

/// The results of a comparison for one voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherComparison {
    /// The sums of the voucher's units and orders in Redis and MySQL.
    #[serde(flatten)]
    pub totals: VoucherTotals,
    /// The differences of the voucher, by kind.
    pub differences: Vec<KindCount>,
}

impl VoucherComparison {
    /// Whether the comparison found no failure of the voucher, and read all its data.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.has_right_orders() && self.totals.window.is_none()
    }

    /// Whether the orders and stocks of the voucher agree, and all its data was read. Its window may differ.
    #[must_use]
    pub fn has_right_orders(&self) -> bool {
        let mut failures = self.differences.iter().filter(|count| count.kind.is_failure());
        let agrees = failures.all(|count| count.kind == DifferenceKind::Window);
        agrees && self.totals.redis.unreadable.is_none() && !self.totals.redis.is_unsure
    }
}

/// The differences of one kind, with their number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// The kind of the counted differences.
    pub kind: DifferenceKind,
    /// The number of orders, users or stocks with a difference of this kind.
    pub total: u64,
    /// The units of all differences of this kind.
    pub units: i64,
    /// The first 20 differences of this kind.
    pub first: Vec<Difference>,
}

impl ComparisonReport {
    /// Whether the comparison found no failure. Differences that other programs may cause are no failures: see
    /// [`DifferenceKind::is_failure`].
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.vouchers.iter().all(VoucherComparison::is_clean)
    }

    /// The number of differences of each kind, for all vouchers together.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<DifferenceKind, u64> {
        let mut counts = BTreeMap::new();
        for count in self.vouchers.iter().flat_map(|voucher| &voucher.differences) {
            *counts.entry(count.kind).or_default() += count.total;
        }
        counts
    }

    /// The memory of the vouchers with the highest ids.
    fn voucher_bytes(&self) -> BTreeMap<String, u64> {
        let latest = self.vouchers.iter().rev();
        let bytes = latest.filter_map(|it| Some((it.totals.voucher.to_string(), it.totals.redis.bytes?)));
        bytes.take(MEASURED).collect()
    }

    /// The result to store in Redis. It also includes values of the previous stored result.
    #[must_use]
    pub fn outcome(&self, before: Option<Reconciled>) -> Reconciled {
        let before = before.unwrap_or_default();
        let at_ms = self.at_ms.saturating_add(i64::try_from(self.took_ms).unwrap_or(0));
        let counts: BTreeMap<String, u64> =
            self.counts().into_iter().map(|(kind, count)| (kind.word().to_owned(), count)).collect();
        let stands = |(kind, count): (&String, &u64)| {
            let both = *before.counts.get(kind)?.min(count);
            Some((kind.clone(), both))
        };
        let standing = counts.iter().filter_map(stands).collect();
        let totals = self.vouchers.iter().map(|voucher| &voucher.totals);
        let unread = totals
            .clone()
            .filter(|totals| totals.redis.unreadable.is_some() || totals.redis.is_unsure)
            .count();
        Reconciled {
            at_ms,
            took_ms: self.took_ms,
            clean_at_ms: if self.is_clean() { Some(at_ms) } else { before.clean_at_ms },
            counts,
            unread: unread as u64,
            standing,
            removed: before.removed,
            units_to_deduct: totals.map(|totals| totals.open.in_flight_units + totals.open.dead_units).sum(),
            compacted_before_ms: before.compacted_before_ms,
            voucher_bytes: self.voucher_bytes(),
        }
    }
}

/// The counter of differences, by voucher and kind.
#[derive(Debug, Default)]
pub(crate) struct Tally(BTreeMap<(VoucherId, DifferenceKind), KindCount>);

impl Tally {
    pub(crate) fn add(&mut self, difference: Difference) {
        let count = self.of(difference.voucher, difference.kind);
        count.total += 1;
        count.units += difference.units;
        if count.first.len() < LISTED {
            count.first.push(difference);
        }
    }

    /// Adds differences of a kind that are only counted.
    pub(crate) fn add_many(&mut self, voucher: VoucherId, kind: DifferenceKind, (total, units): (u64, i64)) {
        let count = self.of(voucher, kind);
        (count.total, count.units) = (count.total + total, count.units + units);
    }

    fn of(&mut self, voucher: VoucherId, kind: DifferenceKind) -> &mut KindCount {
        let none = KindCount { kind, total: 0, units: 0, first: Vec::new() };
        self.0.entry((voucher, kind)).or_insert(none)
    }

    pub(crate) fn into_comparisons(self, totals: Vec<VoucherTotals>) -> Vec<VoucherComparison> {
        let mut differences: BTreeMap<VoucherId, Vec<KindCount>> = BTreeMap::new();
        for ((voucher, _), count) in self.0 {
            differences.entry(voucher).or_default().push(count);
        }
        let look = |totals: VoucherTotals| VoucherComparison {
            differences: differences.remove(&totals.voucher).unwrap_or_default(),
            totals,
        };
        totals.into_iter().map(look).collect()
    }
}
