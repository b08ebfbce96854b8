//! The state of a webhook in one partition: what this worker has sent, and what Redis says about all workers.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tidegate_operations::webhooks::WebhookBacklog;
use tidegate_orders::{publisher::now_ms, webhook_notes::WebhookSender};
use tidegate_stream::EntryId;

/// The pause between two log lines about results that the receiver did not accept.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The result of an attempt to send a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The receiver accepted the result.
    Delivered,
    /// The receiver did not accept the result, or did not answer. The worker sends the result again.
    Failed,
    /// The receiver answered 410, so the webhook is paused.
    Gone,
    /// The entry is no result. The worker does not send it.
    Unreadable,
}

impl Attempt {
    /// All results of an attempt.
    pub const ALL: [Self; 4] = [Self::Delivered, Self::Failed, Self::Gone, Self::Unreadable];

    /// The word for the metrics.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::Unreadable => "unreadable",
        }
    }
}

/// The state of one webhook in one partition, as this process knows it.
#[derive(Debug)]
pub struct WebhookState {
    /// The name of the webhook.
    pub name: String,
    /// The tag of the partition. None: the system has no partitions.
    pub tag: Option<String>,
    attempts: [AtomicU64; Attempt::ALL.len()],
    retries: AtomicU64,
    is_sender: AtomicBool,
    has_started: AtomicBool,
    sending: Mutex<Sending>,
    backlog: Mutex<Option<WebhookBacklog>>,
}

#[derive(Debug, Default)]
struct Sending {
    /// The results that were not accepted at least once, and that are still to be sent.
    retrying: BTreeSet<EntryId>,
    sent_ms: Option<u64>,
    error: Option<(String, u64)>,
    logged: Option<Instant>,
}

impl WebhookState {
    pub(super) fn new(name: &str, tag: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
            attempts: Default::default(),
            retries: AtomicU64::new(0),
            is_sender: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            sending: Mutex::default(),
            backlog: Mutex::default(),
        }
    }

    /// The number of attempts with this result.
    #[must_use]
    pub fn attempts(&self, attempt: Attempt) -> u64 {
        self.attempts[attempt as usize].load(Relaxed)
    }

    /// The number of attempts to send a result that was not accepted before.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Relaxed)
    }

    /// Whether this worker sends the results of the webhook now. In a fleet, one worker sends for each partition.
    #[must_use]
    pub fn is_sender(&self) -> bool {
        self.is_sender.load(Relaxed)
    }

    /// What Redis last said about the webhook. None: Redis has not answered yet.
    #[must_use]
    pub fn backlog(&self) -> Option<WebhookBacklog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this process has seen the consumer group of the webhook. If the group is missing later, it was lost.
    pub(super) fn has_started(&self) -> bool {
        self.has_started.load(Relaxed)
    }

    pub(super) fn set_backlog(&self, backlog: WebhookBacklog) {
        self.has_started.fetch_or(backlog.has_group, Relaxed);
        *self.backlog.lock().unwrap_or_else(PoisonError::into_inner) = Some(backlog);
    }

    /// Whether a result was not accepted at least once, and is still to be sent.
    pub(super) fn is_retrying(&self) -> bool {
        !self.sending().retrying.is_empty()
    }

    /// The results that were not accepted at least once, and that are still to be sent.
    pub(super) fn retrying(&self) -> BTreeSet<EntryId> {
        self.sending().retrying.clone()
    }

    /// Forgets those of the results `before` that are not pending any more: they were deleted from the stream unsent.
    /// `before` is older than the knowledge of the oldest pending result, so no result that failed meanwhile is forgotten.
    pub(super) fn forget_deleted(&self, before: &BTreeSet<EntryId>, oldest_pending: Option<EntryId>) {
        let is_pending = |id: &EntryId| oldest_pending.is_some_and(|oldest| *id >= oldest);
        self.sending().retrying.retain(|id| is_pending(id) || !before.contains(id));
    }

    /// Notes that this worker begins or ends to send. At the end, another worker takes over its results.
    pub(super) fn set_sender(&self, is_sender: bool) {
        self.is_sender.store(is_sender, Relaxed);
        if !is_sender {
            self.sending().retrying.clear();
        }
    }

    pub(super) fn begin(&self, entry: EntryId) {
        if self.sending().retrying.contains(&entry) {
            self.retries.fetch_add(1, Relaxed);
        }
    }

    /// Counts an attempt that did not fail.
    pub(super) fn end(&self, entry: EntryId, attempt: Attempt) {
        self.attempts[attempt as usize].fetch_add(1, Relaxed);
        let mut sending = self.sending();
        sending.retrying.remove(&entry);
        if attempt == Attempt::Delivered {
            sending.sent_ms = Some(now_ms());
        }
    }

    /// Counts an attempt that failed. The log shows one in [`LOG_EVERY`].
    pub(super) fn fail(&self, entry: EntryId, attempt: Attempt, error: String) {
        self.attempts[attempt as usize].fetch_add(1, Relaxed);
        let mut sending = self.sending();
        sending.retrying.insert(entry);
        if sending.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            sending.logged = Some(Instant::now());
            tracing::warn!(
                error,
                "the receiver of a webhook does not accept a result: the worker sends it again; see docs/runbook/webhooks.md"
            );
        }
        sending.error = Some((error, now_ms()));
    }

    /// The note about this worker for the command `tidegate webhooks`.
    pub(super) fn note(&self, worker: &str) -> WebhookSender {
        let sending = self.sending();
        let (error, error_ms) = sending.error.clone().unzip();
        WebhookSender {
            worker: worker.to_owned(),
            at_ms: now_ms(),
            sent_ms: sending.sent_ms,
            retrying: sending.retrying.len(),
            error,
            error_ms,
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_that_were_deleted_are_not_retried_any_more() {
        let state = WebhookState::new("shop", None);
        let id = |ms| EntryId { ms, seq: 0 };
        let fail = |ms| state.fail(id(ms), Attempt::Failed, "no".to_owned());
        (1..=4).for_each(fail);
        let before = state.retrying();
        fail(5);
        state.forget_deleted(&before, Some(id(3)));
        assert_eq!(state.retrying(), BTreeSet::from([3, 4, 5].map(id)));
        state.forget_deleted(&before, None);
        assert_eq!(state.retrying(), BTreeSet::from([id(5)]), "this one failed after the read");
        assert_eq!(state.note("w").retrying, 1);
    }
}
