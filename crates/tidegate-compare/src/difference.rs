//! The differences between Redis and MySQL, by order, by user and by voucher.

use crate::{limit_counters::Counter, reconciled::DifferenceKind};
use serde::Serialize;
use tidegate_orders::{OrderId, OrderStatus, UserId, VoucherId};
use tidegate_stream::EntryId;

/// The known cause of a difference between Redis and MySQL, such as lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceCause {
    /// The cause of the difference is unknown.
    Unknown,
    /// The entry was acknowledged, and MySQL has neither a row nor a refusal. MySQL lost its newest data, or another
    /// program acknowledged the entry.
    AcknowledgedAndNotWritten,
    /// The stream does not hold the entry any more.
    EntryIsGone,
    /// A producer appended the entry without an admission, as a plain XADD does. Or Redis lost its newest data.
    NoAdmission,
    /// Redis lost its newest data, or all data.
    RedisWentBack,
    /// A service changed Redis or MySQL without Tidegate.
    ChangedByHand,
    /// The worker or the command that handled the order was killed half-way.
    LeftHalfDone,
}

/// The way in which a repair removes a difference between Redis and MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairMethod {
    /// Run all entries of the order again, including its events, in their order.
    RunAgain,
    /// Run the events of the order again, in their order. The order itself has its row.
    RecordEvents,
    /// Write a cancelled row without units, so that a later payment finds the order.
    WriteCancelledRow,
    /// Restore the admission of the order in Redis: the user as a buyer, and the units.
    Admit,
    /// Release the order in Redis.
    Release,
    /// Let the user order again.
    Unbar,
    /// Keep the user from ordering again.
    Bar,
    /// Correct the stock in Redis by the difference.
    MoveStock,
    /// Set the limit counter to the value that the orders add up to.
    SetCounter,
    /// Rebuild Redis from MySQL, the stream and the dead letters.
    Rebuild,
    /// No program may repair the difference: an operator has to decide.
    ByHand,
}

/// A difference between Redis and MySQL about an order. If `order` is None, the difference is about a user, a stock or
/// a limit counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The kind of the difference, such as an order that is missing in MySQL.
    pub kind: DifferenceKind,
    /// The voucher that the difference is about.
    pub voucher: VoucherId,
    /// The order that the difference is about. None: the difference is not about a single order.
    pub order: Option<OrderId>,
    /// The user that the difference is about, if the user is known.
    pub user: Option<UserId>,
    /// The number of the order's units, or the number of units by which the stock or the counter is wrong.
    pub units: i64,
    /// The cause of the difference, such as data that Redis lost.
    pub cause: DifferenceCause,
    /// The way to repair the difference, such as returning units to the stock in Redis.
    pub repair: RepairMethod,
    /// The limit counter that the difference is about. None: the difference is not about a limit counter.
    pub counter: Option<Counter>,
    /// The status of the order in MySQL. None: the status does not matter for the difference.
    #[serde(skip)]
    pub status: Option<OrderStatus>,
    /// The stream entry of the order. None: the order is not lost, or the stream does not hold the entry.
    #[serde(skip)]
    pub entry: Option<EntryId>,
    /// The note of the order in the journal (the Redis hash of orders), as the comparison read it. A repair changes the
    /// order only if the note is still the same.
    #[serde(skip)]
    pub note: Option<String>,
}
