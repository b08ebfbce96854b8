//! On while somebody wants nothing to be read: lanes finish what is in progress, then wait with empty hands.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// Shared by all lanes of a process. It may be held for several reasons, each of which is set and ended for itself;
/// reading goes on when none is left.
#[derive(Debug, Default)]
pub struct PauseSwitch {
    held: watch::Sender<BTreeMap<&'static str, Instant>>,
}

/// A reason why nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePause {
    /// The word under which it was set.
    pub reason: &'static str,
    /// Since when.
    pub since: Instant,
}

impl ActivePause {
    /// For how long.
    #[must_use]
    pub fn lasting(&self) -> Duration {
        self.since.elapsed()
    }
}

impl PauseSwitch {
    /// Holds it for `reason`; `why` is for the log, which hears of it once.
    pub fn pause(&self, reason: &'static str, why: &str) {
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
    pub fn resume(&self, reason: &'static str) {
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
    pub fn active(&self) -> Vec<ActivePause> {
        let held = self.held.borrow();
        held.iter().map(|(reason, since)| ActivePause { reason, since: *since }).collect()
    }

    /// Whether it is held for any reason.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Waits until it is held.
    pub async fn paused(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.held.subscribe().wait_for(|held| !held.is_empty()).await;
    }

    /// Waits until it is held for no reason.
    pub async fn resumed(&self) {
        let _ = self.held.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(pause_switch: &PauseSwitch) -> Vec<&'static str> {
        pause_switch.active().iter().map(|held| held.reason).collect()
    }

    #[tokio::test]
    async fn reading_goes_on_when_no_reason_is_left() {
        let pause_switch = PauseSwitch::default();
        pause_switch.resumed().await;
        pause_switch.pause("a signal", "");
        pause_switch.pause("the fleet", "");
        pause_switch.pause("the fleet", "again");
        pause_switch.paused().await;
        pause_switch.resume("a signal");
        pause_switch.resume("a signal");
        assert_eq!(reasons(&pause_switch), ["the fleet"]);
        assert!(pause_switch.is_paused());
        pause_switch.resume("the fleet");
        pause_switch.resumed().await;
        assert!(!pause_switch.is_paused());
    }
}
