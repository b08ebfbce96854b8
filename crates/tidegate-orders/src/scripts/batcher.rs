//! Batches the requests for one voucher in a rush, so that they share a call.
//!
//! A call of `lua/admit_many.lua` costs Redis little more than half of as many single calls, and a third if all are
//! refused. While few requests arrive, no request waits for others. A request that arrives while calls are on their way
//! goes with the next call.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::{
    Admission, AdmitReply, ScriptError,
    idempotency::{Decided, RequestKey},
};
use crate::order::VoucherId;

/// The calls of one voucher that are on their way at once. There are more of them only if each is full.
const CALLS: usize = 2;
/// The maximum number of orders in one call. Redis serves no other client meanwhile, for about half a millisecond.
pub(super) const MOST: usize = 64;

pub(super) type AdmitResult = Result<Decided<AdmitReply>, ScriptError>;

/// A request that waits in a batch.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) admission: Admission,
    /// The idempotency key of the request, if it has one.
    pub(super) key: Option<RequestKey>,
}

impl Asked {
    pub(super) fn new(admission: &Admission, key: Option<&RequestKey>) -> Self {
        Self { admission: admission.clone(), key: key.cloned() }
    }
}

/// The callers that wait, by voucher.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    vouchers: Mutex<HashMap<VoucherId, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    calls: usize,
    waiting: Vec<Caller>,
}

/// A caller that waits for an answer.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) asked: Asked,
    pub(super) answer: oneshot::Sender<AdmitResult>,
}

/// The next step for a caller that has joined.
pub(super) enum Joined {
    /// Call at once, alone: few calls are on their way. Then call [`Batcher::end_call`].
    Alone,
    /// Send all of these requests, including the caller's own, in one call: it is full. Then call
    /// [`Batcher::end_call`].
    FullCall(Vec<Caller>, oneshot::Receiver<AdmitResult>),
    /// Wait for the answer: another caller sends the call.
    Queued(oneshot::Receiver<AdmitResult>),
}

impl Batcher {
    pub(super) fn join(&self, admission: &Admission, key: Option<&RequestKey>) -> Joined {
        let mut vouchers = self.vouchers();
        let queue = vouchers.entry(admission.voucher).or_default();
        if queue.calls < CALLS {
            // No caller waits now: a call that ends takes all waiting callers along.
            queue.calls += 1;
            return Joined::Alone;
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Caller { asked: Asked::new(admission, key), answer });
        if queue.waiting.len() < MOST {
            return Joined::Queued(answered);
        }
        queue.calls += 1;
        Joined::FullCall(mem::take(&mut queue.waiting), answered)
    }

    /// Ends a call of this voucher. Returns the callers that go with the next call, if any wait.
    pub(super) fn end_call(&self, voucher: VoucherId) -> Option<Vec<Caller>> {
        let mut vouchers = self.vouchers();
        let queue = vouchers.get_mut(&voucher)?;
        if !queue.waiting.is_empty() {
            return Some(mem::take(&mut queue.waiting));
        }
        queue.calls -= 1;
        if queue.calls == 0 {
            vouchers.remove(&voucher);
        }
        None
    }

    fn vouchers(&self) -> MutexGuard<'_, HashMap<VoucherId, Queue>> {
        self.vouchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
