//! The signals that ask the program to stop, and those that pause a worker.

use std::io;

use nix::libc;
use tidegate_stream::Brake;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The reason of this pause at the brake.
pub const SIGNAL: &str = "signal";

/// SIGTERM and SIGINT. From the moment of listening they do not end the process any more.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the system refuses, which it does not in practice.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one; answers with its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// SIGTSTP and SIGCONT. From the moment of listening the first does not stop the process any more: the kernel would stop
/// heartbeats and the batch in hand as well.
pub struct PauseSignals {
    pause: Signal,
    go_on: Signal,
}

impl PauseSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// As [`Signals::listen`].
    pub fn listen() -> io::Result<Self> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Self { pause: of(libc::SIGTSTP)?, go_on: of(libc::SIGCONT)? })
    }

    /// Holds and releases the brake for ever, as they come. Several of one kind that came at once count as one.
    pub async fn obey(mut self, brake: &Brake) {
        loop {
            tokio::select! {
                // What came last counts, and that is not known of two that came at once: reading goes on.
                biased;
                _ = self.pause.recv() => brake.hold(SIGNAL, "SIGTSTP; SIGCONT goes on"),
                _ = self.go_on.recv() => brake.release(SIGNAL),
            }
        }
    }
}
