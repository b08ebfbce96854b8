//! The kinds of streams that are measured, and the targets of each.

/// The entries of a stream, or the rows in MySQL before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Plain orders, which the others are compared with.
    Plain,
    RefusedLongAgo,
    ThereAlready,
    HalfTheStock,
    SoldOut,
    UnknownVoucher,
    SecondOrders,
    Twice,
    Poison,
    LockedUsers,
    Mixed,
    Paid,
    Published,
    PayWithin,
    Expiring,
    RedissonLocks,
}

impl Case {
    /// The cases in which something is wrong.
    pub const ALL: [Self; 10] = [
        Self::RefusedLongAgo,
        Self::ThereAlready,
        Self::HalfTheStock,
        Self::SoldOut,
        Self::UnknownVoucher,
        Self::SecondOrders,
        Self::Twice,
        Self::Poison,
        Self::LockedUsers,
        Self::Mixed,
    ];
    /// The cases that show the cost of an order's life, and of settings that change it.
    pub const OF_LIFE: [Self; 5] =
        [Self::Paid, Self::Published, Self::PayWithin, Self::Expiring, Self::RedissonLocks];
    /// The cases that search for earlier rows or refusals of a voucher, and could cost more the more there are.
    pub const THAT_COULD_GROW: [Self; 3] = [Self::RefusedLongAgo, Self::ThereAlready, Self::HalfTheStock];
    /// The case that is promised to cost the same at any size.
    pub const FLAT: [Self; 1] = [Self::RefusedLongAgo];

    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain orders",
            Self::RefusedLongAgo => "one refused order long ago, then plain orders",
            Self::ThereAlready => "all there already (the group was made again)",
            Self::HalfTheStock => "MySQL has half the stock that Redis offered",
            Self::SoldOut => "sold out in MySQL",
            Self::UnknownVoucher => "1 % of a voucher that MySQL does not know",
            Self::SecondOrders => "1 % second orders of a user",
            Self::Twice => "5 % entries twice",
            Self::Poison => "1 % poison",
            Self::LockedUsers => "1 % of users locked by others",
            Self::Mixed => "quantities 1-3, traceparent, 100 vouchers",
            Self::Paid => "half of it payments, each some thousand entries behind its order",
            Self::Published => "all results published",
            Self::PayWithin => "orders have to be paid within an hour",
            Self::Expiring => "plain orders, while 5,000 others a second expire",
            Self::RedissonLocks => "plain orders, locks in Redisson's layout",
        }
    }

    /// The least share of the plain rate that is wanted.
    pub fn wanted_share(self) -> Option<f64> {
        Some(match self {
            Self::Plain => return None,
            Self::RefusedLongAgo | Self::Poison | Self::LockedUsers | Self::Mixed | Self::PayWithin => 0.9,
            Self::Expiring => 0.97,
            Self::UnknownVoucher | Self::Twice => 0.85,
            Self::ThereAlready => 0.8,
            Self::Published => 0.75,
            Self::SecondOrders | Self::Paid => 0.7,
            Self::HalfTheStock | Self::RedissonLocks => 0.6,
            Self::SoldOut => 0.5,
        })
    }

    pub fn vouchers(self) -> i64 {
        match self {
            Self::Mixed => 100,
            // The expiring orders are for the second voucher.
            Self::Expiring => 2,
            _ => 1,
        }
    }

    /// MySQL's stock of the voucher, if it is limited.
    pub fn mysql_stock(self, entries: usize) -> Option<usize> {
        match self {
            Self::HalfTheStock => Some(entries / 2),
            Self::SoldOut => Some(0),
            _ => None,
        }
    }
}
