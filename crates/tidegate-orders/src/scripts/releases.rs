//! Releases orders: single ones by `lua/release.lua`, many of one voucher in one call by `lua/release_many.lua`.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use fred::{
    error::{Error, ErrorKind},
    types::{Key, Value},
};
use futures_util::future::join_all;
use tidegate_stream::Script;

use super::{
    Release, ReleaseReply, ScriptError, SoldOut, UserAfter, access::RedisAccess, limited::LimitedCalls,
    of_order, understood,
};
use crate::order::{OrderId, Quantity, VoucherId};

/// The maximum number of orders in one call. Redis does nothing else during the call.
const MOST: usize = 250;

type ReleaseResult = Result<ReleaseReply, ScriptError>;

/// The values that orders in one call have in common: the voucher, whether the user is freed, and who releases them.
type CallKey = (VoucherId, bool, Cow<'static, str>);

/// Access to the scripts that release orders: they return the units of orders that will not be written to MySQL.
#[derive(Clone, Debug)]
pub struct Releases {
    access: RedisAccess,
    release: Script,
    release_many: Script,
    limited: Arc<LimitedCalls>,
    sold_out: Option<Arc<SoldOut>>,
}

impl Releases {
    pub(super) fn new(access: &RedisAccess, limited: Arc<LimitedCalls>) -> Self {
        Self {
            access: access.clone(),
            release: Script::new("release", include_str!("../../../../lua/release.lua")),
            release_many: Script::new("release_many", include_str!("../../../../lua/release_many.lua")),
            limited,
            sold_out: None,
        }
    }

    /// As [`super::RedisStore::with_sold_out`].
    pub(super) fn with_sold_out(self, sold_out: Arc<SoldOut>) -> Self {
        Self { sold_out: Some(sold_out), ..self }
    }

    /// Releases an order: returns its units to the stock, and lets its user order again.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn release(&self, release: &Release) -> Result<ReleaseReply, ScriptError> {
        let reply = self.release_one(release).await;
        self.tell_released(&[release.voucher]);
        reply
    }

    /// Releases many orders (returns their units), with one call for all orders of a voucher. Returns one answer for
    /// each order, in the sequence of `releases`. If an order fails, the other orders are not affected.
    pub async fn release_all(&self, releases: &[Release]) -> Vec<Result<ReleaseReply, ScriptError>> {
        let replies = self.release_each(releases).await;
        if self.sold_out.is_some() {
            self.tell_released(&releases.iter().map(|release| release.voucher).collect::<Vec<_>>());
        }
        replies
    }

    /// Notes that units may have returned, whatever the reply is: a lost reply may have been a success.
    fn tell_released(&self, vouchers: &[VoucherId]) {
        if let Some(sold_out) = self.sold_out.as_deref().filter(|_| !vouchers.is_empty()) {
            sold_out.forget(vouchers.iter().copied());
        }
    }

    async fn release_each(&self, releases: &[Release]) -> Vec<ReleaseResult> {
        let mut places: BTreeMap<CallKey, Vec<usize>> = BTreeMap::new();
        for (place, release) in releases.iter().enumerate() {
            let call = (release.voucher, release.frees(), release.by.clone());
            places.entry(call).or_default().push(place);
        }
        let send = async |places: &[usize]| {
            let together: Vec<&Release> = places.iter().map(|place| &releases[*place]).collect();
            places.iter().copied().zip(self.release_together(&together).await).collect::<Vec<_>>()
        };
        let calls = places.values().flat_map(|places| places.chunks(MOST)).map(send);
        let mut answers = join_all(calls).await.concat();
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Releases orders with one [`CallKey`], at most [`MOST`].
    async fn release_together(&self, releases: &[&Release]) -> Vec<ReleaseResult> {
        let first = match releases {
            [] => return Vec::new(),
            [one] => return vec![self.release_one(one).await],
            [first, ..] => first,
        };
        let mut args: Vec<Value> = Vec::with_capacity(2 + 3 * releases.len());
        args.extend([i64::from(first.frees()).into(), first.by.as_ref().into()]);
        args.extend(releases.iter().flat_map(|release| {
            [release.order.get().into(), release.user.get().into(), release.units().into()]
        }));
        match self.release_many.call(&self.access.pool, self.keys_of(first.voucher), args).await {
            Ok(Value::Array(replies)) if replies.len() == releases.len() => {
                let mut answers = Vec::with_capacity(releases.len());
                for (release, reply) in releases.iter().zip(&replies) {
                    answers.push(match answer(release.order, reply) {
                        // One after the other, because the same order may occur twice here.
                        Err(error) if is_limited(&error) => self.limited.release(release).await,
                        answer => answer,
                    });
                }
                answers
            }
            Ok(reply) => {
                let place = "release_many.lua".to_owned();
                vec![Err(ScriptError::Unexpected { place, got: format!("{reply:?}") }); releases.len()]
            }
            Err(error) => vec![Err(error.into()); releases.len()],
        }
    }

    async fn release_one(&self, release: &Release) -> ReleaseResult {
        let args = vec![
            release.order.get().into(),
            release.user.get().into(),
            release.units().into(),
            i64::from(release.frees()).into(),
            release.by.as_ref().into(),
        ];
        let reply = self.release.call(&self.access.pool, self.keys_of(release.voucher), args).await;
        match reply.map_err(|error| of_order(release.order, error)) {
            Err(error) if is_limited(&error) => self.limited.release(release).await,
            reply => understood("release.lua", &reply?, ReleaseReply::from_code),
        }
    }

    fn keys_of(&self, voucher: VoucherId) -> Vec<Key> {
        vec![
            self.access.keys.stock(voucher),
            self.access.keys.buyers(voucher),
            self.access.keys.journal(voucher),
        ]
    }
}

impl Release {
    fn frees(&self) -> bool {
        self.user_after == UserAfter::Freed
    }

    fn units(&self) -> i64 {
        self.units.map_or(0, Quantity::get)
    }
}

/// Whether the voucher has limits, or had them when the order was admitted.
fn is_limited(error: &ScriptError) -> bool {
    matches!(error, ScriptError::Refused(error) if error.details().contains(": LIMITED "))
}

/// Reads one of the answers of `lua/release_many.lua`: a number, or the text of an error.
fn answer(order: OrderId, reply: &Value) -> ReleaseResult {
    match reply.as_str() {
        Some(text) if !reply.is_integer() => {
            let error = Error::new(ErrorKind::Unknown, format!("release_many.lua: {text}"));
            Err(of_order(order, error))
        }
        _ => understood("release_many.lua", reply, ReleaseReply::from_code),
    }
}
