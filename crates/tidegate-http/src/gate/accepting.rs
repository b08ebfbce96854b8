//! The accepting of connections, also while the process has no free file descriptor.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout_at},
};

/// The pause after an error. The usual cause is that the process has too many open files.
const PAUSE: Duration = Duration::from_millis(200);
/// The time without an error after which an outage is over. Near the limit of open files, connections succeed and fail
/// in turn: that counts as one outage.
const OVER_AFTER: Duration = Duration::from_secs(2);

/// A listener that accepts connections. It logs when accepting begins to fail, and when accepting works again.
#[derive(Debug)]
pub struct Accepting {
    listener: TcpListener,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    began: Instant,
    over_at: Instant,
}

impl Accepting {
    pub fn on(listener: TcpListener) -> Self {
        Self { listener, outage: None }
    }

    /// Waits for the next connection, without a time limit.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.accept_or_get_well().await {
                None => {}
                Some(Ok(caller)) => return caller,
                Some(Err(error)) if has_gone(&error) => {
                    tracing::debug!(%error, "a client closed its connection before the gate accepted it");
                }
                Some(Err(error)) => {
                    self.note(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Accepts a connection. None: an outage is over.
    async fn accept_or_get_well(&mut self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let Some(Outage { began, over_at }) = &self.outage else {
            return Some(self.listener.accept().await);
        };
        // Under a flood, a connection is always waiting, so the time is checked first.
        if Instant::now() < *over_at
            && let Ok(accepted) = timeout_at(*over_at, self.listener.accept()).await
        {
            return Some(accepted);
        }
        tracing::warn!(outage_ms = began.elapsed().as_millis(), "the gate accepts connections again");
        self.outage = None;
        None
    }

    fn note(&mut self, error: &io::Error) {
        tracing::debug!(%error, "failed to accept a connection");
        let now = Instant::now();
        let outage = self.outage.get_or_insert_with(|| {
            tracing::warn!(
                %error,
                "the gate cannot accept connections, so clients wait: if the process has too many open files, raise \
                 the limit (ulimit -n, LimitNOFILE) or lower gate.connections"
            );
            Outage { began: now, over_at: now }
        });
        outage.over_at = now + OVER_AFTER;
    }
}

/// Whether the client caused the error.
fn has_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind())
}
