//! On while somebody wants nothing to be read: lanes finish what is in hand, then wait with empty hands.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Shared by all lanes of a process. It may be held for several reasons, each of which is set and ended for itself;
/// reading goes on when none is left.
#[derive(Debug, Default)]
pub struct Brake {
    held: watch::Sender<BTreeMap<&'static str, Instant>>,
}

/// A reason why nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The word under which it was set.
    pub reason: &'static str,
    /// Since when.
    pub since: Instant,
}

impl Held {
    /// For how long.
    #[must_use]
    pub fn lasting(&self) -> Duration {
        self.since.elapsed()
    }
}

impl Brake {
    /// Holds it for `reason`; `why` is for the log, which hears of it once.
    pub fn hold(&self, reason: &'static str, why: &str) {
        self.held.send_if_modified(|held| {
            if held.contains_key(reason) {
                return false;
            }
            held.insert(reason, Instant::now());
            tracing::warn!(reason, why, "paused: nothing is read until it is resumed");
            true
        });
    }

    /// Ends what was held for `reason`.
    pub fn release(&self, reason: &'static str) {
        self.held.send_if_modified(|held| {
            let Some(since) = held.remove(reason) else { return false };
            let paused_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            match held.keys().next() {
                None => tracing::warn!(reason, paused_ms, "pause over: reading goes on"),
                Some(other) => {
                    tracing::warn!(reason, paused_ms, other, "pause over, but another one holds");
                }
            }
            true
        });
    }

    /// All reasons for which it is held.
    #[must_use]
    pub fn held(&self) -> Vec<Held> {
        let held = self.held.borrow();
        held.iter().map(|(reason, since)| Held { reason, since: *since }).collect()
    }

    /// Whether it is held for any reason.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Waits until it is held.
    pub async fn on(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.held.subscribe().wait_for(|held| !held.is_empty()).await;
    }

    /// Waits until it is held for no reason.
    pub async fn off(&self) {
        let _ = self.held.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(brake: &Brake) -> Vec<&'static str> {
        brake.held().iter().map(|held| held.reason).collect()
    }

    #[tokio::test]
    async fn reading_goes_on_when_no_reason_is_left() {
        let brake = Brake::default();
        brake.off().await;
        brake.hold("a signal", "");
        brake.hold("the fleet", "");
        brake.hold("the fleet", "again");
        brake.on().await;
        brake.release("a signal");
        brake.release("a signal");
        assert_eq!(reasons(&brake), ["the fleet"]);
        assert!(brake.is_on());
        brake.release("the fleet");
        brake.off().await;
        assert!(!brake.is_on());
    }
}
