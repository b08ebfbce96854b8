//! What a comparison found.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    totals::VoucherTotals,
    difference::Difference,
    limit_counters::NotCompared,
    reconciled::{DifferenceKind, Reconciled},
};
use serde::Serialize;
use tidegate_orders::VoucherId;

/// How many differences of a kind are listed for a voucher.
const LISTED: usize = 20;
/// Of so many vouchers it is kept how much memory they take: each is a label.
const MEASURED: usize = 50;

/// What a comparison found.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonReport {
    /// When it began, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// How long it took.
    pub took_ms: u64,
    /// Notes of journals, and entries of the stream, that were compared.
    pub redis_orders: u64,
    /// Rows of MySQL that they were compared with.
    pub mysql_orders: u64,
    /// How often both sides were read: more than once where very much is different.
    pub passes: u64,
    /// One for each voucher that was looked at, ascending.
    pub vouchers: Vec<VoucherComparison>,
    /// What is counted for limits, and nobody knows whether it is right. No difference.
    pub counters_not_compared: BTreeSet<NotCompared>,
}

/// One voucher.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherComparison {
    /// Its stocks.
    #[serde(flatten)]
    pub totals: VoucherTotals,
    /// What is different, by kind.
    pub differences: Vec<KindCount>,
}

impl VoucherComparison {
    /// Everything of it agrees that must.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let agrees = self.differences.iter().all(|count| !count.kind.is_failure());
        agrees && self.totals.redis.unreadable.is_none() && !self.totals.redis.is_unsure
    }
}

/// The differences of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KindCount {
    /// Which kind.
    pub kind: DifferenceKind,
    /// How many orders, users or stocks.
    pub total: u64,
    /// Their units.
    pub units: i64,
    /// The first 20 of them.
    pub first: Vec<Difference>,
}

impl ComparisonReport {
    /// Everything agrees that must. What somebody else is free to do is no failure: see [`DifferenceKind::is_failure`].
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.vouchers.iter().all(VoucherComparison::is_clean)
    }

    /// How many differences of each kind there are, of all vouchers.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<DifferenceKind, u64> {
        let mut counts = BTreeMap::new();
        for count in self.vouchers.iter().flat_map(|voucher| &voucher.differences) {
            *counts.entry(count.kind).or_default() += count.total;
        }
        counts
    }

    /// Of the vouchers with the highest ids.
    fn voucher_bytes(&self) -> BTreeMap<String, u64> {
        let latest = self.vouchers.iter().rev();
        let bytes = latest.filter_map(|it| Some((it.totals.voucher.to_string(), it.totals.redis.bytes?)));
        bytes.take(MEASURED).collect()
    }

    /// What is kept of it, after what is kept of the comparison before.
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
        let unread =
            totals.clone().filter(|totals| totals.redis.unreadable.is_some() || totals.redis.is_unsure).count();
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

/// Counts differences.
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

    /// More of a kind, of which no more is said.
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
