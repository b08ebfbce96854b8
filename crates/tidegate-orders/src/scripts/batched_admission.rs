//! Sends admissions to Redis: single orders by `lua/admit.lua`, many orders of one voucher in one call by
//! `lua/admit_many.lua`, and requests under an idempotency key by `lua/admit_by_key.lua`.

use std::{collections::BTreeMap, sync::Arc};

use fred::{
    clients::Pool,
    error::{Error, ErrorKind},
    types::{Key, Value},
};
use futures_util::future::{join, join_all};
use tidegate_stream::Script;
use tokio::runtime::Handle;

use super::{
    Admission, AdmitReply, ScriptError,
    access::RedisAccess,
    batcher::{AdmitResult, Asked, Batcher, Caller, Joined, MOST},
    confirmed::ConfirmedCalls,
    idempotency::{AdmitScript, Decided, RequestKey},
    limited::{LimitedCalls, LimitedReply},
    of_order, understood,
};
use crate::{
    order::{OrderId, VoucherId},
    traceparent::Traceparent,
};

/// The answer of `lua/admit.lua` and `lua/admit_many.lua` for a voucher with limits.
const HAS_LIMITS: i64 = 12;
/// How often limits may be added or removed during one call.
const MOST_CHANGES: usize = 3;

/// Sends admissions to Redis, alone or in batches.
#[derive(Debug)]
pub(super) struct BatchedAdmission {
    access: RedisAccess,
    batcher: Batcher,
    confirmed: Option<Arc<ConfirmedCalls>>,
    limited: Arc<LimitedCalls>,
    admit: AdmitScript,
    admit_many: Script,
}

impl BatchedAdmission {
    /// Replaces `lua/admit.lua` by another script.
    pub(super) fn admitting_by(self, admit: Script) -> Self {
        Self { admit: self.admit.replaced_by(admit), ..self }
    }

    pub(super) fn new(access: RedisAccess, limited: Arc<LimitedCalls>) -> Self {
        Self {
            access,
            limited,
            batcher: Batcher::default(),
            confirmed: None,
            admit: AdmitScript::admit(),
            admit_many: Script::new("admit_many", include_str!("../../../../lua/admit_many.lua")),
        }
    }

    /// As [`super::RedisStore::confirmed`].
    pub(super) fn confirmed(self, confirmed: Arc<ConfirmedCalls>) -> Self {
        Self { confirmed: Some(confirmed), ..self }
    }

    /// Sends a request alone while few other requests arrive, and together with them in a rush. There is no script for
    /// many orders of a voucher with limits: each such request is sent alone, and none waits for the answer to another.
    /// The same holds for requests under a key.
    pub(super) async fn admit(
        self: &Arc<Self>,
        admission: &Admission,
        key: Option<&RequestKey>,
    ) -> AdmitResult {
        if self.confirmed.is_none() && (key.is_some() || self.limited.knows(admission.voucher)) {
            return self.admit_one(&self.access.pool, admission, key).await;
        }
        let answered = match self.batcher.join(admission, key) {
            Joined::Alone => {
                let _call = EndCallOnDrop { admissions: self, voucher: admission.voucher };
                return match &self.confirmed {
                    None => self.admit_one(&self.access.pool, admission, key).await,
                    Some(_) => {
                        let alone = [Asked::new(admission, key)];
                        self.admit_together(admission.voucher, &alone).await.swap_remove(0)
                    }
                };
            }
            Joined::FullCall(callers, answered) => {
                self.spawn_calls(admission.voucher, callers);
                answered
            }
            Joined::Queued(answered) => answered,
        };
        let ending =
            |_| ScriptError::Unreachable(Error::new(ErrorKind::Canceled, "the program is shutting down"));
        answered.await.map_err(ending)?
    }

    /// Sends the calls in a task of their own, so that they continue for the other callers if one caller stops waiting.
    fn spawn_calls(self: &Arc<Self>, voucher: VoucherId, callers: Vec<Caller>) {
        // There is no runtime while the program shuts down. Then the callers are dropped, and get an error.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Arc::clone(self).run_calls(voucher, callers));
        }
    }

    /// Sends one call after the other, until no caller waits for this voucher.
    async fn run_calls(self: Arc<Self>, voucher: VoucherId, callers: Vec<Caller>) {
        let mut next_call = Some(callers);
        while let Some(mut callers) = next_call {
            // No order is admitted for a caller that has gone away before the call.
            callers.retain(|caller| !caller.answer.is_closed());
            let (asked, answers): (Vec<_>, Vec<_>) =
                callers.into_iter().map(|caller| (caller.asked, caller.answer)).unzip();
            let replies = self.admit_together(voucher, &asked).await;
            for (answer, reply) in answers.into_iter().zip(replies) {
                // A caller may have gone away during the call. Its order stays admitted, and a retry with its id gets
                // that reply.
                let _gone = answer.send(reply);
            }
            next_call = self.batcher.end_call(voucher);
        }
    }

    /// As [`super::Admissions::admit_all`].
    pub(super) async fn admit_all(&self, admissions: &[Admission]) -> Vec<Result<AdmitReply, ScriptError>> {
        let mut places: BTreeMap<VoucherId, Vec<usize>> = BTreeMap::new();
        for (place, admission) in admissions.iter().enumerate() {
            places.entry(admission.voucher).or_default().push(place);
        }
        let of_voucher = async |(voucher, places): (VoucherId, Vec<usize>)| {
            let mut answers = Vec::with_capacity(places.len());
            for places in places.chunks(MOST) {
                let together: Vec<Asked> =
                    places.iter().map(|place| Asked::new(&admissions[*place], None)).collect();
                answers.extend(places.iter().copied().zip(self.admit_together(voucher, &together).await));
            }
            answers
        };
        let answers = join_all(places.into_iter().map(of_voucher)).await;
        in_order(answers.into_iter().flatten()).map(|answer| answer.map(|decided| decided.reply)).collect()
    }

    /// Admits orders of one voucher, at most [`MOST`].
    async fn admit_together(&self, voucher: VoucherId, asked: &[Asked]) -> Vec<AdmitResult> {
        let Some(calls) = &self.confirmed else {
            return self.call(&self.access.pool, voucher, asked).await;
        };
        let mut call = calls.begin().await;
        let mut answers = self.call(&call.pool(), voucher, asked).await;
        // The writes of this call come after all earlier writes, so one WAIT is enough for all of them.
        let mut admitted = answers.iter().flatten().filter(|decided| decided.reply.is_admitted());
        let is_new = admitted.clone().any(|decided| decided.reply == AdmitReply::Admitted);
        let confirmed = match admitted.next().map(|decided| decided.order) {
            _ if is_new => call.wait().await,
            Some(before) => call.wait_for(self.access.keys.journal(voucher), before).await,
            None => return answers,
        };
        if let Err(why) = confirmed {
            for answer in &mut answers {
                if let Ok(Decided { order, reply }) = answer
                    && reply.is_admitted()
                {
                    *answer = Err(ScriptError::Unconfirmed { order: *order, why: why.clone() });
                }
            }
        }
        answers
    }

    /// Sends requests under keys one by one, all at the same time, so that no caller waits for the answer to another.
    /// The other requests go together.
    async fn call(&self, pool: &Pool, voucher: VoucherId, asked: &[Asked]) -> Vec<AdmitResult> {
        let places = asked.iter().enumerate();
        let (keyed, others): (Vec<_>, Vec<_>) = places.partition(|(_, asked)| asked.key.is_some());
        let by_key = keyed.into_iter().map(async |(place, asked)| {
            (place, self.admit_one(pool, &asked.admission, asked.key.as_ref()).await)
        });
        let (places, admissions): (Vec<_>, Vec<_>) =
            others.into_iter().map(|(place, asked)| (place, &asked.admission)).unzip();
        let (by_key, answers) = join(join_all(by_key), self.admit_many(pool, voucher, &admissions)).await;
        in_order(by_key.into_iter().chain(places.into_iter().zip(answers))).collect()
    }

    /// Admits orders of one voucher, none of them under a key.
    async fn admit_many(
        &self,
        pool: &Pool,
        voucher: VoucherId,
        admissions: &[&Admission],
    ) -> Vec<AdmitResult> {
        if let Err(error) = self.is_own(voucher) {
            return refused(&error, admissions.len());
        }
        match admissions {
            [] => Vec::new(),
            [one] => vec![self.admit_one(pool, one, None).await],
            many if self.limited.knows(voucher) => self.each(pool, many).await,
            many => {
                let mut args = Vec::with_capacity(1 + 4 * many.len());
                args.push(voucher.get().into());
                args.extend(many.iter().flat_map(|admission| {
                    let Admission { order, user, quantity, .. } = admission;
                    [order.get().into(), user.get().into(), quantity.get().into(), traceparent(admission)]
                }));
                match self.admit_many.call(pool, self.admit_keys(voucher), args).await {
                    // The stock under the plain name is missing for all of them, so all of them have limits.
                    Ok(Value::Array(replies)) if replies.contains(&Value::Integer(HAS_LIMITS)) => {
                        self.limited.remember(voucher, None);
                        self.each(pool, many).await
                    }
                    Ok(Value::Array(replies)) if replies.len() == many.len() => {
                        many.iter().zip(&replies).map(|(one, reply)| answer(one.order, reply)).collect()
                    }
                    Ok(reply) => {
                        let place = "admit_many.lua".to_owned();
                        refused(&ScriptError::Unexpected { place, got: format!("{reply:?}") }, many.len())
                    }
                    Err(error) => refused(&error.into(), many.len()),
                }
            }
        }
    }

    /// Admits orders one by one, so that they are decided in their order.
    async fn each(&self, pool: &Pool, admissions: &[&Admission]) -> Vec<AdmitResult> {
        let mut answers = Vec::with_capacity(admissions.len());
        for admission in admissions {
            answers.push(self.admit_one(pool, admission, None).await);
        }
        answers
    }

    pub(super) async fn admit_one(
        &self,
        pool: &Pool,
        admission: &Admission,
        key: Option<&RequestKey>,
    ) -> AdmitResult {
        self.is_own(admission.voucher)?;
        // Limits may be added or removed between two calls.
        for _ in 0..MOST_CHANGES {
            if self.limited.knows(admission.voucher)
                && let LimitedReply::Answer(decided) =
                    self.limited.admit(pool, admission, key, traceparent(admission)).await?
            {
                return Ok(decided);
            }
            if let Some(decided) = self.admit_unlimited(pool, admission, key).await? {
                return Ok(decided);
            }
            self.limited.remember(admission.voucher, None);
        }
        let got = "a voucher whose limits were added and removed several times".to_owned();
        Err(ScriptError::Unexpected { place: "admit.lua".to_owned(), got })
    }

    /// Admits an order of a voucher without limits. `None` if the voucher has limits.
    async fn admit_unlimited(
        &self,
        pool: &Pool,
        admission: &Admission,
        key: Option<&RequestKey>,
    ) -> Result<Option<Decided<AdmitReply>>, ScriptError> {
        let Admission { order, user, voucher, quantity, .. } = admission;
        let args = vec![
            order.get().into(),
            user.get().into(),
            voucher.get().into(),
            quantity.get().into(),
            traceparent(admission),
        ];
        let decided = self.admit.call(pool, *order, key, self.admit_keys(*voucher), args).await;
        let Decided { order, reply } = decided.map_err(|error| of_order(*order, error))?;
        if reply == Value::Integer(HAS_LIMITS) {
            return Ok(None);
        }
        let reply = understood("admit.lua", &reply, AdmitReply::from_code)?;
        Ok(Some(Decided { order, reply }))
    }

    /// Checks that this partition owns the voucher. The keys of other vouchers are in another slot, and the workers
    /// here would bury the order.
    fn is_own(&self, voucher: VoucherId) -> Result<(), ScriptError> {
        match self.access.keys.partition().refuses(voucher) {
            None => Ok(()),
            Some(why) => Err(ScriptError::WrongPartition(why.error)),
        }
    }

    fn admit_keys(&self, voucher: VoucherId) -> Vec<Key> {
        vec![
            self.access.keys.stock(voucher),
            self.access.keys.buyers(voucher),
            self.access.keys.voucher(voucher),
            self.access.keys.journal(voucher),
            self.access.stream.clone(),
        ]
    }
}

/// Ends the call of a single caller, even if that caller stops waiting. Callers that came meanwhile go next.
struct EndCallOnDrop<'a> {
    admissions: &'a Arc<BatchedAdmission>,
    voucher: VoucherId,
}

impl Drop for EndCallOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(callers) = self.admissions.batcher.end_call(self.voucher) {
            self.admissions.spawn_calls(self.voucher, callers);
        }
    }
}

/// The trace context of an admission. It is empty if it is missing or invalid: no order is refused for that.
fn traceparent(admission: &Admission) -> Value {
    let valid =
        admission.traceparent.as_deref().filter(|value| Traceparent::parse(value.as_bytes()).is_some());
    valid.unwrap_or_default().into()
}

/// Reads one of the replies of `lua/admit_many.lua`: a number, or the text of an error.
fn answer(order: OrderId, reply: &Value) -> AdmitResult {
    match reply.as_str() {
        Some(text) if !reply.is_integer() => {
            let error = Error::new(ErrorKind::Unknown, format!("admit_many.lua: {text}"));
            Err(of_order(order, error))
        }
        _ => {
            let reply = understood("admit_many.lua", reply, AdmitReply::from_code)?;
            Ok(Decided { order, reply })
        }
    }
}

/// The same error for `many` requests.
fn refused(error: &ScriptError, many: usize) -> Vec<AdmitResult> {
    std::iter::repeat_with(|| Err(error.clone())).take(many).collect()
}

/// Sorts answers by their places.
fn in_order<T>(answers: impl Iterator<Item = (usize, T)>) -> impl Iterator<Item = T> {
    let mut answers: Vec<_> = answers.collect();
    answers.sort_unstable_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer)
}
