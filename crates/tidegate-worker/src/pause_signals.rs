//! The signals that pause a worker.

use std::{io, sync::Arc};

use nix::libc;
use tidegate_stream::PauseSwitch;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The reason of this pause at the pause switch.
pub const SIGNAL: &str = "signal";

/// SIGTSTP and SIGCONT. From the moment of listening the first does not stop the process any more: the kernel would stop
/// heartbeats and the batch in progress as well.
pub struct PauseSignals {
    pause: Signal,
    go_on: Signal,
}

impl PauseSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses, which it does not in practice.
    pub fn listen() -> io::Result<Self> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Self { pause: of(libc::SIGTSTP)?, go_on: of(libc::SIGCONT)? })
    }

    /// Pauses and resumes for ever, as they come. Several of one kind that came at once count as one.
    pub async fn obey(mut self, pause_switches: Vec<Arc<PauseSwitch>>) {
        loop {
            tokio::select! {
                // What came last counts, and that is not known of two that came at once: reading goes on.
                biased;
                _ = self.pause.recv() => {
                    pause_switches.iter().for_each(|switch| switch.pause(SIGNAL, "SIGTSTP; SIGCONT goes on"));
                }
                _ = self.go_on.recv() => pause_switches.iter().for_each(|switch| switch.resume(SIGNAL)),
            }
        }
    }
}
