//! The gate over HTTP, for applications without a Redis client: `POST /orders` asks for an order, as [`Gate::admit`] does.
//!
//! Whoever sends slowly, or opens many connections, holds up nobody else: each has a task of its own, and time and bytes that it may
//! take. Callers who come together go to Redis together.
//!
//! [`Gate::admit`]: tidegate_orders::Gate::admit

mod accepting;
mod attempts;
mod caller;
mod counters;
mod gates;
mod open_files;
mod openapi;
mod ordering;
mod pages;
mod problem;
mod request;
mod tls;
mod tutorial;

use std::{convert::Infallible, net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tidegate_operations::System;
use tidegate_orders::gate::SoldOut;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::{accepting::Accepting, caller::Caller, gates::Gates, ordering::Ordering, pages::Pages, tls::Tls};
use crate::{
    http_server::{answer_or_leave, listen_on},
    order_pages::{OrderPages, OrderWatch, Room},
    settings::GateSettings,
};

pub use self::problem::ProblemKind;

/// What the head of a request may have.
const HEAD_BYTES: usize = 16 << 10;
/// Whoever was admitted asks what became of it. All of them are looked up together.
const ORDER_ROOM: Room = Room { looks: 512, streams: 4096 };

/// Serves until `stop`, with others who tell `sold_out`; then what is on its way is answered, as far as that takes no longer than `drain_within`.
///
/// # Errors
/// When the address cannot be listened on, or a file of TLS cannot be used.
pub async fn serve(
    system: &System,
    settings: &GateSettings,
    sold_out: &Arc<SoldOut>,
    drain_within: Duration,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let tls = settings.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
    if let Some(tls) = &tls {
        follow(Arc::clone(tls), stop.clone())?;
    }
    let address = settings.listen;
    let listener = listen_on(address).with_context(|| {
        format!("Failed to listen on {address}; check gate.listen / TIDEGATE_GATE_LISTEN")
    })?;
    let gates = Arc::new(Gates::connect(system, sold_out, &stop)?);
    let watch = Arc::new(OrderWatch::new(gates.stores()));
    let orders = OrderPages::new(Arc::clone(&watch), ORDER_ROOM, stop.clone());
    let ordering = Ordering::new(Arc::clone(&gates), Arc::clone(sold_out));
    let pages = Arc::new(Pages::new(gates, ordering, orders, settings.clone(), stop.clone()));
    // Ends with the process: an answer that is on its way at the stop may wait for it.
    tokio::spawn(async move { watch.run().await });
    tracing::info!(address = %listener.local_addr().unwrap_or(address), "gate listens");
    let (graceful, places) = (
        GracefulShutdown::new(),
        Arc::new(Semaphore::new(open_files::connections_that_fit(settings.connections))),
    );
    let mut door = Accepting::on(listener);
    let accepting = async {
        loop {
            // Where all places are taken, callers wait in the kernel.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (client, peer) = door.next().await;
            pages.counters().connected();
            let pages = Arc::clone(&pages);
            let talk = Talk { peer: peer.ip(), pages, stop: stop.clone(), watcher: graceful.watcher() };
            tokio::spawn(talk.begin(client, tls.clone(), place));
        }
    };
    stop.run_until_cancelled(accepting).await;
    drop(door);
    if timeout(drain_within, graceful.shutdown()).await.is_err() {
        tracing::warn!(
            "some callers had no answer when the gate stopped: each may ask again with the same order id"
        );
    }
    Ok(())
}

fn follow(tls: Arc<Tls>, stop: CancellationToken) -> anyhow::Result<()> {
    let hangups = Tls::hangups()?;
    tokio::spawn(async move { stop.run_until_cancelled(tls.follow(hangups)).await });
    Ok(())
}

/// What is needed to answer one connection.
struct Talk {
    peer: IpAddr,
    pages: Arc<Pages>,
    stop: CancellationToken,
    watcher: Watcher,
}

impl Talk {
    /// Until it ends. Its place is given back then.
    async fn begin(self, client: TcpStream, tls: Option<Arc<Tls>>, place: OwnedSemaphorePermit) {
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
        let (stop, within) = (self.stop.clone(), self.pages.settings().read_within);
        // Nobody is on the way before the handshake is done, so a stop waits for none.
        match stop.run_until_cancelled(tls.accept(client, within)).await {
            Some(client) => self.http(client?).await,
            None => Ok(()),
        }
    }

    async fn http<S>(self, client: S) -> anyhow::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, pages, watcher, .. } = self;
        let head_within = pages.settings().read_within;
        let service = service_fn(move |request: Request<Incoming>| {
            let pages = Arc::clone(&pages);
            let caller = Caller::of(peer, request.headers(), &pages.settings().callers);
            // In a box, which goes with the request: whatever answering needs in between, an idle connection would keep the place for it.
            async move { Ok::<_, Infallible>(Box::pin(pages.answer(request, caller)).await) }
        });
        let talking = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_within)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(client), service);
        Ok(watcher.watch(talking).await?)
    }
}
