//! The gate decides in Redis who gets an order: by `lua/admit.lua`, by `lua/admit_many.lua` for callers who come at the same
//! time, or by `lua/admit_by_key.lua` for those who choose a key. What is not sold comes back by `lua/release.lua` and
//! `lua/release_many.lua`.
//!
//! Every call may be repeated after a reply was lost. The order id decides, and the second answer says so
//! ([`AdmitReply::AdmittedBefore`], [`ReleaseReply::GivenBackBefore`]).

mod batched_admission;
mod batcher;
mod brake;
mod confirmed;
mod counted;
mod delist;
mod fold;
mod held;
mod idempotency;
mod limited;
mod memory;
mod moment;
mod moving;
mod recount;
mod release;
mod repair;
mod sales;
mod scan;
mod shown_limits;
mod sold_out;
mod stock_change;
mod sum;
mod sweep;
mod switch_over;
mod uses;
mod would_admit;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use fred::{
    clients::Pool,
    error::{Error, ErrorKind},
    interfaces::HashesInterface,
    types::{Key, Value},
};
use futures_util::future::try_join_all;
use tidegate_stream::{Script, readable};

use self::{
    batched_admission::BatchedAdmission,
    batcher::AdmitResult,
    idempotency::{Decided, RequestKey},
    limited::LimitedCalls,
    moving::Moves,
    release::Releases,
    uses::UseCalls,
};
pub use self::{
    brake::{Brake, BusyMarks},
    delist::{DelistReply, RemovedKeys, SaleKeys},
    fold::{FoldReply, MOST_FOLDED, OrderFold},
    idempotency::{BadIdempotencyKey, IdempotencyKey, KEY_KEPT},
    moving::{ArriveReply, DepartReply, SaleSize},
    recount::HeldLimits,
    repair::{
        MOST_REPAIRED, OrderRepair, RepairAction, RepairAnswer, RepairGuard, RepairReply, VoucherRepair,
    },
    sales::{JournalUse, LoadReply, Pause, SaleWindow, Scope, VoucherState},
    scan::ScanPages,
    shown_limits::LimitReply,
    sold_out::SoldOut,
    stock_change::{ChangeReply, ChangeState, NotedTransfer, StockChange, StockTransfer, WholeChange},
    sum::SumCheck,
    switch_over::{NewSale, StagedSale, SwitchReply, rebuild_id},
    uses::{SetUse, UsesMoment},
};
pub use crate::records::journal::Moment;
use crate::{
    keys::{Keys, naming},
    limits::{LimitReached, RateReached, Subjects},
    order::{OrderId, Quantity, UserId, VoucherId},
    partition::Partition,
    records::journal::{JournalNote, LIMITED, UnderLimits},
    wire::FieldNames,
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
    /// This order was admitted and given back: a new attempt needs a new order id.
    GivenBack,
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
            8 => Self::GivenBack,
            11 => Self::Busy,
            _ => return None,
        })
    }
}

/// An admitted order that will not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Its id: the same order is given back once, however often this is asked.
    pub order: OrderId,
    /// Whose it was.
    pub user: UserId,
    /// What it was for.
    pub voucher: VoucherId,
    /// Units that go back to the stock; None where they are not for sale any more.
    pub units: Option<Quantity>,
    /// Whether the user may order again.
    pub user_after: UserAfter,
    /// Who gives it back and why, for the journal: `worker:out_of_stock`. 1 to 64 of `A-Z a-z 0-9 _ . : -`.
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
    /// Given back now.
    GivenBack,
    /// Was given back before; nothing changed.
    GivenBackBefore,
    /// Given back now, but Redis holds no stock of this voucher (its data was lost): no unit was raised.
    GivenBackWithoutStock,
    /// Nothing to give back: the journal is complete, and does not hold the order as admitted. Nothing changed.
    NotAdmitted,
    /// Nothing to give back: Redis holds no key of this sale, because it was delisted, or because its data was lost. Nothing
    /// changed, and no key was made.
    NoSale,
}

impl ReleaseReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::GivenBackBefore,
            1 => Self::GivenBack,
            2 => Self::GivenBackWithoutStock,
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
    /// The order is admitted, but nobody knows whether enough replicas have it ([`Gate::confirmed`]): a failover may lose it.
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

/// The scripts and keys that decide who gets an order.
#[derive(Clone, Debug)]
pub struct Gate {
    pool: Pool,
    keys: Keys,
    stream: Key,
    batched_admission: Arc<BatchedAdmission>,
    releases: Releases,
    limited: Arc<LimitedCalls>,
    brake: Script,
    fold: Script,
    limit: Script,
    load: Script,
    recount: Script,
    sweep: Script,
    repair: Script,
    restock: Script,
    pause: Script,
    resume: Script,
    moment: Script,
    moves: Moves,
    switch_over: Script,
    transfer: Script,
    uses: UseCalls,
    sold_out: Option<Arc<SoldOut>>,
    delist: Script,
    remove_delisted: Script,
}

impl Gate {
    /// A gate to the stream of that name.
    #[must_use]
    pub fn new(pool: Pool, keys: Keys, stream: impl Into<Key>) -> Self {
        let stream = stream.into();
        let limited = Arc::new(LimitedCalls::new(keys.clone(), stream.clone()));
        let (own_pool, own_keys, own_stream) = (pool.clone(), keys.clone(), stream.clone());
        let batched_admission = BatchedAdmission::new(own_pool, own_keys, own_stream, Arc::clone(&limited));
        Self {
            releases: Releases::new(pool.clone(), keys.clone(), Arc::clone(&limited)),
            limited,
            pool,
            keys,
            stream,
            batched_admission: Arc::new(batched_admission),
            brake: Script::new("brake", include_str!("../../../lua/brake.lua")),
            fold: Script::new("fold", include_str!("../../../lua/fold.lua")),
            limit: Script::new("limit", include_str!("../../../lua/limit.lua")),
            load: Script::new("load", include_str!("../../../lua/load.lua")),
            sweep: Script::new("sweep_uses", include_str!("../../../lua/sweep_uses.lua")),
            recount: Script::new("recount", include_str!("../../../lua/recount.lua")),
            repair: Script::new("repair", include_str!("../../../lua/repair.lua")),
            restock: Script::new("restock", include_str!("../../../lua/restock.lua")),
            pause: Script::new("pause", include_str!("../../../lua/pause.lua")),
            resume: Script::new("resume", include_str!("../../../lua/resume.lua")),
            moment: Script::new("moment", include_str!("../../../lua/moment.lua")),
            moves: Moves::new(),
            transfer: Script::new("transfer", include_str!("../../../lua/transfer.lua")),
            uses: UseCalls::new(),
            sold_out: None,
            switch_over: Script::new("switch_over", include_str!("../../../lua/switch_over.lua")),
            delist: Script::new("delist", include_str!("../../../lua/delist.lua")),
            remove_delisted: Script::new("remove_delisted", include_str!("../../../lua/remove_delisted.lua")),
        }
    }

    /// As this one, but it says that an order is admitted only when replicas have it; until then, or if they do not get it in
    /// time, callers hear [`GateError::Unconfirmed`]. Refusals are not waited for.
    ///
    /// Each of `connections` is a pool of one connection to the master of this gate, which nobody else uses. As many calls
    /// are on their way at once as there are connections. A call of many orders waits once.
    #[must_use]
    pub fn confirmed(mut self, confirmation: Confirmation, connections: Vec<Pool>) -> Self {
        let (pool, keys, stream) = (self.pool.clone(), self.keys.clone(), self.stream.clone());
        let admissions = BatchedAdmission::new(pool, keys, stream, Arc::clone(&self.limited));
        let admissions = admissions.confirmed(confirmation, connections);
        self.batched_admission = Arc::new(admissions);
        self
    }

    /// As this one, but it tells `sold_out` when Redis refuses somebody for want of units, and when some come back.
    #[must_use]
    pub fn telling(self, sold_out: Arc<SoldOut>) -> Self {
        Self { sold_out: Some(sold_out), ..self }
    }

    /// The partition whose vouchers it admits orders of.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        self.keys.partition()
    }

    /// How to read the entries of its stream.
    pub(crate) fn fields(&self) -> &FieldNames {
        self.keys.fields()
    }

    /// Asks for an order. A refusal leaves no trace.
    ///
    /// A caller who comes alone is sent at once, by `lua/admit.lua`. In a rush, callers of one voucher are sent together, in
    /// one call of `lua/admit_many.lua`. Dropping the future does not cancel a call that is on its way.
    ///
    /// # Errors
    /// See [`GateError`]. Ask again with the same order id.
    pub async fn admit(&self, admission: &Admission) -> Result<AdmitReply, GateError> {
        Ok(self.decide(admission, None).await?.reply)
    }

    /// As [`Gate::admit`], for a request under a key of the caller's choice: whoever asks again under the same key asks for the same
    /// order. Answers with the id of that order, too: the one that was asked for first.
    ///
    /// Order and key are written in one step, by `lua/admit_by_key.lua`. The key is remembered for [`KEY_KEPT`] from the last time
    /// that the order was asked for. A refusal leaves no trace.
    ///
    /// # Errors
    /// See [`GateError`]. Ask again under the same key.
    pub async fn admit_by_key(
        &self,
        key: &IdempotencyKey,
        admission: &Admission,
    ) -> Result<(OrderId, AdmitReply), GateError> {
        let key = RequestKey::new(&self.keys, key, admission);
        let Decided { order, reply } = self.decide(admission, Some(&key)).await?;
        Ok((order, reply))
    }

    async fn decide(&self, admission: &Admission, key: Option<&RequestKey>) -> AdmitResult {
        let asked_at = Instant::now();
        let decided = self.batched_admission.admit(admission, key).await;
        if let (Some(sold_out), Ok(Decided { reply: AdmitReply::SoldOut, .. })) = (&self.sold_out, &decided) {
            sold_out.note(admission.voucher, admission.quantity, asked_at);
        }
        decided
    }

    /// Asks for many orders. Each has its own answer, in the order of `admissions`: one that fails does not concern the
    /// others. Orders of one voucher are decided on in that order, too.
    pub async fn admit_all(&self, admissions: &[Admission]) -> Vec<Result<AdmitReply, GateError>> {
        self.batched_admission.admit_all(admissions).await
    }

    /// Gives an order back: its units, and its user's right to order.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn release(&self, release: &Release) -> Result<ReleaseReply, GateError> {
        let reply = self.releases.release(release).await;
        self.tell_released(&[release.voucher]);
        reply
    }

    /// Gives many orders back, those of one voucher in one call. Each has its own answer, in the order of `releases`: one
    /// that fails leaves its neighbours alone.
    pub async fn release_all(&self, releases: &[Release]) -> Vec<Result<ReleaseReply, GateError>> {
        let replies = self.releases.release_all(releases).await;
        if self.sold_out.is_some() {
            self.tell_released(&releases.iter().map(|release| release.voucher).collect::<Vec<_>>());
        }
        replies
    }

    /// Whatever came of it: a reply that was lost may have been a yes.
    fn tell_released(&self, vouchers: &[VoucherId]) {
        if let Some(sold_out) = self.sold_out.as_deref().filter(|_| !vouchers.is_empty()) {
            sold_out.forget(vouchers.iter().copied());
        }
    }

    /// Whether a voucher has limits: then its stock is under another name. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn has_limits(&self, voucher: VoucherId) -> Result<bool, GateError> {
        let key = self.keys.journal(voucher);
        let noted: Option<String> =
            self.pool.hget(&key, LIMITED).await.map_err(|error| naming(&key, error))?;
        Ok(noted.is_some())
    }

    /// Which of these orders the journal knows as given back. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn given_back(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, GateError> {
        let entries = self.journal_entries(orders).await?;
        Ok(entries.into_iter().filter(|(_, entry)| entry.is_release()).map(|(order, _)| order).collect())
    }

    /// Which of these orders the journals hold as they were admitted: neither lost, nor given back, nor restored since. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn never_lost(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, GateError> {
        let entries = self.journal_entries(orders).await?;
        let is_whole = |entry: &JournalNote| !entry.is_release() && entry.mended.is_none();
        Ok(entries.into_iter().filter(|(_, entry)| is_whole(entry)).map(|(order, _)| order).collect())
    }

    /// Of which of these orders the journals hold a note, whatever it says. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn journaled(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, GateError> {
        Ok(self.journal_entries(orders).await?.into_keys().collect())
    }

    /// What these orders have under limits, by the journals: of those that were admitted under some, and hold it. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn under_limits(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashMap<(VoucherId, OrderId), UnderLimits>, GateError> {
        let entries = self.journal_entries(orders).await?;
        Ok(entries.into_iter().filter_map(|(order, entry)| Some((order, entry.limited?))).collect())
    }

    /// Of each of these orders, whether its id is admitted, by the journal, for another user: nothing can be given back
    /// by it, and nobody else's word ends it. A note that cannot be read is somebody else's. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn are_of_others(
        &self,
        orders: &[(OrderId, UserId, VoucherId)],
    ) -> Result<Vec<bool>, GateError> {
        let ids: Vec<_> = orders.iter().map(|(order, _, voucher)| (*voucher, *order)).collect();
        let entries = self.journal_entries(&ids).await?;
        let is_of_another = |(order, user, voucher): &(OrderId, UserId, VoucherId)| {
            let entry = entries.get(&(*voucher, *order));
            entry.is_some_and(|entry| !entry.is_release() && !entry.is_by(*user))
        };
        Ok(orders.iter().map(is_of_another).collect())
    }

    /// What the journals say of these orders. A note that cannot be read is an entry by nobody.
    pub(crate) async fn journal_entries(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashMap<(VoucherId, OrderId), JournalNote>, GateError> {
        let mut by_voucher: BTreeMap<VoucherId, Vec<OrderId>> = BTreeMap::new();
        for (voucher, order) in orders {
            by_voucher.entry(*voucher).or_default().push(*order);
        }
        let of_voucher = async |(voucher, orders): (VoucherId, Vec<OrderId>)| {
            let names: Vec<String> = orders.iter().map(OrderId::to_string).collect();
            let key = self.keys.journal(voucher);
            let notes = self.pool.hmget(&key, names).await;
            let notes: Vec<Option<Bytes>> = notes.map_err(|error| naming(&key, error))?;
            let entry = |note: Bytes| JournalNote::parse(&note).unwrap_or_default();
            let noted = orders.into_iter().zip(notes);
            Ok::<_, GateError>(noted.filter_map(move |(order, note)| Some(((voucher, order), entry(note?)))))
        };
        Ok(try_join_all(by_voucher.into_iter().map(of_voucher)).await?.into_iter().flatten().collect())
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
