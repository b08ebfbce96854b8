//! What the entries of a process wait for: counted, shown, and told when it begins and when it ends.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::handler::Cause;

/// What is over sooner is not worth a line: a user's lock is held for milliseconds all the time.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// Causes of one kind that have lines of their own; the others are summed up.
const TOLD_ONE_BY_ONE: usize = 3;

/// Counts what the lanes of a process have set aside.
#[derive(Debug, Default)]
pub struct Causes {
    entries: AtomicUsize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    causes: BTreeMap<Cause, Waiting>,
    /// Of each kind that was told of.
    told: BTreeMap<&'static str, Told>,
    full_since: Option<Instant>,
    nobody_alone_before: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    entries: usize,
    since: Instant,
    is_told: bool,
}

#[derive(Debug)]
struct Told {
    since: Instant,
    one_by_one: usize,
    is_summed_up: bool,
}

/// How much waits for one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// For what.
    pub cause: Cause,
    /// Entries of this process.
    pub entries: usize,
    /// For how long there have been some.
    pub lasting: Duration,
}

/// How much waits for things of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfKind {
    /// Entries of this process.
    pub entries: usize,
    /// Different things that they wait for.
    pub causes: usize,
}

impl Causes {
    /// Entries that are set aside.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.entries.load(Relaxed)
    }

    /// How much waits, by kind.
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

    /// What most entries wait for, `most` things at most.
    #[must_use]
    pub fn top(&self, most: usize) -> Vec<Awaited> {
        let held = self.held();
        let mut all: Vec<Awaited> = held
            .causes
            .iter()
            .map(|(cause, waiting)| Awaited {
                cause: *cause,
                entries: waiting.entries,
                lasting: waiting.since.elapsed(),
            })
            .collect();
        all.sort_by_key(|awaited| (std::cmp::Reverse(awaited.entries), awaited.cause));
        all.truncate(most);
        all
    }

    pub(crate) fn add(&self, cause: Cause) {
        self.entries.fetch_add(1, Relaxed);
        let mut held = self.held();
        let fresh = || Waiting { entries: 0, since: Instant::now(), is_told: false };
        held.causes.entry(cause).or_insert_with(fresh).entries += 1;
    }

    pub(crate) fn remove(&self, cause: Cause, entries: usize) {
        self.entries.fetch_sub(entries, Relaxed);
        let mut held = self.held();
        let Some(waiting) = held.causes.get_mut(&cause) else { return };
        waiting.entries = waiting.entries.saturating_sub(entries);
        if waiting.entries == 0
            && let Some(ended) = held.causes.remove(&cause)
        {
            held.tell_end(cause, &ended);
        }
    }

    /// It was tried, and was in vain.
    pub(crate) fn still(&self, cause: Cause) {
        self.held().tell_begin(cause);
    }

    /// An entry that was handled alone waits for something else: no lane of the process is alone before this.
    pub(crate) fn let_nobody_be_alone_before(&self, then: Instant) {
        let before = &mut self.held().nobody_alone_before;
        *before = (*before).max(Some(then));
    }

    /// Until when that holds; None: it is over.
    pub(crate) fn nobody_alone_before(&self, now: Instant) -> Option<Instant> {
        self.held().nobody_alone_before.filter(|then| *then > now)
    }

    /// Whether no more may be set aside, so that nothing new may be read: there are `most` already.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        let entries = self.entries();
        let is_full = entries >= most;
        let mut held = self.held();
        if is_full && held.full_since.is_none() {
            held.full_since = Some(Instant::now());
            tracing::error!(
                entries,
                "as many entries are set aside as may be (worker.set_aside_max): this worker reads nothing new \
                 until some of them are done"
            );
        } else if !is_full && let Some(since) = held.full_since.take() {
            tracing::warn!(entries, lasting_ms = millis(since), "there is room again: new entries are read");
        }
        is_full
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn tell_begin(&mut self, cause: Cause) {
        let Some(waiting) = self.causes.get_mut(&cause) else { return };
        if waiting.is_told || waiting.since.elapsed() < TELL_AFTER {
            return;
        }
        let Cause { kind, key } = cause;
        let fresh = || Told { since: waiting.since, one_by_one: 0, is_summed_up: false };
        let told = self.told.entry(kind).or_insert_with(fresh);
        let entries = waiting.entries;
        if told.one_by_one < TOLD_ONE_BY_ONE {
            told.one_by_one += 1;
            waiting.is_told = true;
            tracing::warn!(
                kind,
                key,
                entries,
                "entries are set aside: they are tried again until it is over"
            );
        } else if !told.is_summed_up {
            told.is_summed_up = true;
            tracing::warn!(
                kind,
                "entries are set aside for more of this kind: `tidegate status` counts them"
            );
        }
    }

    fn tell_end(&mut self, Cause { kind, key }: Cause, ended: &Waiting) {
        if ended.is_told {
            tracing::warn!(
                kind,
                key,
                lasting_ms = millis(ended.since),
                "no entry is set aside for this any more"
            );
        }
        let is_last =
            self.causes.range(Cause { kind, key: 0 }..=Cause { kind, key: u64::MAX }).next().is_none();
        if is_last
            && let Some(told) = self.told.remove(kind)
            && told.is_summed_up
        {
            tracing::warn!(
                kind,
                lasting_ms = millis(told.since),
                "no entry is set aside for this kind any more"
            );
        }
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
