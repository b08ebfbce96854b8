//! How callers come in, also while the process has no file descriptor for them.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, timeout_at},
};

/// After an error, most often that the process has too many files open.
const PAUSE: Duration = Duration::from_millis(200);
/// So long without an error, and it is over. At the edge, one caller is let in and the next one is not: that is one outage.
const OVER_AFTER: Duration = Duration::from_secs(2);

/// Accepts connections. An outage is told once, and once more when it is over.
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

    /// The next caller, however long that takes.
    pub async fn next(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.accept_or_get_well().await {
                None => {}
                Some(Ok(caller)) => return caller,
                Some(Err(error)) if has_gone(&error) => {
                    tracing::debug!(%error, "a caller of the gate went away");
                }
                Some(Err(error)) => {
                    self.note(&error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// None: an outage is over.
    async fn accept_or_get_well(&mut self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let Some(Outage { began, over_at }) = &self.outage else {
            return Some(self.listener.accept().await);
        };
        // Under a flood, somebody always waits.
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
        tracing::debug!(%error, "tried in vain to accept a connection");
        let now = Instant::now();
        let outage = self.outage.get_or_insert_with(|| {
            tracing::warn!(
                %error,
                "the gate cannot accept connections, so callers wait: \
                 where too many files are open, raise the limit (ulimit -n, LimitNOFILE) or lower gate.connections"
            );
            Outage { began: now, over_at: now }
        });
        outage.over_at = now + OVER_AFTER;
    }
}

/// Whether it is the caller's own doing.
fn has_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    [ConnectionAborted, ConnectionRefused, ConnectionReset].contains(&error.kind())
}
