//! The gate: an HTTP server for applications without a Redis client. `POST /orders` admits an order, as
//! [`Admissions::admit`] does.
//!
//! A client that sends slowly, or opens many connections, does not hold up other clients. Each connection has a task
//! of its own, with a limit of time and of bytes. The requests that arrive at the same time are sent to Redis
//! together.
//!
//! [`Admissions::admit`]: tidegate_orders::scripts::Admissions::admit

mod accepting;
mod answers;
mod attempts;
mod body;
mod caller;
mod client_stream;
mod counters;
mod event_reports;
mod event_request;
mod event_sequences;
mod following;
mod forgotten_orders;
mod gates;
mod headers;
mod last_reconnect;
mod members;
mod offers;
mod open_files;
mod openapi;
mod order_list;
mod ordering;
mod pages;
pub mod probe;
mod problem;
mod publishing;
mod refusals;
mod request;
mod route;
mod tls;
mod tutorial;

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use hyper::{
    Request,
    body::Incoming,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tidegate_operations::System;
use tidegate_orders::scripts::SoldOut;
use tidegate_worker::service::Service;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::sync::CancellationToken;

use self::{
    accepting::Accepting,
    caller::Caller,
    client_stream::{ClientStream, ConnectionWatch},
    counters::GateCounters,
    following::{Following, SharedParts},
    pages::GatePages,
    refusals::Refusals,
    tls::NoTls,
};
use crate::{
    order_pages::Permits,
    results::SharedResults,
    server::{answer_or_leave, listen_on},
    settings::GateSettings,
    tokens::Tokens,
};

pub use self::{problem::ProblemKind, tls::Tls};

/// The largest head of a request, in bytes.
const HEAD_BYTES: usize = 16 << 10;
/// The limits for order pages. Clients with an admitted order ask for its state, and one query looks up all of their
/// orders.
const ORDER_PERMITS: Permits = Permits { looks: 512, streams: 4096 };

/// The result of stopping the gate: whether all requests in progress were answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// Every request in progress got an answer before the gate stopped.
    AllAnswered,
    /// Some requests had no answer when the time was over. Their clients may send them again.
    SomeUnanswered,
}

/// Opens an HTTP gate and serves requests until `stop` is cancelled, as [`HttpGate::serve`] does.
///
/// # Errors
/// Fails as [`HttpGate::open`] does.
pub async fn serve(
    system: &System,
    (settings, tokens): (&GateSettings, &Arc<Tokens>),
    sold_out: &Arc<SoldOut>,
    stop_within: Duration,
    stop: CancellationToken,
) -> anyhow::Result<Stopped> {
    HttpGate::open(system, (settings, tokens), sold_out, stop)?.serve(stop_within).await
}

/// An HTTP gate that listens, but has not accepted a connection yet.
pub struct HttpGate {
    server: HttpServer,
    following: Arc<Following>,
    door: Accepting,
    leave_for: Duration,
}

/// The state of a gate, for reports to a service manager such as systemd.
pub struct GateService(Arc<GatePages>);

impl Service for GateService {
    async fn state(&self) -> (bool, String) {
        match self.0.why_not_ready().await {
            None => (true, "admitting orders".to_owned()),
            Some(why) => (false, why),
        }
    }

    /// The gate is never stuck: each connection has a task and a time limit of its own.
    fn stuck(&self) -> Vec<String> {
        Vec::new()
    }
}

impl HttpGate {
    /// Creates a gate that listens on its address and starts to connect to Redis and MySQL. The gate shares the memory
    /// `sold_out` of sold-out vouchers, and `tokens`, with the worker of the same process.
    ///
    /// # Errors
    /// Fails if the gate cannot listen on the address, or cannot use a TLS file.
    pub fn open(
        system: &System,
        (settings, tokens): (&GateSettings, &Arc<Tokens>),
        sold_out: &Arc<SoldOut>,
        stop: CancellationToken,
    ) -> anyhow::Result<Self> {
        let tls = settings.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        if let Some(tls) = &tls {
            follow(Arc::clone(tls), stop.clone())?;
        }
        let address = settings.listen;
        let listener = listen_on(address).with_context(|| {
            format!("Failed to listen on {address}; check gate.listen / TIDEGATE_GATE_LISTEN")
        })?;
        let most_connections = open_files::connections_that_fit(settings.connections);
        let closing = CancellationToken::new();
        let address = listener.local_addr().unwrap_or(address);
        let refusals = Refusals::default();
        let shared = SharedParts {
            sold_out: Arc::clone(sold_out),
            refusals: refusals.clone(),
            results: SharedResults::default(),
            offers_fresh_for: settings.sold_out_for,
            closing: closing.clone(),
        };
        let following = Arc::new(Following::begin(system, name(address), shared)?);
        let access = (settings.clone(), Arc::clone(tokens));
        let counters = GateCounters::new(most_connections, tls.clone());
        let pages = GatePages::new(Arc::clone(&following), refusals, access, counters, stop.clone());
        let (pages, places) = (Arc::new(pages), Arc::new(Semaphore::new(most_connections)));
        tracing::info!(%address, "gate listens");
        let server = HttpServer { pages, tls, places, stop, closing, graceful: GracefulShutdown::new() };
        Ok(Self { server, following, door: Accepting::on(listener), leave_for: settings.leave_for })
    }

    /// Returns the state of this gate for a service manager. The returned value stays valid while the gate serves.
    #[must_use]
    pub fn service(&self) -> GateService {
        GateService(Arc::clone(&self.server.pages))
    }

    /// Serves requests until `stop` is cancelled. The gate then stops in two steps.
    ///
    /// 1. `/readyz` answers that the gate stops. For [`GateSettings::leave_for`], the gate still accepts and answers
    ///    requests, until no load balancer sends clients here any more.
    /// 2. The gate accepts no more connections, and answers the requests in progress. It gives up `stop_within` after
    ///    the start of the stop.
    ///
    /// # Errors
    /// Returns no error at present.
    pub async fn serve(self, stop_within: Duration) -> anyhow::Result<Stopped> {
        let Self { server, following, door, leave_for } = self;
        let stopped = tokio::select! {
            never = server.accept(door) => match never {},
            never = following.run() => match never {},
            stopped = server.leave(leave_for) => stopped,
        };
        server.closing.cancel();
        following.end().await;
        if timeout_at(stopped + stop_within, server.graceful.shutdown()).await.is_err() {
            tracing::warn!(
                "some requests had no answer when the gate stopped: clients may send them again with the same order id"
            );
            return Ok(Stopped::SomeUnanswered);
        }
        Ok(Stopped::AllAnswered)
    }
}

/// Creates a name for this gate that no other gate has. Programs that wait for gates list them by this name.
fn name(address: SocketAddr) -> String {
    let host = gethostname::gethostname();
    format!("{}:{}-{:08x}", host.display(), address.port(), rand::random::<u32>())
}

/// The part of the gate that accepts connections.
struct HttpServer {
    pages: Arc<GatePages>,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    /// Cancelled when the gate stops: load balancers have to send clients elsewhere.
    stop: CancellationToken,
    /// Cancelled when the gate accepts no more connections.
    closing: CancellationToken,
    graceful: GracefulShutdown,
}

impl HttpServer {
    /// Accepts connections for ever, and gives each one a task.
    async fn accept(&self, mut door: Accepting) -> Infallible {
        loop {
            // While all places are taken, clients wait in the kernel's queue. The semaphore is never closed.
            let place = Arc::clone(&self.places).acquire_owned().await.ok();
            let (client, peer) = door.next().await;
            self.pages.counters().connected();
            tokio::spawn(self.serve(peer).begin(client, self.tls.clone(), place));
        }
    }

    fn serve(&self, peer: SocketAddr) -> Connection {
        let (pages, watcher) = (Arc::clone(&self.pages), self.graceful.watcher());
        Connection { peer: peer.ip(), pages, stop: self.stop.clone(), closing: self.closing.clone(), watcher }
    }

    /// Waits for the stop, and then until load balancers have noticed it. Returns the time of the stop.
    async fn leave(&self, leave_for: Duration) -> Instant {
        self.stop.cancelled().await;
        let stopped = Instant::now();
        sleep(leave_for).await;
        stopped
    }
}

fn follow(tls: Arc<Tls>, stop: CancellationToken) -> anyhow::Result<()> {
    let hangups = Tls::hangups()?;
    tokio::spawn(async move { stop.run_until_cancelled(tls.follow(hangups)).await });
    Ok(())
}

/// The data that the task of one connection needs.
struct Connection {
    peer: IpAddr,
    pages: Arc<GatePages>,
    stop: CancellationToken,
    closing: CancellationToken,
    watcher: Watcher,
}

impl Connection {
    /// Serves the connection until it ends, and then releases its place.
    async fn begin(self, client: TcpStream, tls: Option<Arc<Tls>>, place: Option<OwnedSemaphorePermit>) {
        answer_or_leave(&client, self.pages.settings().read_within);
        let ((client, end), pages) = (ClientStream::new(client), Arc::clone(&self.pages));
        let talked = match tls {
            None => self.http(client, end).await,
            // The future is boxed: otherwise a connection without TLS would also take the memory for TLS.
            Some(tls) => Box::pin(self.https(client, end, &tls)).await,
        };
        if let Err(error) = talked {
            tracing::debug!(error = &*error, "a connection to the gate failed");
        }
        pages.counters().disconnected();
        drop(place);
    }

    async fn https(self, client: ClientStream, end: ConnectionWatch, tls: &Tls) -> anyhow::Result<()> {
        let (closing, within) = (self.closing.clone(), self.pages.settings().read_within);
        // No request is in progress before the handshake ends, so a stop does not wait for handshakes.
        match closing.run_until_cancelled(tls.accept(client, within)).await {
            Some(Ok(encrypted)) => self.http(encrypted, end).await,
            Some(Err(why)) => {
                if let NoTls::Certificate(why) = &why {
                    self.pages.refusals().certificate(self.peer, why);
                }
                Err(why.into())
            }
            None => Ok(()),
        }
    }

    /// Serves requests over `stream`, which is a connection itself or TLS over it. `end` is the end of this connection.
    async fn http<S>(self, stream: S, end: ConnectionWatch) -> anyhow::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, pages, stop, watcher, .. } = self;
        let head_within = pages.settings().read_within;
        let closed = CancellationToken::new();
        let watching = end.watch(closed.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (pages, stop) = (Arc::clone(&pages), stop.clone());
            let caller = Caller::of(peer, request.headers(), &pages.settings().callers, closed.clone());
            // The future is boxed and ends with the request. Otherwise an idle connection would keep the memory that
            // answering needs.
            async move {
                let mut answer = Box::pin(pages.answer(request, caller)).await;
                if stop.is_cancelled() {
                    // The client sends its next request to another gate.
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
            // A client may close its sending half after its request, and still waits for its answer.
            .half_close(true)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            served = watcher.watch(serving) => Ok(served?),
            never = watching => match never {},
        }
    }
}
