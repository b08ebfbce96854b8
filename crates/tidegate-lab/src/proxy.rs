//! A TCP proxy that injects faults between a program and its server.

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

/// The treatment of bytes by the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pass,
    Delay(Duration),
    Cut,
    BlackHole,
}

/// A proxy between a program and one server on this machine, which misbehaves on command.
///
/// Patterns are plain bytes. The proxy searches for them in the bytes that clients send, across packet borders, in each
/// connection separately. They match the bytes of a command as they are sent: the SHA of an `EVALSHA`, the text
/// `COMMIT`. The text of a prepared statement is sent only once, when it is prepared. TLS hides everything.
///
/// The proxy runs on the runtime that started it: a test that blocks its thread (as the methods of the servers do)
/// needs `#[tokio::test(flavor = "multi_thread")]`.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// The present mode, and the number of black holes so far: a connection that lived through one has lost bytes.
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
    /// The addresses whose clients are refused.
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

    /// The port that clients connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server through this proxy.
    pub fn url_for(&self, server: &impl Endpoint) -> String {
        server.url().replacen(&format!(":{}", server.port()), &format!(":{}", self.port), 1)
    }

    /// Forwards new connections to another port, as after a failover. Existing connections stay.
    pub fn lead_to(&self, target_port: u16) {
        self.shared.target.store(target_port, Ordering::Relaxed);
    }

    /// Closes the connections of clients at these addresses and refuses new ones, until it is called with other
    /// addresses. Other clients are not affected.
    pub fn refuse_from(&self, addresses: impl IntoIterator<Item = Ipv4Addr>) {
        self.shared.refused.send_replace(addresses.into_iter().map(IpAddr::from).collect());
    }

    /// Forwards everything again. Connections that were in a black hole are closed, because they have lost bytes.
    pub fn pass(&self) {
        self.shared.set_mode(Mode::Pass);
    }

    /// Delays all bytes in both directions by this time: a round trip takes twice as much longer.
    pub fn delay(&self, by: Duration) {
        self.shared.set_mode(Mode::Delay(by));
    }

    /// Closes all connections, and new ones at once, until [`pass`](Self::pass). Returns when they are closed.
    pub async fn cut(&self) {
        self.shared.set_mode(Mode::Cut);
        self.cut_connections().await;
    }

    /// Closes the existing connections and accepts new ones. Returns when they are closed.
    pub async fn cut_connections(&self) {
        let old = std::mem::take(&mut *self.shared.connections());
        old.cut.cancel();
        old.tasks.close();
        old.tasks.wait().await;
    }

    /// Accepts and discards bytes without any answer, until another mode is set; this includes existing connections. As
    /// in a broken network, the server does not learn that a client has gone.
    pub fn black_hole(&self) {
        self.shared.set_mode(Mode::BlackHole);
    }

    /// The number of bytes that black holes have discarded so far. A test that needs to know that its request is lost
    /// waits until this grows.
    pub fn swallowed_bytes(&self) -> u64 {
        self.shared.swallowed_bytes.load(Ordering::Relaxed)
    }

    /// Holds the next request that contains `pattern`. The bytes before it reach the server; the pattern and the rest
    /// of that connection do not, until [`Hold::release`]. (If an earlier packet had the beginning of the pattern, that
    /// beginning has gone through; its last byte never has.) If the client goes away meanwhile, the request is never
    /// forwarded, and the connection to the server is closed.
    pub fn hold_when(&self, pattern: impl AsRef<[u8]>) -> Hold {
        self.shared.traps.hold(Kind::HoldRequest, pattern.as_ref())
    }

    /// Forwards the next request that contains `pattern` and holds its reply. [`Hold::reached`] resolves when the reply
    /// has arrived at the proxy: the server has executed the request, and the client cannot know.
    ///
    /// Replies of pipelined Redis commands are counted, to find the reply of this command. Any other protocol is
    /// assumed to answer before the next request, as MySQL's does.
    pub fn hold_reply_when(&self, pattern: impl AsRef<[u8]>) -> Hold {
        self.shared.traps.hold(Kind::HoldReply, pattern.as_ref())
    }

    /// Forwards the next request that contains `pattern`, discards its reply and closes the connection: the request was
    /// executed, and the client sees a lost connection.
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
        // The process is out of file descriptors, or the client has gone already; the next attempt may succeed.
        let Ok((client, address)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // The lock is held until the task is counted, so that a cut includes this connection, or this connection sees
        // the cut.
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
