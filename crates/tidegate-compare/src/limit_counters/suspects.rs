//! The search for fields that may be wrong: it adds up both sides, and reads them again for the names of the fields
//! that differ.

use std::collections::BTreeSet;

use tidegate_orders::{LimitOwner, Uses, VoucherId, scripts::ScanPages};

use super::{
    Group, LimitCounterCheck, NotComparedReason,
    candidates::At,
    orders::OrderNote,
    owners::{Count, Owners, slots_field, user_of},
    sketch::{Field, Sketch},
};
use crate::CompareError;

/// The largest number of fields that are checked one by one: about 200 bytes each. The next comparison finds the
/// others.
const MOST_CANDIDATES: usize = 50_000;
/// The largest number of further fields that seem right and whose limit is exceeded: they must not keep others from
/// being checked.
const MOST_PASSED: usize = 10_000;

/// The fields that may be wrong.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    pub(super) fields: BTreeSet<At>,
    /// The places of owners with more suspects than are kept.
    pub(super) cut: BTreeSet<usize>,
}

impl Suspects {
    fn insert(&mut self, Field { owner, name }: Field<'_>, most: usize) {
        let at = (owner, name.to_owned());
        if self.fields.len() < most {
            self.fields.insert(at);
        } else if !self.fields.contains(&at) {
            self.cut.insert(owner);
        }
    }
}

impl LimitCounterCheck<'_> {
    /// Finds the fields whose count may be wrong or exceeds their rule. The inner error is the reason why they are
    /// unknown.
    pub(super) async fn suspects(
        &self,
        group: &Group,
    ) -> Result<Result<Suspects, NotComparedReason>, CompareError> {
        let now_ms = self.0.redis.journals().clock_ms().await?;
        let (owners, mut sketch) = (&group.owners, Sketch::new());
        let (mut found, mut passed) = (Suspects::default(), Suspects::default());
        for (place, owner) in owners.all() {
            let add = |field: &str, value: &str| {
                let at = Field { owner: place, name: field };
                if owner.windows.has_slots && user_of(field).is_some() {
                    match value.parse::<u32>() {
                        Ok(slots) => sketch.add(at, 0, (slots.into(), 0)),
                        Err(_) => found.insert(at, MOST_CANDIDATES),
                    }
                } else if let Some(rule) = owner.windows.rule_of(field) {
                    match Count::parse(value) {
                        Some(count) if !rule.is_running(count.window, now_ms) => {}
                        Some(Count { window, orders, units }) => {
                            sketch.add(at, window, (orders.cast_signed(), units.cast_signed()));
                            if rule.is_passed_by(orders, units) {
                                passed.insert(at, MOST_PASSED);
                            }
                        }
                        None => found.insert(at, MOST_CANDIDATES),
                    }
                }
            };
            self.each_use(owner.owner, add).await?;
        }
        let mut is_readable = true;
        for voucher in &group.vouchers {
            if let Some(place) = owners.place_of_slots(*voucher) {
                let add = |field: &str| sketch.add(Field { owner: place, name: field }, 0, (1, 0));
                self.each_buyer_without_field(*voucher, add).await?;
            }
            let take = |note| {
                is_readable &= !matches!(note, OrderNote::Unreadable);
                each_field(&note, owners, now_ms, |at, window, (orders, units)| {
                    sketch.add(at, window, (-orders, -units));
                });
            };
            self.0.read(*voucher, take).await?;
        }
        if !is_readable {
            return Ok(Err(NotComparedReason::UnreadableNotes));
        }
        if !sketch.is_even() {
            self.collect(group, &sketch, now_ms, &mut found).await?;
        }
        found.fields.append(&mut passed.fields);
        found.cut.append(&mut passed.cut);
        Ok(Ok(found))
    }

    /// Reads both sides again for the names of the fields that may differ.
    async fn collect(
        &self,
        group: &Group,
        sketch: &Sketch,
        now_ms: i64,
        found: &mut Suspects,
    ) -> Result<(), CompareError> {
        let mut insert = |at: Field<'_>| {
            if sketch.may_differ(at) {
                found.insert(at, MOST_CANDIDATES);
            }
        };
        for (place, owner) in group.owners.all() {
            self.each_use(owner.owner, |field, _| insert(Field { owner: place, name: field })).await?;
        }
        for voucher in &group.vouchers {
            let see = |note| each_field(&note, &group.owners, now_ms, |at, _, _| insert(at));
            self.0.read(*voucher, see).await?;
        }
        Ok(())
    }

    async fn each_use(
        &self,
        owner: LimitOwner,
        mut seen: impl FnMut(&str, &str),
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_uses(self.0.redis, owner);
        while let Some(fields) = self.0.step(pages.next()).await? {
            fields.iter().for_each(|(field, value)| seen(field, value));
        }
        Ok(())
    }

    /// Finds each buyer of a voucher without a field of slots, by the name of that field: such a buyer has the first
    /// slot.
    async fn each_buyer_without_field(
        &self,
        voucher: VoucherId,
        mut seen: impl FnMut(&str),
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_buyers(self.0.redis, voucher);
        while let Some(users) = self.0.step(pages.next()).await? {
            let users = users.iter().filter_map(|user| str::from_utf8(user).ok()?.parse().ok());
            let fields: Vec<String> = users.map(slots_field).collect();
            for snapshot in self.0.redis.limits().read_uses(LimitOwner::Voucher(voucher), &fields).await? {
                snapshot.fields.iter().filter(|(_, held)| held.is_none()).for_each(|(field, _)| seen(field));
            }
        }
        Ok(())
    }
}

/// Calls `seen` for each field with uses of an order, with the window and the amount.
fn each_field(
    note: &OrderNote,
    owners: &Owners,
    now_ms: i64,
    mut seen: impl FnMut(Field<'_>, u64, (i64, i64)),
) {
    let OrderNote::Held(order) = note else { return };
    if let Some(place) = owners.place_of_slots(order.voucher) {
        let field = slots_field(order.user);
        seen(Field { owner: place, name: &field }, 0, (1 << (order.slot.get() - 1), 0));
    }
    for used in order.uses.iter().flat_map(Uses::iter) {
        let Some(place) = owners.place_of_use(order.voucher, used.campaign) else { continue };
        let field = used.field();
        if owners.running(place, &field, used.window, now_ms).is_some() {
            seen(Field { owner: place, name: &field }, used.window, (1, order.units.cast_signed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_which_more_is_suspected_than_is_looked_at_are_known() {
        let mut suspects = Suspects::default();
        for (owner, name) in [(0, "1:a"), (0, "1:b"), (0, "1:a"), (1, "1:a"), (0, "1:b")] {
            suspects.insert(Field { owner, name }, 2);
        }
        assert_eq!((suspects.fields.len(), suspects.cut), (2, BTreeSet::from([1])));
    }
}
