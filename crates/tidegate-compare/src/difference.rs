//! The differences between Redis and MySQL, by order, by user and by voucher.

use crate::{limit_counters::Counter, reconciled::DifferenceKind};
use serde::Serialize;
use tidegate_orders::{OrderId, OrderStatus, UserId, VoucherId};
use tidegate_stream::EntryId;

/// The cause of a difference, if it can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceCause {
    /// The cause of the difference is unknown.
    Unknown,
    /// The entry was acknowledged, and MySQL has nothing of it: MySQL went back in time, or another program
    /// acknowledged it.
    AcknowledgedAndNotWritten,
    /// The stream does not hold the entry any more.
    EntryIsGone,
    /// A producer appended the entry without an admission, as XADD alone does; or Redis went back in time since.
    NoAdmission,
    /// Redis went back in time, or was emptied.
    RedisWentBack,
    /// A service changed one side without Tidegate.
    ChangedByHand,
    /// The worker or the command that handled the order was killed half-way.
    LeftHalfDone,
}

/// The way to repair a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairMethod {
    /// Run all entries of the order again, including its events, in their order.
    RunAgain,
    /// Run the events of the order again, in their order. The order itself has its row.
    RecordEvents,
    /// Write a cancelled row without units, so that a later payment finds the order.
    WriteCancelledRow,
    /// Restore the user and the movement of the order's admission.
    Admit,
    /// Release the order in Redis.
    Release,
    /// Let the user order again.
    Unbar,
    /// Keep the user from ordering again.
    Bar,
    /// Move the stock in Redis by a difference.
    MoveStock,
    /// Set the counter to the uses that orders hold.
    SetCounter,
    /// Rebuild Redis from MySQL, the stream and the dead letters.
    Rebuild,
    /// A program must not decide it; an operator has to.
    ByHand,
}

/// A difference about one order, or about one user if `order` is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The kind of the difference.
    pub kind: DifferenceKind,
    /// The voucher of the difference.
    pub voucher: VoucherId,
    /// The order of the difference, if it is about one.
    pub order: Option<OrderId>,
    /// The user of the difference, if it is about one.
    pub user: Option<UserId>,
    /// The units of the difference.
    pub units: i64,
    /// The cause of the difference.
    pub cause: DifferenceCause,
    /// The way to repair the difference.
    pub repair: RepairMethod,
    /// The limit counter of the difference, if it is about one.
    pub counter: Option<Counter>,
    /// The status of the order; None: the difference does not depend on it.
    #[serde(skip)]
    pub status: Option<OrderStatus>,
    /// The entry of the order, if the stream holds it and the order is lost.
    #[serde(skip)]
    pub entry: Option<EntryId>,
    /// The journal's note of the order at the comparison, byte for byte: a repair acts only while the note is the
    /// same.
    #[serde(skip)]
    pub note: Option<String>,
}
