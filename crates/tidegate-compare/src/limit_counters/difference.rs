//! What is counted wrong, for reports and repairs.

use serde::Serialize;
use tidegate_orders::{LimitOwner, UserId, VoucherId, gate::SetUse};

use super::owners::Count;
use crate::reconciled::DifferenceKind;

/// A counter that is not what orders hold, or a limit of which orders hold more than it allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CounterDifference {
    /// Which of the two.
    pub kind: DifferenceKind,
    /// The voucher, or one of its campaign.
    pub voucher: VoucherId,
    /// Whose slots they are.
    pub user: Option<UserId>,
    /// Units that are counted too much, below 0 too little; of a limit that is passed, by how much.
    pub units: i64,
    /// Which counter.
    pub counter: Counter,
}

impl CounterDifference {
    /// What is wrong, in a sentence.
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
    /// Whose limit it counts for: `voucher:7`, `campaign:5`.
    pub owner: LimitOwner,
    /// The limit; None: the slots of a user.
    pub limit: Option<String>,
    /// The field.
    pub field: String,
    /// What it holds; None: it is not there.
    pub counted: Option<String>,
    /// What orders hold; None: nothing.
    pub held: Option<String>,
    /// What orders hold may be more, by what moved in the millisecond of the comparison.
    #[serde(skip)]
    pub is_exact: bool,
}

impl Counter {
    /// What makes it right. None: it moves too fast to be set.
    #[must_use]
    pub fn set(&self) -> Option<SetUse> {
        let (found, becomes) = (self.counted.clone(), self.held.clone());
        self.is_exact.then(|| SetUse { field: self.field.clone(), found, becomes })
    }

    /// Whether an order that was released since the comparison leaves the field as it was: it takes nothing from a field that is not there,
    /// from one of another window, or a slot that the field does not have. What such a field is set to may be too much.
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

    /// In words: `counter 3:8d969e (limit days of voucher:7): counted 19700:9:9, orders hold 19700:2:3`.
    #[must_use]
    pub fn text(&self) -> String {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let of = self.limit.as_ref().map_or_else(|| "slots".to_owned(), |limit| format!("limit {limit}"));
        let (counted, held) = (shown(&self.counted), shown(&self.held));
        format!("counter {} ({of} of {}): counted {counted}, orders hold {held}", self.field, self.owner)
    }
}
