//! Wakes a lane when something is settled that its entries wait for.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{entry::EntryId, handler::Cause};

/// What a lane waits for, and what of that was settled since it last looked.
#[derive(Debug, Default)]
pub(crate) struct LaneWakes {
    state: Mutex<State>,
    woken: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// With the oldest entry that waits for it.
    awaited: BTreeMap<Cause, EntryId>,
    settled: BTreeSet<Cause>,
    /// Whatever was settled since the handler began with its batch: it may have looked before that. None: it has no batch.
    settled_meanwhile: Option<BTreeSet<Cause>>,
}

impl LaneWakes {
    /// The handler begins with a batch.
    pub(crate) fn begin_batch(&self) {
        self.state().settled_meanwhile = Some(BTreeSet::new());
    }

    /// Everything that it has set aside is awaited by now.
    pub(crate) fn end_batch(&self) {
        self.state().settled_meanwhile = None;
    }

    /// This entry waits for `cause`, as do others of the lane, maybe. The lane keeps it under `kept`, which others may share.
    pub(crate) fn await_cause(&self, cause: Cause, kept: Cause, id: EntryId) {
        let mut state = self.state();
        let oldest = state.awaited.entry(kept).or_insert(id);
        *oldest = id.min(*oldest);
        if state.settled_meanwhile.as_ref().is_some_and(|settled| settled.contains(&cause)) {
            state.settled.insert(kept);
        }
    }

    /// Of the entries that wait for this, `oldest` is the oldest by now. None: there are none any more.
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

    /// Something that this names was settled: the lane is told of it if it has a batch. Answers with its oldest entry that waits for it.
    /// Where different causes wait together, one that waits for it may be among them: these are tried.
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

    /// The entries that wait for this are to be tried.
    pub(crate) fn wake(&self, cause: Cause) {
        let mut state = self.state();
        if state.awaited.contains_key(&cause) && state.settled.insert(cause) {
            self.woken.notify_waiters();
        }
    }

    /// Takes what was settled since the last call.
    pub(crate) fn take(&self) -> BTreeSet<Cause> {
        mem::take(&mut self.state().settled)
    }

    /// Waits until something was settled.
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
