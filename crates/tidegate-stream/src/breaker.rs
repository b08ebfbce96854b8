//! The circuit breaker, which is open while a store is unavailable. While it is open, the lanes read nothing, and one
//! task probes the store. After the outage, all lanes continue together.

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

/// The time that the breaker must stay closed before the waits between probes start over.
const STABLE: Duration = Duration::from_secs(10);

/// A circuit breaker that all lanes (consumers of the group) in a process share. While the breaker is open, the lanes
/// read nothing.
#[derive(Debug)]
pub struct Breaker {
    state: watch::Sender<State>,
    closings: AtomicU64,
    outages: Mutex<BTreeMap<&'static str, u64>>,
    /// The time at which a probe last ended, with success or failure.
    probed: Mutex<Option<Instant>>,
}

/// The state of a circuit breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// All stores work, as far as the process knows.
    Closed,
    /// At least one store is unavailable.
    Open {
        /// The time at which the outage began.
        since: Instant,
        /// The store that failed, and its error.
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
    /// Returns the present state of the breaker.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Returns whether the breaker is open, because a store is unavailable.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self.state.borrow() != State::Closed
    }

    /// Returns the number of outages that have begun since the process started, for each store.
    #[must_use]
    pub fn outages(&self) -> BTreeMap<&'static str, u64> {
        self.outages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the time since the last probe of the store ended, or since the breaker opened. None: the breaker is
    /// closed.
    #[must_use]
    pub fn silent_for(&self) -> Option<Duration> {
        let State::Open { since, .. } = self.state() else { return None };
        let probed = *self.probed.lock().unwrap_or_else(PoisonError::into_inner);
        Some(probed.map_or(since, |probed| probed.max(since)).elapsed())
    }

    /// Returns the number of outages that have ended. Call this method before work begins, and pass the number to
    /// [`Breaker::trip`] if the work fails.
    #[must_use]
    pub fn closings(&self) -> u64 {
        self.closings.load(Relaxed)
    }

    /// Opens the breaker after work has failed. `closings` is the number of outages that had ended when the work began.
    /// If another outage has ended since then, that outage explains the failure: the breaker stays closed, and the
    /// caller retries the work. Only the first caller that notices an outage logs it.
    pub fn trip(&self, outage: Outage, closings: u64) {
        self.state.send_if_modified(|state| {
            if *state != State::Closed || closings != self.closings() {
                return false;
            }
            tracing::warn!(store = outage.store, error = %outage.error, "outage began: no entries are read until the store works again");
            *self.outages.lock().unwrap_or_else(PoisonError::into_inner).entry(outage.store).or_default() += 1;
            *state = State::Open { since: Instant::now(), outage };
            true
        });
    }

    /// Waits until the breaker is closed.
    pub async fn closed(&self) {
        let mut state = self.state.subscribe();
        // The sender lives as long as self, so this cannot fail.
        let _ = state.wait_for(|state| *state == State::Closed).await;
    }

    /// Calls `probe` while the breaker is open, with growing waits, and closes the breaker when a probe succeeds. Ends
    /// when `stop` is cancelled.
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
                        Err(error) => tracing::debug!(%error, "the store is still unavailable"),
                    }
                }
                let outage_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(store = outage.store, outage_ms, "outage over: entries are read again");
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
