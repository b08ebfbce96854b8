//! The gate decides in Redis who gets an order: by `lua/admit.lua`, by `lua/admit_many.lua` for callers who come at the same
//! time, or by `lua/admit_by_key.lua` for those who choose a key. What is not sold comes back by `lua/release.lua` and
//! `lua/release_many.lua`.
//!
//! Every call may be repeated after a reply was lost. The order id decides, and the second answer says so
//! ([`AdmitReply::AdmittedBefore`], [`ReleaseReply::ReleasedBefore`]).

mod access;
mod admissions;
mod batched_admission;
mod batcher;
mod confirmed;
mod idempotency;
mod journals;
mod limited;
mod redis_store;
mod releases;
mod repairs;
mod sale_limits;
mod sales;
mod scan;
mod sold_out;
mod staged_sales;

use std::borrow::Cow;

use fred::{
    error::{Error, ErrorKind},
    types::Value,
};
use tidegate_stream::readable;

pub(crate) use self::scan::scan_keys;
pub use self::{
    admissions::Admissions,
    idempotency::{BadIdempotencyKey, IdempotencyKey, KEY_KEPT},
    journals::{Journals, SumCheck},
    redis_store::RedisStore,
    releases::Releases,
    repairs::{
        ImportReply, RemoveMovedReply, CompactReply, MOST_COMPACTED, MOST_REPAIRED, OrderCompaction, OrderRepair,
        RepairAction, RepairAnswer, RepairGuard, RepairReply, Repairs, SaleSize, VoucherRepair,
    },
    sale_limits::{HeldLimits, LimitReply, SaleLimits, SetUse, UsesSnapshot},
    sales::{
        BusyMark, MarkedSales, ChangeReply, ChangeState, DelistReply, JournalUse, LoadReply, NotedTransfer, Pause,
        PauseScope, RemovedKeys, SaleKeys, SaleWindow, Sales, StockChange, StockTransfer, VoucherState,
        WholeChange,
    },
    scan::ScanPages,
    sold_out::SoldOut,
    staged_sales::{NewSale, StagedSale, StagedSales, CutOverReply, rebuild_id},
};
pub use crate::records::journal::JournalSnapshot;
use crate::{
    limits::{LimitReached, RateReached, Subjects},
    order::{OrderId, Quantity, UserId, VoucherId},
};
pub use tidegate_stream::{Confirmation, ConfirmedIn};

/// A request for an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The id the order will have. A caller that got no answer asks again with the same id.
    pub order: OrderId,
    /// Who wants it.
    pub user: UserId,
    /// What is wanted.
    pub voucher: VoucherId,
    /// How many units.
    pub quantity: Quantity,
    /// What the caller says of itself, for vouchers whose limits count by it.
    pub subjects: Subjects,
    /// W3C trace context that travels with the order; an invalid one is left out.
    pub traceparent: Option<String>,
}

/// What became of an [`Admission`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdmitReply {
    /// The order is in the stream.
    Admitted,
    /// The order was in the stream already: the first reply was lost. Success, too.
    AdmittedBefore,
    /// No unit left, or fewer than wanted.
    SoldOut,
    /// This user already has an order for this voucher.
    UserHasOrder,
    /// No stock was loaded for this voucher.
    NoStock,
    /// The sale has not begun.
    NotBegun,
    /// The sale is over.
    Over,
    /// The sale is paused.
    Paused,
    /// Workers are too far behind, or none lives: come again later.
    Busy,
    /// This order was admitted and released: a new attempt needs a new order id.
    Released,
    /// A limit of the voucher, or of its campaign, is reached.
    OverLimit(LimitReached),
    /// A rate of the voucher, or of its campaign, is reached.
    TooFast(RateReached),
}

impl AdmitReply {
    /// The order is in the stream, now or since before.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        matches!(self, Self::Admitted | Self::AdmittedBefore)
    }

    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Admitted,
            1 => Self::SoldOut,
            2 => Self::UserHasOrder,
            3 => Self::NoStock,
            4 => Self::NotBegun,
            5 => Self::Over,
            6 => Self::AdmittedBefore,
            7 => Self::Paused,
            8 => Self::Released,
            11 => Self::Busy,
            _ => return None,
        })
    }
}

/// An admitted order that will not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its id: the same order is released once, however often this is asked.
    pub order: OrderId,
    /// Whose it was.
    pub user: UserId,
    /// What it was for.
    pub voucher: VoucherId,
    /// Units that go back to the stock; None where they are not for sale any more.
    pub units: Option<Quantity>,
    /// Whether the user may order again.
    pub user_after: UserAfter,
    /// Who releases it and why, for the journal: `worker:out_of_stock`. 1 to 64 of `A-Z a-z 0-9 _ . : -`.
    pub by: Cow<'static, str>,
}

/// What a release means for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAfter {
    /// May order again.
    Freed,
    /// Still counts as a buyer: another order of this user stands, in another slot.
    StaysBuyer,
    /// Still counts as a buyer: another order of this user stands in the very slot of this one.
    SlotIsTaken,
}

/// What became of a [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReply {
    /// Released now.
    Released,
    /// Was released before; nothing changed.
    ReleasedBefore,
    /// Released now, but Redis holds no stock of this voucher (its data was lost): no unit was raised.
    ReleasedWithoutStock,
    /// Nothing to release: the journal is complete, and does not hold the order as admitted. Nothing changed.
    NotAdmitted,
    /// Nothing to release: Redis holds no key of this sale, because it was delisted, or because its data was lost. Nothing
    /// changed, and no key was made.
    NoSale,
}

impl ReleaseReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::ReleasedBefore,
            1 => Self::Released,
            2 => Self::ReleasedWithoutStock,
            3 => Self::NotAdmitted,
            4 => Self::NoSale,
            _ => return None,
        })
    }
}

/// Why the gate gave no answer. The text of each is complete, so none has a source. After any of them, the call may be
/// repeated with the same order id.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GateError {
    /// No reply came. Whether the call was carried out is unknown.
    #[error("Redis does not answer: {}", readable(&.0.to_string()))]
    Unreachable(Error),
    /// Redis answered with an error; nothing was changed.
    #[error("Redis refused: {0}")]
    Refused(Error),
    /// The order id belongs to an order of another user; nothing was changed.
    #[error("order id {order} belongs to an order of another user")]
    IdTaken {
        /// The id.
        order: OrderId,
    },
    /// The voucher belongs to another partition than this gate's; Redis was not asked.
    #[error("{0}: ask the gate of that partition")]
    WrongPartition(String),
    /// A limit of the voucher counts by something that the caller has not said of itself; nothing was changed.
    #[error("voucher {voucher} has a limit by {name}, and the order does not say its {name}")]
    NoSubject {
        /// The voucher.
        voucher: VoucherId,
        /// Name of the subject.
        name: String,
    },
    /// This very order was admitted before, with another quantity; nothing was changed.
    #[error("order {order} was admitted before, with another quantity")]
    OtherQuantity {
        /// The order.
        order: OrderId,
    },
    /// Something else was asked for under this key: other units, other subjects; nothing was changed.
    #[error("something else was asked for under this key")]
    OtherRequest,
    /// The order is admitted, but nobody knows whether enough replicas have it ([`RedisStore::confirmed`]): a failover may lose it.
    /// Whoever asks again with the same order id waits for them again.
    #[error("order {order} is admitted, but not confirmed: {why}")]
    Unconfirmed {
        /// The order.
        order: OrderId,
        /// What was missing.
        why: String,
    },
    /// Redis holds or answers something that this program does not know, perhaps because another version wrote it.
    #[error("{place} holds {got}, which is not understood")]
    Unexpected {
        /// The script or the key.
        place: String,
        /// What was found.
        got: String,
    },
}

impl From<Error> for GateError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::IO
            | ErrorKind::Timeout
            | ErrorKind::Canceled
            | ErrorKind::Routing
            | ErrorKind::Tls => Self::Unreachable(error),
            _ => Self::Refused(error),
        }
    }
}

/// The scripts mark the errors that concern one order.
pub(crate) fn of_order(order: OrderId, error: Error) -> GateError {
    match error.details() {
        details if details.contains(": IDTAKEN ") => GateError::IdTaken { order },
        details if details.contains(": OTHERQTY ") => GateError::OtherQuantity { order },
        details if details.contains(": OTHERREQ ") => GateError::OtherRequest,
        _ => error.into(),
    }
}

pub(crate) fn understood<T>(
    script: &str,
    reply: &Value,
    from_code: fn(i64) -> Option<T>,
) -> Result<T, GateError> {
    let known = if let Value::Integer(code) = reply { from_code(*code) } else { None };
    known.ok_or_else(|| GateError::Unexpected { place: script.to_owned(), got: format!("{reply:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_no_script_gives_is_an_error() {
        for reply in [Value::Integer(9), Value::Integer(-1), Value::Null, Value::String("0".into())] {
            let error = understood("admit.lua", &reply, AdmitReply::from_code).unwrap_err();
            assert!(matches!(error, GateError::Unexpected { .. }), "{error}");
        }
    }
}
