//! Wake-up of a lane when a cause ends for which the lane has set entries aside.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{entry::EntryId, handler::Cause};

/// The causes that a lane waits for, and those that were settled since it last checked.
#[derive(Debug, Default)]
pub(crate) struct LaneWakes {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The causes that the lane waits for, each with the oldest entry that waits for it; if the order does not matter,
    /// with one of the entries.
    awaited: BTreeMap<Cause, EntryId>,
    settled: BTreeSet<Cause>,
    /// The causes that were settled since the handler began with its batch: it may have checked them before that. None:
    /// the lane has no batch.
    settled_meanwhile: Option<BTreeSet<Cause>>,
}

impl LaneWakes {
    /// Notes that the handler begins with a batch.
    pub(crate) fn begin_batch(&self) {
        self.state().settled_meanwhile = Some(BTreeSet::new());
    }

    /// Notes that the batch has ended: by now the lane waits for the causes of all entries that it has set aside.
    pub(crate) fn end_batch(&self) {
        self.state().settled_meanwhile = None;
    }

    /// Notes that this entry waits for `cause`; other entries of the lane may wait for it too. The lane keeps the entry
    /// under `kept`, which several causes may share.
    pub(crate) fn await_cause(&self, cause: Cause, kept: Cause, id: EntryId) {
        let mut state = self.state();
        let oldest = state.awaited.entry(kept).or_insert(id);
        *oldest = id.min(*oldest);
        if state.settled_meanwhile.as_ref().is_some_and(|settled| settled.contains(&cause)) {
            state.settled.insert(kept);
        }
    }

    /// Sets the oldest entry that waits for `cause`. None: no entry waits for it any more.
    pub(crate) fn set_oldest(&self, cause: Cause, oldest: Option<EntryId>) {
        let mut state = self.state();
        match oldest {
            Some(oldest) => _ = state.awaited.insert(cause, oldest),
            None => {
                state.awaited.remove(&cause);
                state.settled.remove(&cause);
            }
        }
    }

    /// Notes that `cause` was settled, if the lane has a batch. Returns the oldest entry of the lane that waits for
    /// `cause`. If several causes share a queue, an entry that waits for `cause` may be in it, so the lane tries that
    /// queue.
    pub(crate) fn settled(&self, cause: Cause) -> Option<EntryId> {
        let mut state = self.state();
        if let Some(settled) = &mut state.settled_meanwhile {
            settled.insert(cause);
        }
        let shared = cause.shared();
        if shared.is_shared() && state.awaited.contains_key(&shared) && state.settled.insert(shared) {
            self.woken.notify_waiters();
        }
        state.awaited.get(&cause).copied()
    }

    /// Makes the lane try the entries that wait for `cause`.
    pub(crate) fn wake(&self, cause: Cause) {
        let mut state = self.state();
        if state.awaited.contains_key(&cause) && state.settled.insert(cause) {
            self.woken.notify_waiters();
        }
    }

    /// Takes the causes that were settled since the last call.
    pub(crate) fn take(&self) -> BTreeSet<Cause> {
        mem::take(&mut self.state().settled)
    }

    /// Waits until an awaited cause is settled.
    pub(crate) async fn woken(&self) {
        let woken = self.woken.notified();
        tokio::pin!(woken);
        // From here on no call of `wake` is missed.
        woken.as_mut().enable();
        if self.state().settled.is_empty() {
            woken.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_settled_between_the_look_of_a_handler_and_its_answer_is_not_missed() {
        let (wakes, cause) = (LaneWakes::default(), Cause::in_order("account", 7));
        let id = |ms| EntryId { ms, seq: 0 };
        assert_eq!(wakes.settled(cause), None);
        wakes.await_cause(cause, cause, id(3));
        assert!(wakes.take().is_empty(), "that was before its batch");
        wakes.set_oldest(cause, None);
        wakes.begin_batch();
        assert_eq!(wakes.settled(cause), None);
        wakes.await_cause(cause, cause, id(3));
        wakes.await_cause(cause, cause, id(2));
        wakes.await_cause(cause, cause, id(4));
        wakes.end_batch();
        assert_eq!((wakes.take(), wakes.settled(cause)), (BTreeSet::from([cause]), Some(id(2))));
        wakes.wake(cause);
        wakes.set_oldest(cause, None);
        assert!(wakes.take().is_empty(), "nothing waits for it any more");
    }
}
