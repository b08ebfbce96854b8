//! The server: few connections at a time, one request each, and none for long but streams.

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
use crate::{answer::is_stream, order_pages::STREAM_WITHIN};

/// A client that has not sent its request by then is let go of.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// A connection is closed by then, whatever it waits for, unless it is a stream.
const CONNECTION_WITHIN: Duration = Duration::from_secs(10);
/// What a request may need: the smallest that the library takes.
const BUFFER_BYTES: usize = 8192;
/// After an error of accepting, most often that the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves for ever.
pub async fn serve(listener: TcpListener, pages: Arc<AdminPages>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let pages = Arc::clone(&pages);
                let serving = async move |connection: TrackedConnection| {
                    let serving = pin!(serve_connection(client, &pages, &connection));
                    if in_time(serving, &connection).await.is_err() {
                        tracing::debug!("a client of the admin server was too slow");
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

/// A stream may last longer than a page, and ends by itself: whoever does not take it is let go of then.
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
        // One that is kept open without need would take another one's place.
        .keep_alive(false)
        .serve_connection(TokioIo::new(client), service);
    if let Err(error) = talked.await {
        tracing::debug!(%error, "a client of the admin server went away");
    }
}
