//! The types of an order. Their values are always valid, because they were parsed on the way in.

mod uses;

use std::{fmt, num::NonZeroI64, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use self::uses::{MOST_RULES, Use, Uses};
pub(crate) use self::uses::{MOST_VALUE_BYTES, is_value_byte};

/// The id of an order with its user and its voucher.
pub(crate) type OrderIdentity = (OrderId, UserId, VoucherId);

/// The reason why a text is not a valid number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadNumber {
    /// The text has no characters.
    #[error("is empty")]
    Empty,
    /// The text has characters other than the digits 0-9, such as signs or spaces.
    #[error("has characters other than decimal digits")]
    NotDecimal,
    /// The number begins with a zero, such as `007`: two texts for one number would be two orders for one user.
    #[error("begins with a zero")]
    Padded,
    /// The number is outside the allowed range.
    #[error("is not within 1 ..= {max}")]
    OutOfRange {
        /// The largest value that is allowed.
        max: i64,
    },
}

fn parse_decimal(text: &[u8], max: i64) -> Result<NonZeroI64, BadNumber> {
    if text.is_empty() {
        return Err(BadNumber::Empty);
    }
    if !text.iter().all(u8::is_ascii_digit) {
        return Err(BadNumber::NotDecimal);
    }
    if text[0] == b'0' && text.len() > 1 {
        return Err(BadNumber::Padded);
    }
    // A number that does not fit into an i64 does not fit into the range either.
    let value = text
        .iter()
        .try_fold(0_i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
    let value = value.and_then(NonZeroI64::new).filter(|value| value.get() <= max);
    value.ok_or(BadNumber::OutOfRange { max })
}

macro_rules! decimal {
    ($(#[$doc:meta])* $name:ident, $max:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroI64);

        impl $name {
            /// The largest valid value of the number.
            pub const MAX: i64 = $max;

            /// Parses the number from decimal digits without sign, padding or spaces.
            ///
            /// # Errors
            /// Fails if the text is anything else, or the number is not within `1 ..= MAX`.
            pub fn parse(text: &[u8]) -> Result<Self, BadNumber> {
                parse_decimal(text, Self::MAX).map(Self)
            }

            /// Returns the number, from 1 to `MAX`, as an integer.
            #[must_use]
            pub const fn get(self) -> i64 {
                self.0.get()
            }
        }

        impl FromStr for $name {
            type Err = BadNumber;

            fn from_str(text: &str) -> Result<Self, BadNumber> {
                Self::parse(text.as_bytes())
            }
        }

        impl TryFrom<i64> for $name {
            type Error = BadNumber;

            fn try_from(value: i64) -> Result<Self, BadNumber> {
                let value = NonZeroI64::new(value).filter(|value| (1..=Self::MAX).contains(&value.get()));
                value.map(Self).ok_or(BadNumber::OutOfRange { max: Self::MAX })
            }
        }

        impl From<$name> for i64 {
            fn from(value: $name) -> Self {
                value.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(itoa::Buffer::new().format(self.get()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        // A string: JSON numbers lose digits above 2^53 in most readers.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

decimal!(
    /// The id of an order: a unique number that the producer chooses, `1 ..= 2^63-1`.
    OrderId,
    i64::MAX
);
decimal!(
    /// The id of a user: a number, `1 ..= 2^63-1`.
    UserId,
    i64::MAX
);
decimal!(
    /// The id of a voucher, which is the item on sale: a number, `1 ..= 2^63-1`.
    VoucherId,
    i64::MAX
);
decimal!(
    /// The id of a campaign, which is a group of vouchers that are sold under common limits: a number, `1 ..= 2^63-1`.
    CampaignId,
    i64::MAX
);
decimal!(
    /// The number of units in one order, `1 ..= 10 000`.
    Quantity,
    10_000
);
decimal!(
    /// The number of an order among the orders that a user may have for one voucher, `1 ..= 2^31-1`.
    Slot,
    i32::MAX as i64
);

impl Quantity {
    /// A quantity of one unit, the default for an entry without a quantity.
    pub const ONE: Self = Self(NonZeroI64::new(1).unwrap());
}

impl Slot {
    /// The first slot, for entries that state no slot. A slot is a number, from 1, that tells a user's live orders of
    /// one voucher apart.
    pub const FIRST: Self = Self(NonZeroI64::new(1).unwrap());
}

/// An order, with the values of its stream entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    /// The id of the order.
    pub id: OrderId,
    /// The user who placed the order.
    pub user: UserId,
    /// The voucher that the order is for.
    pub voucher: VoucherId,
    /// The number of units in the order.
    pub quantity: Quantity,
    /// The number, from 1, that tells the user's live orders of this voucher apart. MySQL allows only one order for
    /// each voucher, user and slot.
    pub slot: Slot,
    /// The limits that the order counts against, as its entry states them. `None` if the program that admitted the
    /// order knows no limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<Uses>,
}

impl Order {
    pub(crate) fn subject(&self) -> OrderIdentity {
        (self.id, self.user, self.voucher)
    }
}
