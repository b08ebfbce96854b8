//! The causes for which a process has set entries aside. They are counted, reported, and logged at their begin and end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{handler::Cause, lane_wakes::LaneWakes};

/// The time that a cause must last to be logged: a user's lock is held for milliseconds all the time.
const LOG_AFTER: Duration = Duration::from_secs(2);

/// The number of causes of one kind that are logged one by one; the others are summed up.
const LOGGED_ONE_BY_ONE: usize = 3;

/// The causes for which a process has set entries aside (left them pending, to retry them later), with the number of
/// entries for each cause.
#[derive(Debug, Default)]
pub struct Causes {
    entries: AtomicUsize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// The wake-up of each lane that lives.
    lanes: Vec<Weak<LaneWakes>>,
    causes: BTreeMap<Cause, Waiting>,
    /// The kinds of causes that were logged.
    logged: BTreeMap<&'static str, LoggedKind>,
    full_since: Option<Instant>,
    no_exclusive_before: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    entries: usize,
    since: Instant,
    is_logged: bool,
}

#[derive(Debug)]
struct LoggedKind {
    since: Instant,
    one_by_one: usize,
    is_summed_up: bool,
}

/// The entries that are set aside for one cause: a process leaves them pending, to retry them later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingEntries {
    /// The cause for which the entries are set aside: left pending, to be retried later.
    pub cause: Cause,
    /// The number of entries of this process that are set aside (left pending) for the cause.
    pub entries: usize,
    /// The duration for which at least one entry has been set aside (left pending) for the cause.
    pub lasting: Duration,
}

/// The entries of a process that are set aside (left pending, to be retried later) for causes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfKind {
    /// The number of entries of this process that are set aside (left pending) for causes of the kind.
    pub entries: usize,
    /// The number of different causes of this kind.
    pub causes: usize,
}

impl Causes {
    /// Returns the number of entries that this process has set aside: left pending, to retry them later.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.load(Relaxed)
    }

    /// Returns the number of set-aside entries (left pending, to be retried later) for each kind of cause.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<&'static str, OfKind> {
        let mut kinds = BTreeMap::<_, OfKind>::new();
        for (cause, waiting) in &self.held().causes {
            let kind = kinds.entry(cause.kind).or_default();
            kind.entries += waiting.entries;
            kind.causes += 1;
        }
        kinds
    }

    /// Returns the causes with the most set-aside entries (left pending, to be retried later): at most `most` causes.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<WaitingEntries> {
        let held = self.held();
        let mut all: Vec<WaitingEntries> = held
            .causes
            .iter()
            .map(|(cause, waiting)| WaitingEntries {
                cause: *cause,
                entries: waiting.entries,
                lasting: waiting.since.elapsed(),
            })
            .collect();
        all.sort_by_key(|awaited| (std::cmp::Reverse(awaited.entries), awaited.cause));
        all.truncate(most);
        all
    }

    /// Returns whether any entries of this process wait for a cause of the kind `kind` to end. The call costs nothing
    /// while no entry waits.
    #[must_use]
    pub fn has(&self, kind: &'static str) -> bool {
        self.entries() > 0 && self.held().has(kind)
    }

    /// Returns whether any entry of this process waits, or may wait, for the cause `cause` to end: a kind with too many
    /// causes keeps some of them together.
    #[must_use]
    pub fn is_awaited(&self, cause: Cause) -> bool {
        let is_held =
            |held: &Held| [cause, cause.shared()].iter().any(|cause| held.causes.contains_key(cause));
        self.entries() > 0 && is_held(&self.held())
    }

    /// Reports that the given causes have ended, so that entries which wait for these causes are retried. For each
    /// cause, one lane (a consumer of this process) retries an entry at once. For a cause of [`Cause::in_order`], this is
    /// the lane with the oldest entry, and the entries of other lanes wait for that entry. This process can miss a cause
    /// that another process ends, so the lanes also retry all entries from time to time.
    pub fn wake(&self, settled: impl IntoIterator<Item = Cause>) {
        let lanes = self.held().lanes.clone();
        let lanes: Vec<Arc<LaneWakes>> = lanes.iter().filter_map(Weak::upgrade).collect();
        for cause in settled {
            let oldest = lanes.iter().filter_map(|lane| Some((lane.settled(cause)?, lane)));
            if let Some((_, lane)) = oldest.min_by_key(|(oldest, _)| *oldest) {
                lane.wake(cause);
            }
        }
    }

    /// Adds a lane, and returns its wake-up, which counts for as long as the lane keeps it.
    pub(crate) fn add_lane(&self) -> Arc<LaneWakes> {
        let wakes = Arc::default();
        let lanes = &mut self.held().lanes;
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(&wakes));
        wakes
    }

    pub(crate) fn add(&self, cause: Cause) {
        self.entries.fetch_add(1, Relaxed);
        self.held().add(cause);
    }

    pub(crate) fn remove(&self, cause: Cause, entries: usize) {
        self.entries.fetch_sub(entries, Relaxed);
        self.held().remove(cause, entries);
    }

    /// Notes that an entry that waited for `before` now waits for `after`.
    pub(crate) fn moved(&self, before: Cause, after: Cause) {
        if before != after {
            let mut held = self.held();
            held.add(after);
            held.remove(before, 1);
        }
    }

    /// Notes that entries of `cause` were tried without success.
    pub(crate) fn tried_in_vain(&self, cause: Cause) {
        self.held().log_begin(cause);
    }

    /// Forbids all lanes of the process to handle an entry alone before `then`, because such an entry could not be
    /// done.
    pub(crate) fn forbid_exclusive_before(&self, then: Instant) {
        let before = &mut self.held().no_exclusive_before;
        *before = (*before).max(Some(then));
    }

    /// Returns the time until which that is forbidden; None: it is allowed.
    pub(crate) fn no_exclusive_before(&self, now: Instant) -> Option<Instant> {
        self.held().no_exclusive_before.filter(|then| *then > now)
    }

    /// Returns whether `most` entries are set aside already, so that the lanes may read no new entries. Logs the
    /// change.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        let entries = self.entries();
        let is_full = entries >= most;
        let mut held = self.held();
        if is_full && held.full_since.is_none() {
            held.full_since = Some(Instant::now());
            tracing::error!(
                entries,
                most,
                "the limit of set-aside entries is reached: no new entries are read until some of the entries that wait for a retry are done"
            );
        } else if !is_full && let Some(since) = held.full_since.take() {
            tracing::warn!(
                entries,
                lasting_ms = millis(since),
                "the number of set-aside entries is below the limit: new entries are read again"
            );
        }
        is_full
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn has(&self, kind: &'static str) -> bool {
        self.causes.range(Cause::new(kind, 0)..=Cause::in_order(kind, u64::MAX)).next().is_some()
    }

    fn add(&mut self, cause: Cause) {
        let fresh = || Waiting { entries: 0, since: Instant::now(), is_logged: false };
        self.causes.entry(cause).or_insert_with(fresh).entries += 1;
    }

    fn remove(&mut self, cause: Cause, entries: usize) {
        let Some(waiting) = self.causes.get_mut(&cause) else { return };
        waiting.entries = waiting.entries.saturating_sub(entries);
        if waiting.entries == 0
            && let Some(ended) = self.causes.remove(&cause)
        {
            self.log_end(cause, &ended);
        }
    }

    fn log_begin(&mut self, cause: Cause) {
        let Some(waiting) = self.causes.get_mut(&cause) else { return };
        if waiting.is_logged || waiting.since.elapsed() < LOG_AFTER {
            return;
        }
        let Cause { kind, key, .. } = cause;
        let fresh = || LoggedKind { since: waiting.since, one_by_one: 0, is_summed_up: false };
        let logged = self.logged.entry(kind).or_insert_with(fresh);
        let entries = waiting.entries;
        if logged.one_by_one < LOGGED_ONE_BY_ONE {
            logged.one_by_one += 1;
            waiting.is_logged = true;
            tracing::warn!(
                kind,
                key,
                entries,
                "entries are set aside: the worker retries them from time to time until the given cause ends"
            );
        } else if !logged.is_summed_up {
            logged.is_summed_up = true;
            tracing::warn!(kind, "entries are set aside for more causes of the given kind");
        }
    }

    fn log_end(&mut self, Cause { kind, key, .. }: Cause, ended: &Waiting) {
        if ended.is_logged {
            tracing::warn!(
                kind,
                key,
                lasting_ms = millis(ended.since),
                "no entry is set aside for the given cause any more"
            );
        }
        if !self.has(kind)
            && let Some(logged) = self.logged.remove(kind)
            && logged.is_summed_up
        {
            tracing::warn!(
                kind,
                lasting_ms = millis(logged.since),
                "no entry is set aside any more for any cause of this kind"
            );
        }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
