//! Calls of the scripts in Redis: they admit and release orders, and change sales, limits and journals.
//!
//! `lua/admit.lua` admits one order, `lua/admit_many.lua` admits orders that arrive at the same time, and
//! `lua/admit_by_key.lua` admits an order under an idempotency key. `lua/release.lua` and `lua/release_many.lua` return
//! the units of orders that will not be written.
//!
//! If a reply is lost, the caller may repeat any call. The order id identifies the order, and the second reply says
//! that the first call was carried out ([`AdmitReply::AdmittedBefore`], [`ReleaseReply::ReleasedBefore`]).

mod access;
mod admissions;
mod batched_admission;
mod batcher;
mod confirmed;
mod event_appends;
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
    event_appends::EventAppends,
    idempotency::{BadIdempotencyKey, IdempotencyKey, KEY_KEPT},
    journals::{Journals, SumCheck},
    redis_store::RedisStore,
    releases::Releases,
    repairs::{
        CompactReply, ImportReply, MOST_COMPACTED, MOST_REPAIRED, OrderCompaction, OrderRepair,
        RemoveMovedReply, RepairAction, RepairAnswer, RepairGuard, RepairReply, Repairs, SaleSize,
        VoucherRepair,
    },
    sale_limits::{LimitReply, LimitUsage, SaleLimits, SetUse, UsesSnapshot},
    sales::{
        BusyMark, ChangeReply, ChangeState, DelistReply, JournalUse, LoadReply, MarkedSales, Offer,
        OfferState, Pause, PauseScope, RecordedTransfer, RemovedKeys, SaleCalendar, SaleKeys, Sales,
        ScheduleReply, StockChange, StockTransfer, VoucherState, WholeChange,
    },
    scan::ScanPages,
    sold_out::SoldOut,
    staged_sales::{CutOverReply, NewSale, StagedSale, StagedSales, rebuild_id},
};
use crate::{
    limits::{LimitReached, RateReached, Subjects},
    order::{OrderId, Quantity, UserId, VoucherId},
};
pub use crate::{records::journal::JournalSnapshot, sale_window::SaleWindow};
pub use tidegate_stream::{Confirmation, ConfirmedIn};

/// A user's request for an order of a voucher, which a script in Redis admits or refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The id that the order gets if it is admitted. If a caller gets no answer, the caller repeats the request with the
    /// same id.
    pub order: OrderId,
    /// The user who wants the order.
    pub user: UserId,
    /// The voucher that the user wants to buy.
    pub voucher: VoucherId,
    /// The number of units that the user wants to buy.
    pub quantity: Quantity,
    /// The subjects that the caller names, such as a phone. Limits of the voucher may count orders by these subjects.
    pub subjects: Subjects,
    /// The W3C trace context that is stored with the order. A context in an invalid form is left out.
    pub traceparent: Option<String>,
}

/// The reply to an [`Admission`], which is a user's request for an order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdmitReply {
    /// The order is in the stream now.
    Admitted,
    /// The order was already in the stream, because an earlier reply was lost. This is a success, too.
    AdmittedBefore,
    /// Refused: no unit is left, or fewer units than the user wants.
    SoldOut,
    /// Refused: this user already has an order for this voucher.
    UserHasOrder,
    /// Refused: no stock is loaded for this voucher.
    NoStock,
    /// Refused: the sale has not begun.
    NotBegun,
    /// Refused: the sale is over.
    Over,
    /// Refused: the sale is paused.
    Paused,
    /// Refused: the workers are too far behind, or none is running. Try again later.
    Busy,
    /// Refused: this order was admitted and then released. A new attempt needs a new order id.
    Released,
    /// Refused: a limit of the voucher or of its campaign is reached.
    OverLimit(LimitReached),
    /// Refused: a rate of the voucher or of its campaign is reached.
    TooFast(RateReached),
}

impl AdmitReply {
    /// Whether the order is in the stream, because of this request or an earlier request with the same id.
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

/// A request to release an order that will not be written to MySQL: the order returns its units, and its user may order
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The id of the order. If the request is repeated, the order is still released only once.
    pub order: OrderId,
    /// The user who placed the order.
    pub user: UserId,
    /// The voucher that was ordered.
    pub voucher: VoucherId,
    /// The number of units that return to the stock. `None` if these units are no longer for sale.
    pub units: Option<Quantity>,
    /// Whether the user may order again after the release.
    pub user_after: UserAfter,
    /// The program and the reason for the release, as the voucher's journal notes them, such as `worker:out_of_stock`.
    /// The text has 1 to 64 characters of `A-Z a-z 0-9 _ . : -`.
    pub by: Cow<'static, str>,
}

/// Whether the user may order again after an order is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAfter {
    /// The user may order again.
    Freed,
    /// The user still counts as a buyer, because another order of this user holds another slot.
    StaysBuyer,
    /// The user still counts as a buyer, because another order of this user holds the slot of this one.
    SlotIsTaken,
}

/// The reply to a [`Release`], a request to return the units of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReply {
    /// The order is released by this call.
    Released,
    /// An earlier call released the order; nothing changed.
    ReleasedBefore,
    /// The order is released by this call, but no unit was returned, because Redis holds no stock of this voucher (its
    /// data was lost).
    ReleasedWithoutStock,
    /// Nothing to release: the journal is complete, and does not hold the order as admitted. Nothing changed.
    NotAdmitted,
    /// Nothing to release: Redis holds no key of this sale, because it was delisted, or because its data was lost.
    /// Nothing changed, and no key was made.
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

/// The reason why a call to Redis gave no answer about an order. The text of each error is complete, so no error has a
/// source. After any error of this type, the caller may repeat the call with the same order id.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ScriptError {
    /// No reply came, so it is unknown whether Redis carried out the call.
    #[error("Redis does not answer: {}", readable(&.0.to_string()))]
    Unreachable(Error),
    /// Redis answered with an error; nothing was changed.
    #[error("Redis refused: {0}")]
    Refused(Error),
    /// The order id belongs to an order of another user; nothing was changed.
    #[error("order id {order} belongs to an order of another user")]
    IdTaken {
        /// The order id that was sent.
        order: OrderId,
    },
    /// The voucher belongs to another partition than this store; no call was sent to Redis.
    #[error("{0}: send the request to the partition of the voucher")]
    WrongPartition(String),
    /// A limit of the voucher counts by a subject that the caller did not name; nothing was changed.
    #[error(
        "voucher {voucher} has a limit by {name}, and the request has no {name}: send the subject {name}"
    )]
    NoSubject {
        /// The voucher that has the limit.
        voucher: VoucherId,
        /// The name of the missing subject.
        name: String,
    },
    /// This order was admitted before, with another quantity; nothing was changed.
    #[error(
        "order {order} was admitted before with another quantity: send the earlier quantity, or use a new order id"
    )]
    OtherQuantity {
        /// The id of the order.
        order: OrderId,
    },
    /// An earlier request under this idempotency key asked for other units or named other subjects; nothing was
    /// changed.
    #[error("an earlier request under this idempotency key was different: use a new key for a new request")]
    OtherRequest,
    /// The order is admitted, but it is unknown whether enough replicas have it ([`RedisStore::confirmed`]): a failover
    /// may lose it. A caller that repeats the request with the same order id waits for the replicas again.
    #[error("order {order} is admitted, but not confirmed by replicas: {why}")]
    Unconfirmed {
        /// The id of the admitted order.
        order: OrderId,
        /// The reason why the order is not confirmed.
        why: String,
    },
    /// A script answered, or a key holds, a value that this program does not know. Perhaps another version wrote it.
    #[error("{place} holds {got}, which this version does not understand")]
    Unexpected {
        /// The script or the key.
        place: String,
        /// The value that was found.
        got: String,
    },
}

impl From<Error> for ScriptError {
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

/// Turns an error of a script into the error about this order, if the script marked it so.
pub(crate) fn of_order(order: OrderId, error: Error) -> ScriptError {
    match error.details() {
        details if details.contains(": IDTAKEN ") => ScriptError::IdTaken { order },
        details if details.contains(": OTHERQTY ") => ScriptError::OtherQuantity { order },
        details if details.contains(": OTHERREQ ") => ScriptError::OtherRequest,
        _ => error.into(),
    }
}

pub(crate) fn understood<T>(
    script: &str,
    reply: &Value,
    from_code: fn(i64) -> Option<T>,
) -> Result<T, ScriptError> {
    let known = if let Value::Integer(code) = reply { from_code(*code) } else { None };
    known.ok_or_else(|| ScriptError::Unexpected { place: script.to_owned(), got: format!("{reply:?}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_no_script_gives_is_an_error() {
        for reply in [Value::Integer(9), Value::Integer(-1), Value::Null, Value::String("0".into())] {
            let error = understood("admit.lua", &reply, AdmitReply::from_code).unwrap_err();
            assert!(matches!(error, ScriptError::Unexpected { .. }), "{error}");
        }
    }
}
