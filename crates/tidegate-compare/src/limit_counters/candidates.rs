//! The fields whose counts seem wrong, each with the uses that orders hold. Pure.
//!
//! A field is read at one time, and the orders after it. So an order that was noted later does not count, and an order
//! that was released later still does. For an order that was noted in the same millisecond, it is unknown whether the
//! field counts it.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use tidegate_orders::{Uses, scripts::UsesSnapshot};

use super::{
    orders::{OrderWithUses, ReleasedOrder},
    owners::{Count, Owners, slots_field, user_of},
};

/// A field, with the place of its owner.
pub(super) type At = (usize, String);

/// The uses of a window that orders hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    orders: u64,
    units: u64,
    /// The uses that the field may or may not count.
    more_orders: u64,
    more_units: u64,
    latest_ms: i64,
}

/// A field with its stored value and the uses that orders hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidate {
    stored: Option<String>,
    at_ms: i64,
    windows: BTreeMap<u64, Tally>,
    slots: u32,
    /// Orders and units that the field may or may not count.
    unknown: (u64, u64),
}

/// The difference between a count and the uses of orders, positive if the count is too high. It has a lower and an
/// upper bound, because of uses that the field may or may not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drift {
    least: i64,
    most: i64,
}

/// The fault of a field. If two checks find the same, the fault is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The drift of the orders; for slots, the drift of the slots' number.
    pub(super) orders: Drift,
    pub(super) units: Drift,
    pub(super) is_unreadable: bool,
    /// The amount by which orders hold more than the rule allows.
    pub(super) passed: Option<u64>,
}

/// The stored and the right value of a field, with its fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) stored: Option<String>,
    /// The uses that orders hold, as a lower bound.
    pub(super) held: Option<String>,
    /// Whether that value is exact.
    pub(super) is_exact: bool,
    /// The time when the last order of these uses was made.
    pub(super) latest_ms: i64,
}

impl Drift {
    /// Computes the drift from the count, the uses that orders hold, and the further uses that they may hold.
    fn of(counted: u64, (held, more): (u64, u64)) -> Self {
        let above = |held: u64| counted.cast_signed().saturating_sub(held.cast_signed());
        Self { least: above(held.saturating_add(more)), most: above(held) }
    }

    /// The part of the drift that is certain.
    pub(super) fn certain(self) -> i64 {
        self.least.max(0) + self.most.min(0)
    }

    const fn may_be(self, other: Self) -> bool {
        self.least <= other.most && other.least <= self.most
    }
}

impl Verdict {
    pub(super) fn is_mismatch(self) -> bool {
        self.orders.certain() != 0 || self.units.certain() != 0 || self.is_unreadable
    }

    /// Whether this verdict and another one may describe the same fault.
    pub(super) fn is_as(self, other: Self) -> bool {
        let is_same =
            self.is_unreadable == other.is_unreadable && self.passed.is_some() == other.passed.is_some();
        let is_mismatch = self.is_mismatch() == other.is_mismatch();
        is_same && is_mismatch && self.orders.may_be(other.orders) && self.units.may_be(other.units)
    }
}

/// The fields that may be wrong, by owner.
#[derive(Debug, Default)]
pub(super) struct Candidates(HashMap<usize, HashMap<String, Candidate>>);

impl Candidates {
    pub(super) fn new(fields: BTreeSet<At>) -> Self {
        let mut candidates = Self::default();
        for (owner, field) in fields {
            candidates.0.entry(owner).or_default().insert(field, Candidate::default());
        }
        candidates
    }

    /// The names of each owner's fields.
    pub(super) fn fields(&self) -> Vec<(usize, Vec<String>)> {
        self.0.iter().map(|(owner, fields)| (*owner, fields.keys().cloned().collect())).collect()
    }

    pub(super) fn set(&mut self, owner: usize, snapshot: UsesSnapshot) {
        for (field, stored) in snapshot.fields {
            if let Some(candidate) = self.get(owner, &field) {
                (candidate.stored, candidate.at_ms) = (stored, snapshot.at_ms);
            }
        }
    }

    fn get(&mut self, owner: usize, field: &str) -> Option<&mut Candidate> {
        self.0.get_mut(&owner)?.get_mut(field)
    }

    /// The time when the first of the fields was read.
    pub(super) fn first_ms(&self) -> i64 {
        let all = self.0.values().flat_map(HashMap::values);
        all.map(|candidate| candidate.at_ms).min().unwrap_or(i64::MAX)
    }

    /// Adds an order that holds its uses.
    pub(super) fn add(&mut self, order: &OrderWithUses, owners: &Owners) {
        let of_slots = owners.place_of_slots(order.voucher);
        if let Some(candidate) = of_slots.and_then(|place| self.get(place, &slots_field(order.user))) {
            match candidate.when(order) {
                Ordering::Less => candidate.slots |= 1 << (order.slot.get() - 1),
                Ordering::Equal => candidate.unknown.0 += 1,
                Ordering::Greater => {}
            }
        }
        for used in order.uses.iter().flat_map(Uses::iter) {
            let place = owners.place_of_use(order.voucher, used.campaign);
            let Some(candidate) = place.and_then(|place| self.get(place, &used.field())) else { continue };
            let when = candidate.when(order);
            let tally = candidate.windows.entry(used.window).or_default();
            tally.add(order.units, when);
            if when.is_lt() {
                tally.latest_ms = tally.latest_ms.max(order.made_ms.unwrap_or(0));
            }
        }
    }

    /// Adds an order that was released after a field was read, and so held its uses then. `uses` are its uses; None:
    /// they are unknown.
    pub(super) fn add_released(&mut self, order: &ReleasedOrder, uses: Option<&Uses>, owners: &Owners) {
        let of_slots = owners.place_of_slots(order.voucher);
        if let Some(candidate) = of_slots.and_then(|place| self.get(place, &slots_field(order.user))) {
            // The slot that the order had is unknown.
            candidate.unknown.0 += u64::from(order.released_ms >= candidate.at_ms);
        }
        let Some(uses) = uses else {
            for candidate in self.0.values_mut().flat_map(HashMap::values_mut) {
                if order.released_ms >= candidate.at_ms && order.admitted_ms <= candidate.at_ms {
                    candidate.unknown = (candidate.unknown.0 + 1, candidate.unknown.1 + order.units);
                }
            }
            return;
        };
        for used in uses.iter() {
            let place = owners.place_of_use(order.voucher, used.campaign);
            let Some(candidate) = place.and_then(|place| self.get(place, &used.field())) else { continue };
            let at_ms = candidate.at_ms;
            if order.released_ms < at_ms || order.admitted_ms > at_ms {
                continue;
            }
            let is_held = order.admitted_ms < at_ms && order.released_ms > at_ms;
            let when = if is_held { Ordering::Less } else { Ordering::Equal };
            candidate.windows.entry(used.window).or_default().add(order.units, when);
        }
    }

    /// The faults of all fields.
    pub(super) fn judged(&self, owners: &Owners, now_ms: i64) -> Vec<(At, Judged)> {
        let fields = self.0.iter().flat_map(|(owner, fields)| fields.iter().map(move |it| (*owner, it)));
        let judge = |(owner, (field, candidate)): (usize, (&String, &Candidate))| {
            let judged = match user_of(field) {
                Some(_) => candidate.judge_slots(),
                None => candidate.judge((owner, field), owners, now_ms),
            };
            Some(((owner, field.clone()), judged?))
        };
        fields.filter_map(judge).collect()
    }
}

impl Candidate {
    /// The time of an order's note, compared with the read of the field: before it (or long ago), in the same
    /// millisecond, or later.
    fn when(&self, order: &OrderWithUses) -> Ordering {
        order.noted_ms.cmp(&Some(self.at_ms))
    }

    /// Judges a field of slots. None: it is right, or this is unknown.
    fn judge_slots(&self) -> Option<Judged> {
        let stored: Option<u32> = self.stored.as_ref().and_then(|stored| stored.parse().ok());
        let is_unreadable = self.stored.is_some() && stored.is_none();
        // A user without a field holds the first slot or none. Whether the user is a buyer is checked elsewhere.
        let is_fine = stored == Some(self.slots) || self.stored.is_none() && self.slots <= 1;
        if is_fine || self.unknown.0 > 0 {
            return None;
        }
        let orders = Drift::of(stored.unwrap_or(0).into(), (self.slots.into(), 0));
        let verdict = Verdict { orders, units: Drift::of(0, (0, 0)), is_unreadable, passed: None };
        let held = (self.slots > 0).then(|| self.slots.to_string());
        Some(Judged { verdict, stored: self.stored.clone(), held, is_exact: true, latest_ms: 0 })
    }

    fn judge(&self, (owner, field): (usize, &str), owners: &Owners, now_ms: i64) -> Option<Judged> {
        let is_running = |window: u64| owners.running(owner, field, window, now_ms).is_some();
        let count = self.stored.as_deref().map(Count::parse);
        let is_unreadable = count == Some(None);
        let count = count.flatten().filter(|count| is_running(count.window));
        let latest =
            self.windows.iter().rev().find(|(window, tally)| is_running(**window) && tally.orders > 0);
        let latest = latest.map(|(window, _)| *window);
        let window = latest.max(count.map(|count| count.window)).unwrap_or(0);
        let tally = self.windows.get(&window).copied().unwrap_or_default();
        let counted = count.filter(|count| count.window == window).unwrap_or_default();
        let (more_orders, more_units) =
            (tally.more_orders + self.unknown.0, tally.more_units + self.unknown.1);
        let held = Count { window, orders: tally.orders, units: tally.units };
        let rule = owners.get(owner).windows.rule_of(field)?;
        let verdict = Verdict {
            orders: Drift::of(counted.orders, (held.orders, more_orders)),
            units: Drift::of(counted.units, (held.units, more_units)),
            is_unreadable,
            passed: rule.is_passed_by(held.orders, held.units).then(|| {
                let over = |held: u64, most: Option<u64>| most.map_or(0, |most| held.saturating_sub(most));
                over(held.orders, rule.orders).max(over(held.units, rule.units))
            }),
        };
        Some(Judged {
            verdict,
            stored: self.stored.clone(),
            held: (held.orders > 0).then(|| held.text()),
            is_exact: (more_orders, more_units) == (0, 0),
            latest_ms: tally.latest_ms,
        })
    }
}

impl Tally {
    /// Adds an order that was noted before the field was read, in the same millisecond, or later.
    fn add(&mut self, units: u64, when: Ordering) {
        match when {
            Ordering::Less => (self.orders, self.units) = (self.orders + 1, self.units + units),
            Ordering::Equal => {
                (self.more_orders, self.more_units) = (self.more_orders + 1, self.more_units + units);
            }
            Ordering::Greater => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_counted_or_not_is_no_difference_and_a_drift_is_the_same_where_it_may_be() {
        let drift = Drift::of;
        for (counted, held, certain) in
            [(5, (5, 0), 0), (6, (5, 1), 0), (9, (5, 1), 3), (3, (5, 1), -2), (5, (4, 9), 0)]
        {
            assert_eq!(drift(counted, held).certain(), certain, "{counted} {held:?}");
        }
        let verdict =
            |orders| Verdict { orders, units: drift(0, (0, 0)), is_unreadable: false, passed: None };
        let thousand = verdict(drift(1_205, (200, 5)));
        assert!(
            thousand.is_as(verdict(drift(1_300, (298, 3))))
                && thousand.is_as(verdict(drift(1_300, (300, 0))))
        );
        let passed = |over| Verdict { passed: Some(over), ..thousand };
        assert!(passed(3).is_as(passed(4)) && !passed(3).is_as(thousand), "orders go on");
        assert!(
            !thousand.is_as(verdict(drift(1_300, (310, 1)))) && !thousand.is_as(verdict(drift(5, (5, 0))))
        );
    }
}
