//! Admission of orders in Redis.
//!
//! `lua/admit.lua` admits one order, `lua/admit_many.lua` admits orders of callers that arrive at the same time, and
//! `lua/admit_by_key.lua` admits an order under an idempotency key. `limited.rs` has the scripts for vouchers with
//! limits.

use std::{sync::Arc, time::Instant};

use tidegate_stream::Script;

use super::{
    Admission, AdmitReply, IdempotencyKey, ScriptError, SoldOut,
    access::RedisAccess,
    batched_admission::BatchedAdmission,
    batcher::AdmitResult,
    confirmed::ConfirmedCalls,
    idempotency::{Decided, RequestKey},
    limited::LimitedCalls,
};
use crate::order::OrderId;

const WOULD_ADMIT: &str = include_str!("../../../../lua/would_admit.lua");
const WOULD_ADMIT_LIMITED: &str = include_str!("../../../../lua/would_admit_limited.lua");

/// Access to the scripts in Redis that admit or refuse orders.
#[derive(Clone, Debug)]
pub struct Admissions {
    access: RedisAccess,
    limited: Arc<LimitedCalls>,
    calls: Arc<BatchedAdmission>,
    sold_out: Option<Arc<SoldOut>>,
}

impl Admissions {
    pub(super) fn new(access: &RedisAccess, limited: Arc<LimitedCalls>) -> Self {
        let calls = BatchedAdmission::new(access.clone(), Arc::clone(&limited));
        Self { access: access.clone(), limited, calls: Arc::new(calls), sold_out: None }
    }

    /// As [`super::RedisStore::confirmed`].
    pub(super) fn confirmed(self, confirmed: Arc<ConfirmedCalls>) -> Self {
        let calls = BatchedAdmission::new(self.access.clone(), Arc::clone(&self.limited));
        Self { calls: Arc::new(calls.confirmed(confirmed)), ..self }
    }

    /// As [`super::RedisStore::with_sold_out`].
    pub(super) fn with_sold_out(self, sold_out: Arc<SoldOut>) -> Self {
        Self { sold_out: Some(sold_out), ..self }
    }

    /// Requests an order from a script in Redis. If the script refuses the order, nothing changes in Redis.
    ///
    /// A single request is sent at once, by `lua/admit.lua`. In a rush, the requests for one voucher are sent together,
    /// in one call of `lua/admit_many.lua`. Dropping the future does not cancel a call that was already sent.
    ///
    /// # Errors
    /// See [`ScriptError`]. Repeat the request with the same order id.
    pub async fn admit(&self, admission: &Admission) -> Result<AdmitReply, ScriptError> {
        Ok(self.decide(admission, None).await?.reply)
    }

    /// Requests an order like [`Admissions::admit`], under an idempotency key that the caller chooses. Further requests
    /// under the same key get the same order and not a new one. The answer contains the id of that order.
    ///
    /// `lua/admit_by_key.lua` writes the order and the key in one step. Redis keeps the key for
    /// [`KEY_KEPT`](super::KEY_KEPT) after the last request for the order. A refusal changes nothing in Redis.
    ///
    /// # Errors
    /// See [`ScriptError`]. Repeat the request under the same key.
    pub async fn admit_by_key(
        &self,
        key: &IdempotencyKey,
        admission: &Admission,
    ) -> Result<(OrderId, AdmitReply), ScriptError> {
        let key = RequestKey::new(&self.access.keys, key, admission);
        let Decided { order, reply } = self.decide(admission, Some(&key)).await?;
        Ok((order, reply))
    }

    async fn decide(&self, admission: &Admission, key: Option<&RequestKey>) -> AdmitResult {
        let asked_at = Instant::now();
        let decided = self.calls.admit(admission, key).await;
        if let (Some(sold_out), Ok(Decided { reply: AdmitReply::SoldOut, .. })) = (&self.sold_out, &decided) {
            sold_out.note(admission.voucher, admission.quantity, asked_at);
        }
        decided
    }

    /// Requests many orders in a few calls. Returns one answer for each order, in the sequence of `admissions`. If an
    /// order fails, the other orders are not affected. Orders of one voucher are decided in the sequence of
    /// `admissions`.
    pub async fn admit_all(&self, admissions: &[Admission]) -> Vec<Result<AdmitReply, ScriptError>> {
        self.calls.admit_all(admissions).await
    }

    /// The reply that [`Admissions::admit`] would give now, by the same checks in `lua/would_admit.lua` or
    /// `lua/would_admit_limited.lua`. Changes nothing and reserves nothing.
    ///
    /// # Errors
    /// As [`Admissions::admit`].
    pub async fn would_admit(&self, admission: &Admission) -> Result<AdmitReply, ScriptError> {
        let limited = LimitedCalls::new(self.access.clone());
        let limited = limited.admitting_by(Script::new("would_admit_limited", WOULD_ADMIT_LIMITED));
        let asking = BatchedAdmission::new(self.access.clone(), Arc::new(limited));
        let asking = asking.admitting_by(Script::new("would_admit", WOULD_ADMIT));
        Ok(asking.admit_one(&self.access.pool, admission, None).await?.reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_script_writes() {
        for script in [WOULD_ADMIT, WOULD_ADMIT_LIMITED] {
            for write in ["'SADD'", "'HSET'", "'HSETNX'", "'XADD'", "'DECRBY'", "'HDEL'", "'SREM'", "'SET'"] {
                assert!(!script.contains(write), "{write}");
            }
        }
    }
}
