//! In a rush, callers of one voucher go through the gate together.
//!
//! A call of `lua/admit_many.lua` costs Redis little more than half of as many single calls, and a third where all are
//! refused. While it is quiet, nobody waits for company: whoever comes while calls are on their way goes with the next one.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::{
    Admission, AdmitReply, GateError,
    idempotency::{Decided, RequestKey},
};
use crate::order::VoucherId;

/// Calls of one voucher on their way at once. There are more of them only where each is full.
const CALLS: usize = 2;
/// Orders of one call. Redis serves nobody else meanwhile: about half a millisecond.
pub(super) const MOST: usize = 64;

pub(super) type AdmitResult = Result<Decided<AdmitReply>, GateError>;

/// What somebody asks for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) admission: Admission,
    /// Under which key of its own, if any.
    pub(super) key: Option<RequestKey>,
}

impl Asked {
    pub(super) fn new(admission: &Admission, key: Option<&RequestKey>) -> Self {
        Self { admission: admission.clone(), key: key.cloned() }
    }
}

/// Who waits for which voucher.
#[derive(Debug, Default)]
pub(super) struct Batcher {
    vouchers: Mutex<HashMap<VoucherId, Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    calls: usize,
    waiting: Vec<Caller>,
}

/// Somebody who waits for an answer.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) asked: Asked,
    pub(super) answer: oneshot::Sender<AdmitResult>,
}

/// What a caller has to do.
pub(super) enum Joined {
    /// Call at once, alone: few calls are on their way. Then ask [`Batcher::end_call`].
    Alone,
    /// Send all of these, oneself among them, in one call: it is full. Then ask [`Batcher::end_call`].
    FullCall(Vec<Caller>, oneshot::Receiver<AdmitResult>),
    /// Wait for the answer: somebody else sends the call.
    Queued(oneshot::Receiver<AdmitResult>),
}

impl Batcher {
    pub(super) fn join(&self, admission: &Admission, key: Option<&RequestKey>) -> Joined {
        let mut vouchers = self.vouchers();
        let queue = vouchers.entry(admission.voucher).or_default();
        if queue.calls < CALLS {
            // Then nobody waits: a call that ends takes along whoever does.
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

    /// A call of this voucher has ended. Returns who goes with the next one, if anybody waits.
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
