//! How orders are asked for: one by one by `lua/admit.lua`, or many in one call by `lua/admit_many.lua`.

use std::{collections::BTreeMap, sync::Arc};

use fred::{
    clients::Pool,
    error::{Error, ErrorKind},
    types::{Key, Value},
};
use futures_util::future::join_all;
use tidegate_stream::Script;
use tokio::runtime::Handle;

use super::{
    Admission, AdmitReply, GateError, of_order,
    turnstile::{Answer, Caller, MOST, Turn, Turnstile},
    understood,
};
use crate::{
    keys::Keys,
    order::{OrderId, VoucherId},
    traceparent::Traceparent,
};

/// Where callers come in.
#[derive(Debug)]
pub(super) struct Entrance {
    pool: Pool,
    keys: Keys,
    stream: Key,
    turnstile: Turnstile,
    admit: Script,
    admit_many: Script,
}

impl Entrance {
    pub(super) fn new(pool: Pool, keys: Keys, stream: Key) -> Self {
        Self {
            pool,
            keys,
            stream,
            turnstile: Turnstile::default(),
            admit: Script::new("admit", include_str!("../../../../lua/admit.lua")),
            admit_many: Script::new("admit_many", include_str!("../../../../lua/admit_many.lua")),
        }
    }

    /// Alone if nobody else comes, together with others if they do.
    pub(super) async fn admit(self: &Arc<Self>, wanted: &Admission) -> Answer {
        let answered = match self.turnstile.enter(wanted) {
            Turn::Now => {
                let _turn = EndOfTurn { entrance: self, voucher: wanted.voucher };
                return self.admit_alone(wanted).await;
            }
            Turn::Together(callers, answered) => {
                self.spawn(wanted.voucher, callers);
                answered
            }
            Turn::Later(answered) => answered,
        };
        let ending = |_| GateError::Unreachable(Error::new(ErrorKind::Canceled, "the program is ending"));
        answered.await.map_err(ending)?
    }

    /// A task of its own, so that nobody is left standing when one caller does not wait any more.
    fn spawn(self: &Arc<Self>, voucher: VoucherId, callers: Vec<Caller>) {
        // None while the program ends: then they hear so.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Arc::clone(self).let_through(voucher, callers));
        }
    }

    async fn let_through(self: Arc<Self>, voucher: VoucherId, together: Vec<Caller>) {
        let mut together = Some(together);
        while let Some(mut callers) = together {
            // Who has gone away meanwhile wants nothing any more.
            callers.retain(|caller| !caller.answer.is_closed());
            let (wanted, answers): (Vec<_>, Vec<_>) =
                callers.into_iter().map(|caller| (caller.wanted, caller.answer)).unzip();
            let replies = self.admit_together(voucher, &wanted).await;
            for (answer, reply) in answers.into_iter().zip(replies) {
                // It may have gone away just now; the order is kept, and the same id tells so.
                let _gone = answer.send(reply);
            }
            together = self.turnstile.next(voucher);
        }
    }

    /// As [`super::Gate::admit_all`].
    pub(super) async fn admit_all(&self, wanted: &[Admission]) -> Vec<Answer> {
        let mut places: BTreeMap<VoucherId, Vec<usize>> = BTreeMap::new();
        for (place, admission) in wanted.iter().enumerate() {
            places.entry(admission.voucher).or_default().push(place);
        }
        let of_voucher = async |(voucher, places): (VoucherId, Vec<usize>)| {
            let mut answers = Vec::with_capacity(places.len());
            for places in places.chunks(MOST) {
                let wanted: Vec<Admission> = places.iter().map(|place| wanted[*place].clone()).collect();
                answers.extend(places.iter().copied().zip(self.admit_together(voucher, &wanted).await));
            }
            answers
        };
        let mut answers = join_all(places.into_iter().map(of_voucher)).await.concat();
        answers.sort_unstable_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// All of one voucher; at most [`MOST`].
    async fn admit_together(&self, voucher: VoucherId, wanted: &[Admission]) -> Vec<Answer> {
        match wanted {
            [] => Vec::new(),
            [alone] => vec![self.admit_alone(alone).await],
            many => {
                let mut args = Vec::with_capacity(1 + 4 * many.len());
                args.push(voucher.get().into());
                args.extend(many.iter().flat_map(|admission| {
                    let Admission { order, user, quantity, .. } = admission;
                    [order.get().into(), user.get().into(), quantity.get().into(), traceparent(admission)]
                }));
                match self.admit_many.call(&self.pool, self.admit_keys(voucher), args).await {
                    Ok(Value::Array(replies)) if replies.len() == many.len() => {
                        many.iter().zip(&replies).map(|(wanted, reply)| answer(wanted.order, reply)).collect()
                    }
                    Ok(reply) => {
                        let place = "admit_many.lua".to_owned();
                        vec![Err(GateError::Unexpected { place, got: format!("{reply:?}") }); many.len()]
                    }
                    Err(error) => vec![Err(error.into()); many.len()],
                }
            }
        }
    }

    async fn admit_alone(&self, wanted: &Admission) -> Answer {
        let Admission { order, user, voucher, quantity, .. } = wanted;
        let args = vec![
            order.get().into(),
            user.get().into(),
            voucher.get().into(),
            quantity.get().into(),
            traceparent(wanted),
        ];
        let reply = self.admit.call(&self.pool, self.admit_keys(*voucher), args).await;
        understood("admit.lua", &reply.map_err(|error| of_order(*order, error))?, AdmitReply::from_code)
    }

    fn admit_keys(&self, voucher: VoucherId) -> Vec<Key> {
        vec![
            self.keys.stock(voucher),
            self.keys.buyers(voucher),
            self.keys.voucher(voucher),
            self.keys.journal(voucher),
            self.stream.clone(),
        ]
    }
}

/// Lets those go who came while one caller was on the way; also when that one does not wait any more.
struct EndOfTurn<'a> {
    entrance: &'a Arc<Entrance>,
    voucher: VoucherId,
}

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        if let Some(callers) = self.entrance.turnstile.next(self.voucher) {
            self.entrance.spawn(self.voucher, callers);
        }
    }
}

/// Empty where it is missing or invalid: it is never worth an order.
fn traceparent(wanted: &Admission) -> Value {
    let valid = wanted.traceparent.as_deref().filter(|value| Traceparent::parse(value.as_bytes()).is_some());
    valid.unwrap_or_default().into()
}

/// One of the answers of `lua/admit_many.lua`: a number, or the text of an error.
fn answer(order: OrderId, reply: &Value) -> Answer {
    match reply.as_str() {
        Some(text) if !reply.is_integer() => {
            let error = Error::new(ErrorKind::Unknown, format!("admit_many.lua: {text}"));
            Err(of_order(order, error))
        }
        _ => understood("admit_many.lua", reply, AdmitReply::from_code),
    }
}
