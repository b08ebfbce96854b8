//! The HTTP server of the admin pages. It keeps few connections at a time, with one request each, and only streams
//! last long.

use std::{
    convert::Infallible,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{error::Elapsed, sleep, timeout},
};

use super::{
    connections::{Connections, TrackedConnection},
    pages::AdminPages,
};
use crate::{answer::is_stream, server_sent::STREAM_WITHIN};

/// The time within which a client has to send its request; after that, the server closes the connection.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// The longest time that a connection stays open, whatever it waits for, unless it is a stream.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
/// The size of the buffer for a request: the smallest that the library accepts.
const BUFFER_BYTES: usize = 8192;
/// The pause after an error of `accept`. The usual cause is that the process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Accepts and serves connections to the admin server, until the process ends.
pub async fn serve(listener: TcpListener, pages: Arc<AdminPages>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let pages = Arc::clone(&pages);
                let serving = async move |connection: TrackedConnection| {
                    let serving = pin!(serve_connection(client, &pages, &connection));
                    if in_time(serving, &connection).await.is_err() {
                        tracing::debug!(
                            "closed a connection to the admin server, because the client was too slow"
                        );
                    }
                };
                connections.give(serving).await;
            }
            Err(error) => {
                tracing::debug!(%error, "the admin server cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits for a connection with a time limit. A stream may last longer than a page, up to [`STREAM_WITHIN`]; then the
/// server closes it, even if its client does not read it.
async fn in_time(
    mut serving: Pin<&mut impl Future<Output = ()>>,
    connection: &TrackedConnection,
) -> Result<(), Elapsed> {
    match timeout(CONNECTION_WITHIN, &mut serving).await {
        Err(_) if connection.is_stream() => timeout(STREAM_WITHIN, serving).await,
        talked => talked,
    }
}

async fn serve_connection(client: TcpStream, pages: &AdminPages, connection: &TrackedConnection) {
    let service = service_fn(async |request| {
        connection.is_answered();
        let answer = pages.answer(request).await;
        if is_stream(&answer) {
            connection.streams()
        } else {
            connection.waits_for_its_client()
        }
        Ok::<_, Infallible>(answer)
    });
    let talked = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(BUFFER_BYTES)
        // A connection that stays open for no request would take the place of another client.
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), service);
    if let Err(error) = talked.await {
        tracing::debug!(%error, "a connection to the admin server failed");
    }
}
