//! The HTTP client of a webhook. It checks every address before it connects, verifies certificates, follows no redirect,
//! and keeps connections open.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Version,
    body::{Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::HOST,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{InvalidDnsNameError, ServerName},
    },
};

use super::target::Target;

/// The longest time of a call, from the resolution of the name to the status of the answer.
const CALL_WITHIN: Duration = Duration::from_secs(10);
/// The longest time to connect to one address of the host, so that an address that does not answer leaves time for others.
const ADDRESS_WITHIN: Duration = Duration::from_secs(3);
/// The longest time to read the body of an answer. The body does not matter, but without it the connection cannot be
/// used again.
const BODY_WITHIN: Duration = Duration::from_secs(1);
/// The largest body of an answer that is read.
const BODY_BYTES: usize = 16 << 10;

/// The reason why the receiver of a webhook did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The worker must not connect to any address of the host.
    #[error("{0}")]
    AddressRefusal(String),
    /// The name of the host cannot be resolved.
    #[error("cannot resolve the host name: {0}")]
    Unresolved(io::Error),
    /// No address of the host accepts a connection.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The certificate is invalid, or the receiver does not use TLS.
    #[error("no TLS: {0}")]
    Tls(io::Error),
    /// The host name cannot be in a certificate.
    #[error("no TLS: {0}")]
    Name(#[from] InvalidDnsNameError),
    /// The connection broke, or the receiver does not use HTTP.
    #[error("no answer: {0}")]
    Http(#[from] hyper::Error),
    /// The call took too long.
    #[error("no answer within {} s", CALL_WITHIN.as_secs())]
    Late,
}

/// The TLS configuration that all webhooks of a process share.
#[must_use]
pub fn tls_config() -> Arc<ClientConfig> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _unreadable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        tracing::warn!(
            "this system has no certificate authorities, so webhooks with TLS fail: install the package \
             ca-certificates or set SSL_CERT_FILE, and restart the worker"
        );
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().expect("ring has the default versions of TLS");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The client of one webhook. It has a connection for each of the calls that run at once.
pub struct Client {
    target: Target,
    tls: TlsConnector,
    /// The connections that no call uses now: one, or as many as calls ran at once.
    kept: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// Creates a client, which connects at its first call.
    #[must_use]
    pub fn new(target: Target, tls: Arc<ClientConfig>) -> Self {
        Self { target, tls: TlsConnector::from(tls), kept: Mutex::default() }
    }

    /// Sends a POST request, and returns the status of the answer.
    ///
    /// # Errors
    /// Fails if no answer comes in time. Then the receiver may have handled the request.
    pub async fn post(&self, headers: &HeaderMap, body: &Bytes) -> Result<StatusCode, NoAnswer> {
        let call = async {
            // A connection that was kept may be closed by now; only then the request is sent a second time.
            let kept = self.kept().pop();
            if let Some(mut kept) = kept.filter(|kept| !kept.is_closed()) {
                match self.send(&mut kept, headers, body).await {
                    Ok(answer) => return Ok((kept, answer)),
                    Err(error) => tracing::debug!(%error, "a kept connection of a webhook has ended"),
                }
            }
            let mut fresh = self.connect().await?;
            let answer = self.send(&mut fresh, headers, body).await?;
            Ok((fresh, answer))
        };
        let (sender, answer) = timeout(CALL_WITHIN, call).await.unwrap_or(Err(NoAnswer::Late))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), BODY_BYTES).collect();
        if matches!(timeout(BODY_WITHIN, body).await, Ok(Ok(_))) {
            self.kept().push(sender);
        }
        Ok(status)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<SendRequest<Full<Bytes>>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> hyper::Result<hyper::Response<Incoming>> {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = self.target.path.clone().into();
        *request.headers_mut() = headers.clone();
        request.headers_mut().insert(HOST, self.target.authority.clone());
        sender.ready().await?;
        sender.send_request(request).await
    }

    /// Connects to the first address of the host that may be used and accepts a connection.
    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
        let Target { host, port, .. } = &self.target;
        let addresses = lookup_host((host.as_str(), *port)).await.map_err(NoAnswer::Unresolved)?;
        let mut failed = NoAnswer::Unresolved(io::ErrorKind::NotFound.into());
        for address in addresses {
            if let Err(why) = self.target.check(address.ip()) {
                failed = NoAnswer::AddressRefusal(format!(
                    "the address {} is not allowed: it {why}",
                    address.ip()
                ));
                continue;
            }
            match connect_within(address, ADDRESS_WITHIN).await {
                Ok(stream) => return self.begin(stream).await,
                Err(error) => failed = NoAnswer::Unreachable(error),
            }
        }
        Err(failed)
    }

    async fn begin(&self, stream: TcpStream) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
        let _best_effort = stream.set_nodelay(true);
        if !self.target.is_tls {
            return handshake(stream).await;
        }
        let name = ServerName::try_from(self.target.host.clone())?;
        handshake(self.tls.connect(name, stream).await.map_err(NoAnswer::Tls)?).await
    }
}

async fn connect_within(address: SocketAddr, longest: Duration) -> io::Result<TcpStream> {
    let late =
        || io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", longest.as_secs()));
    timeout(longest, TcpStream::connect(address)).await.unwrap_or_else(|_| Err(late()))
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, NoAnswer> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // This task ends when the sender is dropped, or when the receiver closes the connection.
    tokio::spawn(connection);
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_given_up() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        // Linux does not answer any further connection when this short queue is full.
        let silent = socket.listen(0).unwrap();
        let (address, mut open) = (silent.local_addr().unwrap(), Vec::new());
        let error = loop {
            match connect_within(address, Duration::from_secs(1)).await {
                Ok(stream) => open.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "no answer within 1 s", "after {} connections", open.len());
    }
}
