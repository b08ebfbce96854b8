//! A receiver of webhooks: a real HTTP server, which records what it gets and answers as the test wants.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::LOCATION,
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use standardwebhooks::Webhook;
use tidegate_lab::Certificates;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    /// The value of the header `webhook-id`.
    pub fn id(&self) -> String {
        self.headers["webhook-id"].to_str().expect("text").to_owned()
    }

    pub fn json(&self) -> Json {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    /// The order of the result.
    pub fn order(&self) -> i64 {
        self.json()["orderId"].as_str().expect("a text").parse().expect("a number")
    }

    /// Whether a receiver with this secret accepts the signature.
    pub fn is_signed_by(&self, secret: &str) -> bool {
        Webhook::new(secret).expect("a secret").verify(&self.body, &self.headers).is_ok()
    }
}

/// The answer to a request.
pub enum Reply {
    Status(u16),
    Redirect(String),
    /// The receiver accepts the result, after this time.
    After(Duration),
    /// The receiver accepts the result after this semaphore was closed.
    AfterClosing(Arc<Semaphore>),
    /// The receiver never answers.
    None,
}

type Rule = Box<dyn FnMut(&Received) -> Reply + Send>;

/// A receiver. It ends with the test.
#[derive(Clone)]
pub struct Receiver {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<Received>>>,
    rule: Arc<Mutex<Rule>>,
    tls: Option<TlsAcceptor>,
}

impl Receiver {
    /// Starts a receiver that accepts everything.
    pub async fn start() -> Self {
        Self::serve(None).await
    }

    /// Starts a receiver that speaks TLS, as `localhost`.
    pub async fn start_tls(certificates: &Certificates) -> Self {
        let read = |path: &Path| std::fs::read(path).expect("a readable file");
        let chain =
            vec![CertificateDer::from_pem_slice(&read(&certificates.server())).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(&read(&certificates.server_key())).expect("a key");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Self::serve(Some(TlsAcceptor::from(Arc::new(config.expect("a configuration"))))).await
    }

    async fn serve(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
        let address = listener.local_addr().expect("an address");
        let rule: Rule = Box::new(|_| Reply::Status(204));
        let (connections, received) = Default::default();
        let receiver = Self { address, connections, received, rule: Arc::new(Mutex::new(rule)), tls };
        let accepting = receiver.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Relaxed);
                tokio::spawn(accepting.clone().accept(stream));
            }
        });
        receiver
    }

    async fn accept(self, stream: TcpStream) {
        match self.tls.clone() {
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    self.answer_all(stream).await;
                }
            }
            None => self.answer_all(stream).await,
        }
    }

    async fn answer_all(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request| self.clone().answer(request));
        let _closed = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(self, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
        let headers = request.headers().clone();
        let received = Received { headers, body: request.into_body().collect().await?.to_bytes() };
        let reply = self.rule.lock().expect("no panic")(&received);
        self.received.lock().expect("no panic").push(received);
        let mut response = Response::new(Full::default());
        match reply {
            Reply::Status(status) => *response.status_mut() = StatusCode::from_u16(status).expect("a status"),
            Reply::Redirect(to) => {
                *response.status_mut() = StatusCode::FOUND;
                response.headers_mut().insert(LOCATION, to.parse().expect("a URL"));
            }
            Reply::After(time) => tokio::time::sleep(time).await,
            Reply::AfterClosing(semaphore) => drop(semaphore.acquire().await),
            Reply::None => std::future::pending().await,
        }
        Ok(response)
    }

    /// Decides the answers from now on.
    pub fn answers(&self, rule: impl FnMut(&Received) -> Reply + Send + 'static) {
        *self.rule.lock().expect("no panic") = Box::new(rule);
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}/hooks", self.address.port())
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().expect("no panic").clone()
    }

    /// The orders of all requests so far.
    pub fn orders(&self) -> Vec<i64> {
        self.received().iter().map(Received::order).collect()
    }
}
