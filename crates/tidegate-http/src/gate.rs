//! The gate over HTTP, for applications without a Redis client: `POST /orders` asks for an order, as [`Admissions::admit`] does.
//!
//! Whoever sends slowly, or opens many connections, holds up nobody else: each has a task of its own, and time and bytes that it may
//! take. Callers who come together go to Redis together.
//!
//! [`Admissions::admit`]: tidegate_orders::gate::Admissions::admit

mod accepting;
mod attempts;
mod caller;
mod counters;
mod following;
mod forgotten_orders;
mod gates;
mod last_reconnect;
mod open_files;
mod openapi;
mod ordering;
mod pages;
mod problem;
mod refusals;
mod request;
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
use tidegate_orders::gate::SoldOut;
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
    following::{Following, Surroundings},
    pages::GatePages,
    refusals::Refusals,
    tls::{NoTls, Tls},
};
use crate::{
    order_pages::Permits,
    server::{answer_or_leave, listen_on},
    settings::GateSettings,
};

pub use self::problem::ProblemKind;

/// What the head of a request may have.
const HEAD_BYTES: usize = 16 << 10;
/// Whoever was admitted asks what became of it. All of them are looked up together.
const ORDER_PERMITS: Permits = Permits { looks: 512, streams: 4096 };

/// Whether all who were on the way had their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stopped {
    /// All of them.
    AllAnswered,
    /// Some had none when the time was over: each may ask again.
    SomeUnanswered,
}

/// Opens a gate and serves, as [`HttpGate::serve`] does.
///
/// # Errors
/// As [`HttpGate::open`].
pub async fn serve(
    system: &System,
    settings: &GateSettings,
    sold_out: &Arc<SoldOut>,
    stop_within: Duration,
    stop: CancellationToken,
) -> anyhow::Result<Stopped> {
    HttpGate::open(system, settings, sold_out, stop)?.serve(stop_within).await
}

/// A gate that listens, and has let nobody in yet.
pub struct HttpGate {
    server: HttpServer,
    following: Arc<Following>,
    door: Accepting,
    leave_for: Duration,
}

/// What a service manager is told of a gate.
pub struct GateService(Arc<GatePages>);

impl Service for GateService {
    async fn state(&self) -> (bool, String) {
        match self.0.why_not_ready().await {
            None => (true, "admitting orders".to_owned()),
            Some(why) => (false, why),
        }
    }

    /// Each caller has a task and a time limit of its own.
    fn stuck(&self) -> Vec<String> {
        Vec::new()
    }
}

impl HttpGate {
    /// Listens, and begins to connect, with others who tell `sold_out`.
    ///
    /// # Errors
    /// When the address cannot be listened on, or a file of TLS cannot be used.
    pub fn open(
        system: &System,
        settings: &GateSettings,
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
        let places = Arc::new(Semaphore::new(open_files::connections_that_fit(settings.connections)));
        let closing = CancellationToken::new();
        let address = listener.local_addr().unwrap_or(address);
        let refusals = Refusals::default();
        let surroundings = Surroundings {
            sold_out: Arc::clone(sold_out),
            refusals: refusals.clone(),
            closing: closing.clone(),
        };
        let following = Arc::new(Following::begin(system, name(address), surroundings)?);
        let pages =
            Arc::new(GatePages::new(Arc::clone(&following), refusals, settings.clone(), stop.clone()));
        tracing::info!(%address, "gate listens");
        let server = HttpServer { pages, tls, places, stop, closing, graceful: GracefulShutdown::new() };
        Ok(Self { server, following, door: Accepting::on(listener), leave_for: settings.leave_for })
    }

    /// What a service manager is told of it, while it serves.
    #[must_use]
    pub fn service(&self) -> GateService {
        GateService(Arc::clone(&self.server.pages))
    }

    /// Serves until it is told to stop. In this order then:
    ///
    /// 1. `/readyz` says that it stops; callers are let in for [`GateSettings::leave_for`], until nobody is sent here any more.
    /// 2. Nobody is let in, and what is on its way is answered, as far as all this takes no longer than `stop_within`.
    ///
    /// # Errors
    /// None at present.
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
                "some callers had no answer when the gate stopped: each may ask again with the same order id"
            );
            return Ok(Stopped::SomeUnanswered);
        }
        Ok(Stopped::AllAnswered)
    }
}

/// Tells a gate from all others to whoever has to wait for it.
fn name(address: SocketAddr) -> String {
    let host = gethostname::gethostname();
    format!("{}:{}-{:08x}", host.display(), address.port(), rand::random::<u32>())
}

/// Where callers are let in.
struct HttpServer {
    pages: Arc<GatePages>,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    /// Nobody shall be sent here any more.
    stop: CancellationToken,
    /// Nobody is let in any more.
    closing: CancellationToken,
    graceful: GracefulShutdown,
}

impl HttpServer {
    /// Gives each caller a task, for ever.
    async fn accept(&self, mut door: Accepting) -> Infallible {
        loop {
            // Where all places are taken, callers wait in the kernel. The places are never closed.
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

    /// Waits for the stop, and then for those who have not heard of it yet. Answers with the moment of the stop.
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

/// What is needed to answer one connection.
struct Connection {
    peer: IpAddr,
    pages: Arc<GatePages>,
    stop: CancellationToken,
    closing: CancellationToken,
    watcher: Watcher,
}

impl Connection {
    /// Until it ends. Its place is released then.
    async fn begin(self, client: TcpStream, tls: Option<Arc<Tls>>, place: Option<OwnedSemaphorePermit>) {
        answer_or_leave(&client, self.pages.settings().read_within);
        let pages = Arc::clone(&self.pages);
        let talked = match tls {
            None => self.http(client).await,
            // In a box, too: without TLS, a connection has no place for it.
            Some(tls) => Box::pin(self.https(client, &tls)).await,
        };
        if let Err(error) = talked {
            tracing::debug!(error = &*error, "a caller of the gate went away");
        }
        pages.counters().disconnected();
        drop(place);
    }

    async fn https(self, client: TcpStream, tls: &Tls) -> anyhow::Result<()> {
        let (closing, within) = (self.closing.clone(), self.pages.settings().read_within);
        // Nobody is on the way before the handshake is done, so a stop waits for none.
        match closing.run_until_cancelled(tls.accept(client, within)).await {
            Some(Ok(client)) => self.http(client).await,
            Some(Err(why)) => {
                if let NoTls::Certificate(why) = &why {
                    self.pages.refusals().certificate(self.peer, why);
                }
                Err(why.into())
            }
            None => Ok(()),
        }
    }

    async fn http<S>(self, client: S) -> anyhow::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, pages, stop, watcher, .. } = self;
        let head_within = pages.settings().read_within;
        let service = service_fn(move |request: Request<Incoming>| {
            let (pages, stop) = (Arc::clone(&pages), stop.clone());
            let caller = Caller::of(peer, request.headers(), &pages.settings().callers);
            // In a box, which goes with the request: whatever answering needs in between, an idle connection would keep the place for it.
            async move {
                let mut answer = Box::pin(pages.answer(request, caller)).await;
                if stop.is_cancelled() {
                    // The next request of this caller goes to another gate.
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok::<_, Infallible>(answer)
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
            // A client may end its half behind its request, and waits for its answer all the same.
            .half_close(true)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(client), service);
        Ok(watcher.watch(serving).await?)
    }
}
