//! The pause switch: while it is on, lanes finish what is in progress, and then read nothing.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use tokio::sync::watch;

/// A switch that pauses all lanes (consumers) of a process. Several reasons can keep it on at the same time, and each
/// reason begins and ends independently. The lanes read again when no reason is left.
#[derive(Debug, Default)]
pub struct PauseSwitch {
    held: watch::Sender<BTreeMap<&'static str, Instant>>,
}

/// One present reason for which the consumers of the process are paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePause {
    /// The reason of the pause, as one word for programs.
    pub reason: &'static str,
    /// The time at which the pause began.
    pub since: Instant,
}

impl ActivePause {
    /// Returns the time for which the pause has lasted.
    #[must_use]
    pub fn lasting(&self) -> Duration {
        self.since.elapsed()
    }
}

impl PauseSwitch {
    /// Pauses the consumers of the process for the reason `reason`, and logs the explanation `why` when the pause
    /// begins.
    pub fn pause(&self, reason: &'static str, why: &str) {
        self.held.send_if_modified(|held| {
            if held.contains_key(reason) {
                return false;
            }
            held.insert(reason, Instant::now());
            tracing::warn!(reason, why, "paused: no entries are read until the pause ends");
            true
        });
    }

    /// Ends the pause for the reason `reason`. Pauses for other reasons continue.
    pub fn resume(&self, reason: &'static str) {
        self.held.send_if_modified(|held| {
            let Some(since) = held.remove(reason) else { return false };
            let paused_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
            match held.keys().next() {
                None => tracing::warn!(reason, paused_ms, "pause over: entries are read again"),
                Some(other) => {
                    tracing::warn!(reason, paused_ms, other, "pause over, but another pause continues");
                }
            }
            true
        });
    }

    /// Returns all reasons for which the consumers of the process are paused at present.
    #[must_use]
    pub fn active(&self) -> Vec<ActivePause> {
        let held = self.held.borrow();
        held.iter().map(|(reason, since)| ActivePause { reason, since: *since }).collect()
    }

    /// Returns whether the consumers of the process are paused for any reason.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        !self.held.borrow().is_empty()
    }

    /// Waits until the consumers of the process are paused.
    pub async fn paused(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.held.subscribe().wait_for(|held| !held.is_empty()).await;
    }

    /// Waits until no reason for a pause is left.
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
