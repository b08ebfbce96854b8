//! Differences between what Redis and MySQL know, order by order, user by user, and voucher by voucher.

use serde::Serialize;
use tidegate_orders::{OrderId, UserId, VoucherId};

/// What is different. Its word is the same in JSON, in metrics and in the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// An order was admitted and is nowhere else: neither in flight nor dead nor in MySQL, as row or as refusal.
    LostOrder,
    /// Redis gave an order back, and MySQL knows neither a row nor a refusal of it.
    ReleaseUnknownToMysql,
    /// A live order of MySQL that a complete journal does not hold.
    NotAdmitted,
    /// MySQL gave an order up or refused it, and the journal still holds it as admitted.
    NotReleased,
    /// A live order of MySQL that was given back in Redis: its units can be sold twice.
    ReleasedAndLive,
    /// The row with the id of an admitted order is of another user, voucher or quantity.
    Mismatched,
    /// An order whose units were given back more than once, by what MySQL recorded of its events.
    GivenBackTwice,
    /// The status of a row is not the one that its events lead to: somebody else set it. No failure.
    StatusSetByOthers,
    /// A user who has no order is in the set of buyers.
    BarredWithoutOrder,
    /// A user who has a live order is not in the set of buyers.
    NotBarred,
    /// The stock in Redis is not the sum of its journal.
    RedisStockApart,
    /// The journal has other units loaded than MySQL.
    LoadedApart,
    /// The stock in MySQL is not what was loaded less the units of live orders.
    MysqlStockApart,
    /// The sale is on and has units left by MySQL, orders of it are there, and Redis holds no stock of it: nobody can buy.
    SaleForgotten,
}

impl DifferenceKind {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::LostOrder,
        Self::ReleaseUnknownToMysql,
        Self::NotAdmitted,
        Self::NotReleased,
        Self::ReleasedAndLive,
        Self::Mismatched,
        Self::GivenBackTwice,
        Self::StatusSetByOthers,
        Self::BarredWithoutOrder,
        Self::NotBarred,
        Self::RedisStockApart,
        Self::LoadedApart,
        Self::MysqlStockApart,
        Self::SaleForgotten,
    ];

    /// The word for it in JSON, in metrics and in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::LostOrder => "lost_order",
            Self::ReleaseUnknownToMysql => "release_unknown_to_mysql",
            Self::NotAdmitted => "not_admitted",
            Self::NotReleased => "not_released",
            Self::ReleasedAndLive => "released_and_live",
            Self::Mismatched => "mismatched",
            Self::GivenBackTwice => "given_back_twice",
            Self::StatusSetByOthers => "status_set_by_others",
            Self::BarredWithoutOrder => "barred_without_order",
            Self::NotBarred => "not_barred",
            Self::RedisStockApart => "redis_stock_apart",
            Self::LoadedApart => "loaded_apart",
            Self::MysqlStockApart => "mysql_stock_apart",
            Self::SaleForgotten => "sale_forgotten",
        }
    }

    /// Nobody is free to do that.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::StatusSetByOthers)
    }
}

/// Why it is so, where that can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nobody can tell.
    Unknown,
    /// The entry was acknowledged, and MySQL has nothing of it: MySQL went back in time, or another program acknowledged it.
    AcknowledgedAndNotWritten,
    /// The stream does not hold the entry any more.
    EntryIsGone,
    /// Redis went back in time, or was emptied.
    RedisWentBack,
    /// A service changed one side by its own hand.
    ChangedByHand,
    /// The worker or the command that was at it died half-way.
    LeftHalfDone,
}

/// What mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mend {
    /// Run all entries of the order again, its events included, in their order.
    RunAgain,
    /// Write a cancelled row without units, so that a later payment finds a home.
    WriteCancelledRow,
    /// Restore the user and the movement of its admission.
    Admit,
    /// Release it in Redis.
    Release,
    /// Let the user order again.
    Unbar,
    /// Keep the user from ordering again.
    Bar,
    /// Move the stock in Redis by a difference.
    MoveStock,
    /// Fill Redis again from MySQL, the stream and the dead letters.
    Rebuild,
    /// Nothing that a program may decide.
    ByHand,
}

/// A difference about one order, or about one user where `order` is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What is different.
    pub kind: DifferenceKind,
    /// Of which voucher.
    pub voucher: VoucherId,
    /// Which order.
    pub order: Option<OrderId>,
    /// Whose.
    pub user: Option<UserId>,
    /// Units that it is about.
    pub units: i64,
    /// Why.
    pub cause: Cause,
    /// What mends it.
    pub mend: Mend,
    /// What the journal held of the order at the look, byte for byte: a repair acts only while it still does.
    #[serde(skip)]
    pub note: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_word_is_that_of_its_json() {
        for kind in DifferenceKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
    }
}
