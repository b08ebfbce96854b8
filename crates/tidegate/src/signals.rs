//! The signals that stop the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A listener for SIGTERM and SIGINT. While it exists, these signals do not end the process.
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Starts to listen for the signals.
    ///
    /// # Errors
    /// When the system refuses, which does not happen in practice.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal, and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}
