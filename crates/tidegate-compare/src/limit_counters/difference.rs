//! The differences of limit counters, for reports and repairs.

use serde::Serialize;
use tidegate_orders::{LimitOwner, UserId, VoucherId, scripts::SetUse};

use super::owners::Count;
use crate::reconciled::DifferenceKind;

/// A limit counter with a wrong value, or a limit that orders exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterDifference {
    /// The kind of the difference: a wrong limit counter, a wrong field of a user, or an exceeded limit.
    pub kind: DifferenceKind,
    /// The voucher that has the limit, or one voucher of the campaign that has the limit.
    pub voucher: VoucherId,
    /// The user for whom Redis counts wrong orders. None: the counter of a limit is wrong.
    pub user: Option<UserId>,
    /// The value of the counter minus the right value; negative if the counter is too low. For an exceeded limit, the
    /// excess.
    pub units: i64,
    /// The limit counter that differs.
    pub counter: Counter,
}

impl CounterDifference {
    /// The difference in one sentence for an operator.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { kind, voucher, counter, .. } = self;
        match (kind, &counter.limit, &counter.held) {
            (DifferenceKind::LimitPassed, Some(limit), Some(held)) => {
                format!(
                    "orders exceed limit {limit} of {}: their count in field {} is {held}",
                    counter.owner, counter.field
                )
            }
            _ => format!("voucher {voucher}: {}", counter.text()),
        }
    }
}

/// A field of the Redis hash with the counters of limits, with its present and its right value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The voucher or campaign that has the limit: `voucher:7`, `campaign:5`.
    pub owner: LimitOwner,
    /// The name of the limit. None: the field does not belong to a limit, but contains the uncancelled orders of a
    /// user.
    pub limit: Option<String>,
    /// The name of the field in the hash.
    pub field: String,
    /// The present value of the field. None: the field does not exist.
    pub counted: Option<String>,
    /// The right value of the field, calculated from the orders. None: no order counts, so the field should not exist.
    pub held: Option<String>,
    /// Whether `held` is exact. If not, orders that were placed in the millisecond of the check may be missing.
    #[serde(skip)]
    pub is_exact: bool,
}

impl Counter {
    /// The command that sets the field to its right value. None: the right value is not known exactly.
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

    /// The counter in words, such as `counter 3:8d969e (limit days of voucher:7) is 19700:9:9, but should be
    /// 19700:2:3`.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let of = self.limit.as_ref().map_or_else(|| "slots".to_owned(), |limit| format!("limit {limit}"));
        let (counted, held) = (shown(&self.counted), shown(&self.held));
        format!("counter {} ({of} of {}) is {counted}, but should be {held}", self.field, self.owner)
    }
}
