//! In a rush, callers go through the gate together.
//!
//! A call that admits many orders costs Redis little more than half as much an order as many calls do, and a refusal a
//! quarter. So nobody waits for company while it is quiet, and whoever comes while calls are on their way goes with the
//! next one.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::{Admission, AdmitReply, GateError};
use crate::order::VoucherId;

/// Calls of one voucher on their way at once. There are more of them only where each is full.
const CALLS: usize = 2;
/// Orders of one call. Redis serves nobody else meanwhile: about half a millisecond.
pub(super) const MOST: usize = 64;

pub(super) type Answer = Result<AdmitReply, GateError>;

/// Who waits for which voucher.
#[derive(Debug, Default)]
pub(super) struct Turnstile {
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
    pub(super) wanted: Admission,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What somebody who comes is to do.
pub(super) enum Turn {
    /// Nobody is in the way: to go at once, and to ask [`Turnstile::next`] afterwards.
    Now,
    /// To let all of these go in one call, oneself among them, and to ask [`Turnstile::next`] afterwards.
    Together(Vec<Caller>, oneshot::Receiver<Answer>),
    /// To wait for the answer: somebody else asks.
    Later(oneshot::Receiver<Answer>),
}

impl Turnstile {
    pub(super) fn enter(&self, wanted: &Admission) -> Turn {
        let mut vouchers = self.vouchers();
        let queue = vouchers.entry(wanted.voucher).or_default();
        if queue.calls < CALLS {
            // Then nobody waits: a call that ends takes along whoever does.
            queue.calls += 1;
            return Turn::Now;
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Caller { wanted: wanted.clone(), answer });
        if queue.waiting.len() < MOST {
            return Turn::Later(answered);
        }
        queue.calls += 1;
        Turn::Together(mem::take(&mut queue.waiting), answered)
    }

    /// A call of this voucher has ended. Returns who goes with the next one, if anybody waits.
    pub(super) fn next(&self, voucher: VoucherId) -> Option<Vec<Caller>> {
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
