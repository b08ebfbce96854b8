//! A TCP proxy that makes faults, between a program and its server.

mod connection;
mod resp_frames;
mod trap;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::endpoint::Endpoint;
pub use trap::{DroppedReply, Hold};
use trap::{Kind, Traps};

/// How the proxy treats bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Delay(Duration),
    Cut,
    BlackHole,
}

/// Stands between a program and one server on this machine, and misbehaves on command.
///
/// Patterns are plain bytes, looked for in what clients send, across the borders of packets, in each connection by
/// itself. They match a command's bytes as they travel: the SHA of an `EVALSHA`, the text `COMMIT`. A prepared
/// statement travels with its text only once, when it is prepared. TLS hides everything.
///
/// The proxy runs on the runtime that started it: a test that blocks its thread (as the servers' methods do) needs
/// `#[tokio::test(flavor = "multi_thread")]`.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// The present mode, and how many black holes there were: who lived through one has lost bytes.
#[derive(Debug, Clone, Copy)]
struct Weather {
    mode: Mode,
    black_holes: u64,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    weather: watch::Sender<Weather>,
    swallowed_bytes: AtomicU64,
    traps: Traps,
    /// Clients at these addresses are not served.
    refused: watch::Sender<HashSet<IpAddr>>,
    connections: Mutex<Connections>,
}

/// The connections since the last cut.
#[derive(Debug, Default, Clone)]
struct Connections {
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `target_port` there.
    pub async fn start(target_port: u16) -> Result<Self> {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("Failed to open the proxy's port")?;
        let port = listener.local_addr().context("Failed to read the proxy's port")?.port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target_port),
            weather: watch::Sender::new(Weather { mode: Mode::Pass, black_holes: 0 }),
            swallowed_bytes: AtomicU64::new(0),
            traps: Traps::default(),
            refused: watch::Sender::default(),
            connections: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { port, shared, accepting })
    }

    /// Where clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server behind this proxy, by way of this proxy.
    pub fn url_for(&self, server: &impl Endpoint) -> String {
        server.url().replacen(&format!(":{}", server.port()), &format!(":{}", self.port), 1)
    }

    /// Forwards new connections to another port, as after a failover. Present ones stay where they are.
    pub fn lead_to(&self, target_port: u16) {
        self.shared.target.store(target_port, Ordering::Relaxed);
    }

    /// Closes the connections of clients at these addresses and refuses new ones of theirs, until it is called with others.
    /// Clients elsewhere do not notice.
    pub fn refuse_from(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) {
        self.shared.refused.send_replace(addresses.into_iter().map(IpAddr::from).collect());
    }

    /// Forwards everything again. Connections that fell into a black hole are closed: bytes of theirs are missing.
    pub fn pass(&self) {
        self.shared.set_mode(Mode::Pass);
    }

    /// Whatever is sent, in either direction, arrives this much later: a round trip takes twice as much longer.
    pub fn delay(&self, by: Duration) {
        self.shared.set_mode(Mode::Delay(by));
    }

    /// Closes all connections, and new ones at once, until [`pass`](Self::pass). Returns when they are closed.
    pub async fn cut(&self) {
        self.shared.set_mode(Mode::Cut);
        self.cut_connections().await;
    }

    /// Closes the present connections and takes new ones. Returns when they are closed.
    pub async fn cut_connections(&self) {
        let old = std::mem::take(&mut *self.shared.connections());
        old.cut.cancel();
        old.tasks.close();
        old.tasks.wait().await;
    }

    /// Accepts, swallows and never answers, until another mode is set; present connections too. As on a real network
    /// that lost its way, the server does not learn that a client has gone.
    pub fn black_hole(&self) {
        self.shared.set_mode(Mode::BlackHole);
    }

    /// What black holes have swallowed so far. A test that must know that its request is gone waits for this to grow.
    pub fn swallowed_bytes(&self) -> u64 {
        self.shared.swallowed_bytes.load(Ordering::Relaxed)
    }

    /// Holds the next request that contains `pattern`: what was sent before it reaches the server, the pattern and
    /// what follows in that connection does not, until [`Hold::release`]. (When the beginning of the pattern came in
    /// an earlier packet, that beginning has gone through; its last byte never has.) If the client goes away while it
    /// is held, it is never forwarded, and the server's connection is closed.
    pub fn hold_when(&self, pattern: impl AsRef<[u8]>) -> Hold {
        self.shared.traps.hold(Kind::HoldRequest, pattern.as_ref())
    }

    /// Forwards the next request that contains `pattern` and holds its reply. [`Hold::reached`] resolves when the reply
    /// has arrived here, so the server has executed the request, while the client cannot know.
    ///
    /// Replies of pipelined Redis commands are counted, so that it is this one's reply; any other protocol is taken
    /// to answer before the next request, as MySQL's does.
    pub fn hold_reply_when(&self, pattern: impl AsRef<[u8]>) -> Hold {
        self.shared.traps.hold(Kind::HoldReply, pattern.as_ref())
    }

    /// Forwards the next request that contains `pattern`, swallows its reply and closes the connection: the request
    /// was executed and the client sees a lost connection.
    pub fn drop_next_reply(&self, pattern: impl AsRef<[u8]>) -> DroppedReply {
        self.shared.traps.drop_reply(pattern.as_ref())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.connections().cut.cancel();
    }
}

impl Shared {
    fn connections(&self) -> std::sync::MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mode(&self) -> Mode {
        self.weather.borrow().mode
    }

    fn set_mode(&self, mode: Mode) {
        self.weather.send_modify(|weather| {
            weather.mode = mode;
            weather.black_holes += u64::from(mode == Mode::BlackHole);
        });
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        // Out of file descriptors, or the client has gone already: the next one may do better.
        let Ok((client, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // Held until the task is counted, so that a cut either sees this connection or is seen by it.
        let connections = shared.connections();
        if shared.mode() != Mode::Cut {
            let client = (client, address.ip());
            connections.tasks.spawn(until_cut(client, Arc::clone(&shared), connections.cut.clone()));
        }
    }
}

async fn until_cut((client, from): (TcpStream, IpAddr), shared: Arc<Shared>, cut: CancellationToken) {
    let mut refused = shared.refused.subscribe();
    tokio::select! {
        biased;
        _ = refused.wait_for(|refused| refused.contains(&from)) => {}
        _ = cut.run_until_cancelled(connection::serve(client, &shared)) => {}
    }
}
