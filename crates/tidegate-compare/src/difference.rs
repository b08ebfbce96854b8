//! Differences between what Redis and MySQL know, order by order, user by user, and voucher by voucher.

use crate::{limit_counters::Counter, reconciled::DifferenceKind};
use serde::Serialize;
use tidegate_orders::{OrderId, OrderStatus, UserId, VoucherId};
use tidegate_stream::EntryId;

/// Why it is so, where that can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceCause {
    /// Nobody can tell.
    Unknown,
    /// The entry was acknowledged, and MySQL has nothing of it: MySQL went back in time, or another program acknowledged it.
    AcknowledgedAndNotWritten,
    /// The stream does not hold the entry any more.
    EntryIsGone,
    /// A producer appended the entry without an admission, as XADD alone does; or Redis went back in time since.
    NoAdmission,
    /// Redis went back in time, or was emptied.
    RedisWentBack,
    /// A service changed one side by its own hand.
    ChangedByHand,
    /// The worker or the command that was at it died half-way.
    LeftHalfDone,
}

/// What repairs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairMethod {
    /// Run all entries of the order again, its events included, in their order.
    RunAgain,
    /// Run the events of the order again, in their order. The order itself is where it belongs.
    RecordEvents,
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
    /// Set what is counted to what orders hold.
    SetCounter,
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
    pub cause: DifferenceCause,
    /// What repairs it.
    pub repair: RepairMethod,
    /// Which counter of a limit it is about, where it is about one.
    pub counter: Option<Counter>,
    /// Where the order is; None: the difference does not depend on it.
    #[serde(skip)]
    pub status: Option<OrderStatus>,
    /// Its entry, where the stream holds it and the order is lost.
    #[serde(skip)]
    pub entry: Option<EntryId>,
    /// What the journal held of the order when it was compared, byte for byte: a repair acts only while it still does.
    #[serde(skip)]
    pub note: Option<String>,
}
