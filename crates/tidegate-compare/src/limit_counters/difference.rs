//! The faults of limit counters, for reports and repairs.

use serde::Serialize;
use tidegate_orders::{LimitOwner, UserId, VoucherId, scripts::SetUse};

use super::owners::Count;
use crate::reconciled::DifferenceKind;

/// A counter that differs from the uses of orders, or a limit that orders exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterDifference {
    /// The kind of the fault.
    pub kind: DifferenceKind,
    /// The voucher, or one of the campaign's vouchers.
    pub voucher: VoucherId,
    /// The user whose slots are wrong.
    pub user: Option<UserId>,
    /// The units by which the count is too high, below 0 too low; for a limit that is exceeded, the excess.
    pub units: i64,
    /// The counter with the fault.
    pub counter: Counter,
}

impl CounterDifference {
    /// The fault in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { kind, voucher, counter, .. } = self;
        match (kind, &counter.limit, &counter.held) {
            (DifferenceKind::LimitPassed, Some(limit), Some(held)) => {
                format!(
                    "orders hold more than limit {limit} of {} allows: {} is {held}",
                    counter.owner, counter.field
                )
            }
            _ => format!("voucher {voucher}: {}", counter.text()),
        }
    }
}

/// A field of a hash of uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The owner of the limit: `voucher:7`, `campaign:5`.
    pub owner: LimitOwner,
    /// The name of the limit; None: the field holds the slots of a user.
    pub limit: Option<String>,
    /// The name of the field.
    pub field: String,
    /// The value of the field; None: the field does not exist.
    pub counted: Option<String>,
    /// The uses that orders hold; None: they hold none.
    pub held: Option<String>,
    /// Whether `held` is exact. If not, orders may hold more, by changes in the millisecond of the check.
    #[serde(skip)]
    pub is_exact: bool,
}

impl Counter {
    /// The command that sets the right value. None: the field changes too fast to be set.
    #[must_use]
    pub fn set(&self) -> Option<SetUse> {
        let (found, becomes) = (self.counted.clone(), self.held.clone());
        self.is_exact.then(|| SetUse { field: self.field.clone(), found, becomes })
    }

    /// Whether the release of an order leaves the field as it was. A release takes nothing from a missing field, from
    /// a field of another window, or from a slot that the field does not have. Such a field may be set too high, if an
    /// order was released since the comparison.
    pub(super) fn hides_releases(&self) -> bool {
        let Some(held) = &self.held else { return false };
        let Some(counted) = &self.counted else { return true };
        match (Count::parse(counted), Count::parse(held)) {
            (Some(counted), Some(held)) => counted.window != held.window,
            (None, None) => {
                let slots = |text: &str| text.parse::<u32>().unwrap_or(0);
                slots(held) & !slots(counted) != 0
            }
            _ => true,
        }
    }

    /// The counter in words: `counter 3:8d969e (limit days of voucher:7): counted 19700:9:9, orders hold 19700:2:3`.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let of = self.limit.as_ref().map_or_else(|| "slots".to_owned(), |limit| format!("limit {limit}"));
        let (counted, held) = (shown(&self.counted), shown(&self.held));
        format!("counter {} ({of} of {}): counted {counted}, orders hold {held}", self.field, self.owner)
    }
}
