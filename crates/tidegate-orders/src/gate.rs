//! The gate: who gets an order is decided here, in Redis, by `lua/admit.lua`, and by `lua/admit_many.lua` for those who
//! come at the same time; what was not sold comes back here, by `lua/release.lua` and `lua/release_many.lua`.
//!
//! Every call may be sent again, by the client or by its caller, after a reply was lost: the order id decides, and
//! the second answer says so ([`AdmitReply::AdmittedBefore`], [`ReleaseReply::GivenBackBefore`]).

mod entrance;
mod release;
mod restock;
mod turnstile;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use fred::{
    clients::Pool,
    error::{Error, ErrorKind},
    interfaces::{HashesInterface, KeysInterface, SetsInterface},
    types::{Key, Value},
};
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use tidegate_stream::{Script, readable};

pub use self::restock::{ChangeState, RestockReply, StockChange};
use self::{entrance::Entrance, release::Releases};
use crate::{
    keys::{Keys, naming},
    order::{Order, OrderId, Quantity, UserId, VoucherId},
    wire::FieldNames,
};

const BEGIN_MS: &str = "begin_ms";
const END_MS: &str = "end_ms";
const STATE: &str = "state";
const PAUSE: &str = "pause";
const PAUSED: &str = "paused";
const WITH_ALL: &str = "all";

/// Somebody wants an order.
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
    /// W3C trace context that travels with the order; an invalid one is left out.
    pub traceparent: Option<String>,
}

/// What became of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// This order was admitted and given back: a new attempt needs a new order id.
    GivenBack,
}

impl AdmitReply {
    /// The order stands in the stream, now or since before.
    #[must_use]
    pub const fn is_admitted(self) -> bool {
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
    /// Still counts as a buyer: another order of this user stands.
    StaysBuyer,
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
}

impl ReleaseReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::GivenBackBefore,
            1 => Self::GivenBack,
            2 => Self::GivenBackWithoutStock,
            _ => return None,
        })
    }
}

/// When a sale is on, by the clock of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SaleWindow {
    /// First moment; None: since ever.
    pub begin: Option<Timestamp>,
    /// First moment after the sale; None: for ever.
    pub end: Option<Timestamp>,
}

/// What became of loading a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadReply {
    /// The sale is open, as far as its window goes.
    Loaded,
    /// Loaded, but the sale was paused before and still is.
    LoadedPaused,
    /// Refused: this voucher has a stock, and its sale has not ended.
    OnSale,
}

impl LoadReply {
    const fn from_code(code: i64) -> Option<Self> {
        Some(match code {
            0 => Self::Loaded,
            1 => Self::OnSale,
            2 => Self::LoadedPaused,
            _ => return None,
        })
    }
}

/// What Redis holds of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoucherState {
    /// Units left; None: no stock is loaded.
    pub stock: Option<i64>,
    /// Users who were admitted.
    pub buyers: u64,
    /// When it is on sale.
    pub window: SaleWindow,
    /// Whether an operator stopped the sale.
    pub pause: Pause,
    /// Orders in the journal.
    pub journaled: u64,
}

/// Whether an operator stopped a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Not stopped.
    Running,
    /// Stopped.
    Paused(Scope),
}

impl Pause {
    /// Stopped, in whichever way.
    #[must_use]
    pub const fn is_paused(self) -> bool {
        matches!(self, Self::Paused(_))
    }

    /// From the fields of a voucher's hash.
    fn from_fields(state: Option<&str>, pause: Option<&str>) -> Self {
        match (state, pause) {
            (Some(PAUSED), Some(WITH_ALL)) => Self::Paused(Scope::All),
            (Some(PAUSED), _) => Self::Paused(Scope::Own),
            _ => Self::Running,
        }
    }
}

/// Which sales a pause was meant for: what was stopped for a reason of its own does not go on with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This one, by its name.
    Own,
    /// All that were on sale.
    All,
}

impl Scope {
    const fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => WITH_ALL,
        }
    }
}

/// Why the gate gave no answer. Each says all in its own text, and names no source that would say it again. After any of
/// them a call may be repeated with the same order id.
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
    /// This very order was admitted before, with another quantity; nothing was changed.
    #[error("order {order} was admitted before, with another quantity")]
    OtherQuantity {
        /// The order.
        order: OrderId,
    },
    /// Redis holds or answers something that this program does not know: is another version at work?
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

/// The door to everything that decides who gets an order.
#[derive(Clone, Debug)]
pub struct Gate {
    pool: Pool,
    keys: Keys,
    entrance: Arc<Entrance>,
    releases: Releases,
    load: Script,
    restock: Script,
    pause: Script,
    resume: Script,
}

impl Gate {
    /// A gate to the stream of that name.
    #[must_use]
    pub fn new(pool: Pool, keys: Keys, stream: impl Into<Key>) -> Self {
        let entrance = Entrance::new(pool.clone(), keys.clone(), stream.into());
        Self {
            releases: Releases::new(pool.clone(), keys.clone()),
            pool,
            keys,
            entrance: Arc::new(entrance),
            load: Script::new("load", include_str!("../../../lua/load.lua")),
            restock: Script::new("restock", include_str!("../../../lua/restock.lua")),
            pause: Script::new("pause", include_str!("../../../lua/pause.lua")),
            resume: Script::new("resume", include_str!("../../../lua/resume.lua")),
        }
    }

    /// How to read the entries of its stream.
    pub(crate) fn fields(&self) -> &FieldNames {
        self.keys.fields()
    }

    /// Asks for an order. A refusal leaves no trace.
    ///
    /// Callers who come while others of the same voucher are on their way go together, in one call; whoever comes alone
    /// goes at once. Dropping the future does not withdraw the order, once it is on its way.
    ///
    /// # Errors
    /// See [`GateError`]. Ask again with the same order id.
    pub async fn admit(&self, wanted: &Admission) -> Result<AdmitReply, GateError> {
        self.entrance.admit(wanted).await
    }

    /// Asks for many orders. Each has its own answer, in the order of `wanted`: one that fails leaves its neighbours
    /// alone. Orders of one voucher are decided on in that order, too.
    pub async fn admit_all(&self, wanted: &[Admission]) -> Vec<Result<AdmitReply, GateError>> {
        self.entrance.admit_all(wanted).await
    }

    /// Gives an order back: its units, and its user's right to order.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn release(&self, release: &Release) -> Result<ReleaseReply, GateError> {
        self.releases.release(release).await
    }

    /// Gives many orders back, those of one voucher in one call. Each has its own answer, in the order of `releases`: one
    /// that fails leaves its neighbours alone.
    pub async fn release_all(&self, releases: &[Release]) -> Vec<Result<ReleaseReply, GateError>> {
        self.releases.release_all(releases).await
    }

    /// Which of these orders the journal knows as given back. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn given_back(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashSet<(VoucherId, OrderId)>, GateError> {
        let notes = self.notes(orders).await?;
        Ok(notes.into_iter().filter(|(_, note)| is_release(note)).map(|(order, _)| order).collect())
    }

    /// Of each of these orders, whether its id is admitted, by the journal, for another user: nothing can be given back
    /// by it. Reads only.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn are_of_others(&self, orders: &[Order]) -> Result<Vec<bool>, GateError> {
        let ids: Vec<_> = orders.iter().map(|order| (order.voucher, order.id)).collect();
        let notes = self.notes(&ids).await?;
        let is_of_another = |order: &Order| {
            notes.get(&(order.voucher, order.id)).is_some_and(|note| is_of_another(note, order.user))
        };
        Ok(orders.iter().map(is_of_another).collect())
    }

    /// What the journals say of these orders.
    async fn notes(
        &self,
        orders: &[(VoucherId, OrderId)],
    ) -> Result<HashMap<(VoucherId, OrderId), Bytes>, GateError> {
        let mut by_voucher: BTreeMap<VoucherId, Vec<OrderId>> = BTreeMap::new();
        for (voucher, order) in orders {
            by_voucher.entry(*voucher).or_default().push(*order);
        }
        let of_voucher = async |(voucher, orders): (VoucherId, Vec<OrderId>)| {
            let names: Vec<String> = orders.iter().map(OrderId::to_string).collect();
            let key = self.keys.journal(voucher);
            let notes = self.pool.hmget(&key, names).await;
            let notes: Vec<Option<Bytes>> = notes.map_err(|error| naming(&key, error))?;
            let noted = orders.into_iter().zip(notes);
            Ok::<_, GateError>(noted.filter_map(move |(order, note)| Some(((voucher, order), note?))))
        };
        Ok(try_join_all(by_voucher.into_iter().map(of_voucher)).await?.into_iter().flatten().collect())
    }

    /// Opens the sale of a voucher with this many units, unless one is on. Buyers of an earlier sale stay buyers.
    ///
    /// # Errors
    /// See [`GateError`]. More than 13 digits of stock, or a window that ends before it begins, are
    /// [`GateError::Refused`].
    pub async fn load(
        &self,
        voucher: VoucherId,
        stock: u64,
        window: SaleWindow,
    ) -> Result<LoadReply, GateError> {
        let keys = vec![self.keys.stock(voucher), self.keys.voucher(voucher)];
        let ms = |bound: Option<Timestamp>| {
            bound.map_or_else(String::new, |bound| bound.as_millisecond().to_string())
        };
        let args = vec![stock.to_string().into(), ms(window.begin).into(), ms(window.end).into()];
        let reply = self.load.call(&self.pool, keys, args).await?;
        understood("load.lua", &reply, LoadReply::from_code)
    }

    /// Stops the sale of a voucher; whoever asks is refused with [`AdmitReply::Paused`]. Returns whether it was running
    /// until now. A pause of its own stays one; one together with all others becomes its own by [`Scope::Own`].
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn pause(&self, voucher: VoucherId, scope: Scope) -> Result<bool, GateError> {
        let (keys, args) = (vec![self.keys.voucher(voucher)], vec![scope.word().into()]);
        understood("pause.lua", &self.pause.call(&self.pool, keys, args).await?, flag)
    }

    /// Ends a pause: with [`Scope::Own`] any, with [`Scope::All`] only one together with all others. Returns whether
    /// there was one.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn resume(&self, voucher: VoucherId, scope: Scope) -> Result<bool, GateError> {
        let (keys, args) = (vec![self.keys.voucher(voucher)], vec![scope.word().into()]);
        understood("resume.lua", &self.resume.call(&self.pool, keys, args).await?, flag)
    }

    /// Whether the sales of many vouchers are stopped, in one round trip. Each has its own answer, in that order: a key
    /// of another type leaves its neighbours alone.
    pub async fn read_pauses(&self, vouchers: &[VoucherId]) -> Vec<Result<Pause, GateError>> {
        let client = self.pool.next();
        join_all(vouchers.iter().map(|voucher| async {
            let key = self.keys.voucher(*voucher);
            let fields = client.hmget(&key, vec![STATE, PAUSE]).await;
            let fields: Vec<Option<String>> = fields.map_err(|error| naming(&key, error))?;
            let [state, pause] = <[_; 2]>::try_from(fields).unwrap_or_default();
            Ok(Pause::from_fields(state.as_deref(), pause.as_deref()))
        }))
        .await
    }

    /// What Redis holds of a voucher, in one round trip. While the sale is on, the figures may be of slightly
    /// different moments.
    ///
    /// # Errors
    /// See [`GateError`].
    pub async fn read_voucher(&self, voucher: VoucherId) -> Result<VoucherState, GateError> {
        let (stock_key, sale_key) = (self.keys.stock(voucher), self.keys.voucher(voucher));
        let (buyers_key, journal_key) = (self.keys.buyers(voucher), self.keys.journal(voucher));
        let client = self.pool.next();
        let (stock, buyers, sale, journaled) = tokio::join!(
            client.get::<Option<String>, _>(&stock_key),
            client.scard::<u64, _>(&buyers_key),
            client.hmget::<Vec<Option<String>>, _, _>(&sale_key, vec![BEGIN_MS, END_MS, STATE, PAUSE]),
            client.hlen::<u64, _>(&journal_key),
        );
        let stock = stock.map_err(|error| naming(&stock_key, error))?;
        let buyers = buyers.map_err(|error| naming(&buyers_key, error))?;
        let sale = sale.map_err(|error| naming(&sale_key, error))?;
        let journaled = journaled.map_err(|error| naming(&journal_key, error))?;
        let [begin, end, state, pause] = <[_; 4]>::try_from(sale).unwrap_or_default();
        let window = SaleWindow { begin: moment(&sale_key, begin)?, end: moment(&sale_key, end)? };
        let pause = Pause::from_fields(state.as_deref(), pause.as_deref());
        Ok(VoucherState { stock: number(&stock_key, stock)?, buyers, window, pause, journaled })
    }
}

/// The scripts mark these errors, which are no fault of Redis.
pub(crate) fn of_order(order: OrderId, error: Error) -> GateError {
    match error.details() {
        details if details.contains(": IDTAKEN ") => GateError::IdTaken { order },
        details if details.contains(": OTHERQTY ") => GateError::OtherQuantity { order },
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

fn flag(code: i64) -> Option<bool> {
    match code {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// By the same words as the scripts.
fn is_release(note: &[u8]) -> bool {
    String::from_utf8_lossy(note).contains(r#""action":"release""#)
}

/// By the same words as the scripts, too.
fn is_of_another(note: &[u8], user: UserId) -> bool {
    !is_release(note) && !String::from_utf8_lossy(note).contains(&format!(r#""by":"{user}""#))
}

fn moment(key: &Key, ms: Option<String>) -> Result<Option<Timestamp>, GateError> {
    let Some(ms) = number(key, ms)? else { return Ok(None) };
    match Timestamp::from_millisecond(ms) {
        Ok(moment) => Ok(Some(moment)),
        Err(_) => Err(not_understood(key, ms.to_string())),
    }
}

fn number(key: &Key, text: Option<String>) -> Result<Option<i64>, GateError> {
    text.map(|text| text.parse().map_err(|_| not_understood(key, text))).transpose()
}

fn not_understood(key: &Key, got: String) -> GateError {
    GateError::Unexpected { place: key.as_str_lossy().into_owned(), got: format!("{got:?}") }
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
