//! Receivers of webhooks: one that accepts every result, and a dead one that takes connections and never answers.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Result;
use http_body_util::{BodyExt, Empty};
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, task::AbortHandle};

/// A receiver, which ends when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    ids: Arc<Mutex<HashSet<String>>>,
    serving: AbortHandle,
}

impl Receiver {
    /// Starts a receiver. A dead one never answers.
    pub async fn start(is_dead: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (address, ids) = (listener.local_addr()?, Arc::default());
        let serving = tokio::spawn(serve(listener, Arc::clone(&ids), is_dead)).abort_handle();
        Ok(Self { address, ids, serving })
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// The number of different results that it has accepted.
    pub fn accepted(&self) -> usize {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, ids: Arc<Mutex<HashSet<String>>>, is_dead: bool) {
    let mut open = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        if is_dead {
            open.push(stream);
            continue;
        }
        let ids = Arc::clone(&ids);
        let service = service_fn(move |request| accept(request, Arc::clone(&ids)));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn accept(
    request: Request<Incoming>,
    ids: Arc<Mutex<HashSet<String>>>,
) -> hyper::Result<Response<Empty<Bytes>>> {
    let id =
        request.headers().get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    request.into_body().collect().await?;
    ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    let mut response = Response::new(Empty::new());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
