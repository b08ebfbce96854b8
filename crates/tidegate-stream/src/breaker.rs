//! Open while a store is away: nothing is read, one task probes it, all go on together afterwards.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{backoff::Backoff, handler::Outage};

/// A close that holds for less than this did not end the trouble: the waits go on growing.
const STABLE: Duration = Duration::from_secs(10);

/// Shared by all lanes of a process.
#[derive(Debug)]
pub struct Breaker {
    state: watch::Sender<State>,
    closings: AtomicU64,
    outages: Mutex<BTreeMap<&'static str, u64>>,
    /// When a probe was answered last, in whatever way.
    probed: Mutex<Option<Instant>>,
}

/// What the breaker says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All stores work, as far as is known.
    Closed,
    /// A store is away.
    Open {
        /// Since when.
        since: Instant,
        /// Which store, and what it said.
        outage: Outage,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(State::Closed),
            closings: AtomicU64::new(0),
            outages: Mutex::default(),
            probed: Mutex::default(),
        }
    }
}

impl Breaker {
    /// What it says now.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// A store is away.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.state.borrow() != State::Closed
    }

    /// How many outages of each store began.
    #[must_use]
    pub fn outages(&self) -> BTreeMap<&'static str, u64> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// While it is open: for how long nothing was heard of the stores, neither that they are away nor that they are
    /// back.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        let State::Open { since, .. } = self.state() else { return None };
        let probed = *self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        Some(probed.map_or(since, |probed| probed.max(since)).elapsed())
    }

    /// How many outages are over. Ask before work begins, for [`Breaker::trip`].
    #[must_use]
    pub fn closings(&self) -> u64 {
        self.closings.load(Relaxed)
    }

    /// Opens, because of work that began after `closings` outages. The first to notice an outage says so in the log;
    /// the others only stop. What began before the last outage was over has failed of that one: it is tried again.
    pub fn trip(&self, outage: Outage, closings: u64) {
        self.state.send_if_modified(|state| {
            if *state != State::Closed || closings != self.closings() {
                return false;
            }
            tracing::warn!(store = outage.store, error = %outage.error, "outage began: nothing is read until the store works again");
            *self.outages.lock().unwrap_or_else(PoisonError::into_inner).entry(outage.store).or_default() += 1;
            *state = State::Open { since: Instant::now(), outage };
            true
        });
    }

    /// Waits until it is closed.
    pub async fn closed(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as self, so this cannot fail.
        let _ = state.wait_for(|state| *state == State::Closed).await;
    }

    /// Calls `probe` while open, with growing waits, and closes when it succeeds. Ends with `stop`.
    pub async fn run<P, F>(&self, probe: P, mut backoff: Backoff, stop: CancellationToken)
    where
        P: Fn() -> F,
        F: Future<Output = Result<(), Outage>>,
    {
        stop.run_until_cancelled(async {
            let mut state = self.state.subscribe();
            loop {
                let opened = state.wait_for(|state| *state != State::Closed).await.map(|state| state.clone());
                let Ok(State::Open { since, outage }) = opened else { return };
                loop {
                    tokio::time::sleep(backoff.next_wait()).await;
                    let answer = probe().await;
                    *self.probed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                    match answer {
                        Ok(()) => break,
                        Err(error) => tracing::debug!(%error, "the store is still away"),
                    }
                }
                let outage_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(store = outage.store, outage_ms, "outage over: reading goes on");
                self.state.send_modify(|state| {
                    self.closings.fetch_add(1, Relaxed);
                    *state = State::Closed;
                });
                let tripped_again = state.wait_for(|state| *state != State::Closed);
                if tokio::time::timeout(STABLE, tripped_again).await.is_err() {
                    backoff.reset();
                }
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_began_before_an_outage_was_over_begins_no_other() {
        let breaker = Breaker::default();
        let began = breaker.closings();
        breaker.trip(Outage::new("a store", "gone"), began);
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(1));
        let run = breaker.run(|| async { Ok(()) }, backoff, CancellationToken::new());
        tokio::select! { () = run => {}, () = breaker.closed() => {} }

        breaker.trip(Outage::new("a store", "late news"), began);
        assert_eq!(breaker.state(), State::Closed);
        breaker.trip(Outage::new("a store", "gone again"), breaker.closings());
        assert_ne!(breaker.state(), State::Closed);
    }
}
