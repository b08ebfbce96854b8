//! The owners of limits that are compared together: a voucher, or a campaign with all its vouchers. Pure.

use std::collections::HashMap;

use tidegate_orders::{
    CampaignId, LimitOwner, UserId, VoucherId,
    limits::{CountedRule, CountedWindows},
};

/// One owner, with the windows that Redis counts for it.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) owner: LimitOwner,
    pub(super) windows: CountedWindows,
}

/// The owners of a group, each with its place.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    all: Vec<Owner>,
    places: HashMap<LimitOwner, usize>,
}

impl Owners {
    pub(super) fn add(&mut self, owner: LimitOwner, windows: CountedWindows) {
        self.places.insert(owner, self.all.len());
        self.all.push(Owner { owner, windows });
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Owner)> {
        self.all.iter().enumerate()
    }

    pub(super) fn get(&self, place: usize) -> &Owner {
        &self.all[place]
    }

    /// The place of the owner whose limit an order of this voucher used.
    pub(super) fn place_of_use(&self, voucher: VoucherId, campaign: Option<CampaignId>) -> Option<usize> {
        self.place(campaign.map_or(LimitOwner::Voucher(voucher), LimitOwner::Campaign))
    }

    /// The place of the voucher, if its users hold slots.
    pub(super) fn place_of_slots(&self, voucher: VoucherId) -> Option<usize> {
        self.place(LimitOwner::Voucher(voucher)).filter(|place| self.all[*place].windows.has_slots)
    }

    pub(super) fn place(&self, owner: LimitOwner) -> Option<usize> {
        self.places.get(&owner).copied()
    }

    /// The rule of a field, if this window of it is running.
    pub(super) fn running(
        &self,
        place: usize,
        field: &str,
        window: u64,
        now_ms: i64,
    ) -> Option<&CountedRule> {
        let rule = self.all.get(place)?.windows.rule_of(field)?;
        rule.is_running(window, now_ms).then_some(rule)
    }
}

/// The value of a field, such as `19700:2:3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) window: u64,
    pub(super) orders: u64,
    pub(super) units: u64,
}

impl Count {
    /// Parses the value of a field. None: it cannot be read.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':').map(|part| part.parse().ok());
        let count = Self { window: parts.next()??, orders: parts.next()??, units: parts.next()?? };
        parts.next().is_none().then_some(count)
    }

    pub(super) fn text(self) -> String {
        let Self { window, orders, units } = self;
        format!("{window}:{orders}:{units}")
    }
}

/// The name of the field with a user's slots.
pub(super) fn slots_field(user: UserId) -> String {
    format!("u:{user}")
}

/// The user whose slots a field holds.
pub(super) fn user_of(field: &str) -> Option<UserId> {
    field.strip_prefix("u:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_fields_of_slots_are_read() {
        let count = Count { window: 19_700, orders: 2, units: 3 };
        assert_eq!((Count::parse("19700:2:3"), count.text().as_str()), (Some(count), "19700:2:3"));
        for wrong in ["", "1:2", "1:2:3:4", "a:1:1", "1:-1:1"] {
            assert_eq!(Count::parse(wrong), None, "{wrong}");
        }
        let user = UserId::try_from(7).unwrap();
        assert_eq!((user_of("u:7"), slots_field(user).as_str()), (Some(user), "u:7"));
        assert_eq!((user_of("7:7"), user_of("u:x")), (None, None));
    }
}
