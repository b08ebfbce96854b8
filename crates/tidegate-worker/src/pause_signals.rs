//! The signals that pause and resume a worker.

use std::{io, sync::Arc};

use nix::libc;
use tidegate_stream::PauseSwitch;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The reason that the pause switch, logs and metrics show for a pause by the signal SIGTSTP.
pub const SIGNAL: &str = "signal";

/// The listener for the signals SIGTSTP (pause) and SIGCONT (resume). While this listener exists, SIGTSTP does not
/// suspend the process, because that would also stop the heartbeats and the batch in progress.
pub struct PauseSignals {
    pause: Signal,
    go_on: Signal,
}

impl PauseSignals {
    /// Starts to listen for the signals SIGTSTP and SIGCONT.
    ///
    /// # Errors
    /// Fails if the system refuses the signal handlers, which does not happen in practice.
    pub fn listen() -> io::Result<Self> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Self { pause: of(libc::SIGTSTP)?, go_on: of(libc::SIGCONT)? })
    }

    /// Pauses the worker's reading at each SIGTSTP and resumes it at each SIGCONT, without end. Equal signals that
    /// arrive at the same time count as one signal.
    pub async fn obey(mut self, pause_switches: Vec<Arc<PauseSwitch>>) {
        loop {
            tokio::select! {
                // The last signal counts. If both arrive at the same time, their order is unknown; then the worker
                // resumes.
                biased;
                _ = self.pause.recv() => {
                    pause_switches.iter().for_each(|switch| switch.pause(SIGNAL, "SIGTSTP; SIGCONT goes on"));
                }
                _ = self.go_on.recv() => pause_switches.iter().for_each(|switch| switch.resume(SIGNAL)),
            }
        }
    }
}
