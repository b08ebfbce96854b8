//! The HTTP client for the pages of the worker or the gate on this machine.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::anyhow;
use http_body_util::{BodyExt, Empty, Limited};
pub use hyper::StatusCode;
use hyper::{
    Request,
    body::Bytes,
    client::conn::http1,
    header::{AUTHORIZATION, HOST},
};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::settings::AdminSettings;

/// The largest answer that the client accepts. A server sends less, but another program may listen on the address.
const ANSWER_BYTES: usize = 1 << 20;

/// The socket address at which the admin pages of a worker with this configuration are served.
///
/// # Errors
/// Fails with the reason if the configuration names no address to ask.
pub fn address(admin: &AdminSettings) -> Result<SocketAddr, String> {
    let listen = admin
        .listen
        .ok_or("admin.listen is off, so no command can query the worker: set admin.listen to an address")?;
    address_of(listen, "admin.listen")
}

/// The socket address at which this machine reaches a server that listens on `listen`. `setting` names this address in
/// the configuration.
///
/// # Errors
/// Fails with the reason if the port is unknown.
pub fn address_of(mut listen: SocketAddr, setting: &str) -> Result<SocketAddr, String> {
    if listen.port() == 0 {
        return Err(format!(
            "{setting} has port 0, so the port is unknown: set {setting} to an address with a fixed port"
        ));
    }
    if listen.ip().is_unspecified() {
        listen.set_ip(match listen {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(listen)
}

/// Requests an admin page of the worker. All pages but the probes need a token, unless the worker has none.
///
/// # Errors
/// Fails if no HTTP server answers on the address.
pub async fn ask(
    address: SocketAddr,
    path: &str,
    token: Option<&SecretString>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    ask_on(TcpStream::connect(address).await?, address, path, token).await
}

/// Requests a page on an open connection of any kind, as [`ask`] does.
pub(crate) async fn ask_on<S>(
    stream: S,
    address: SocketAddr,
    path: &str,
    token: Option<&SecretString>,
) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // This task ends with the answer, or when the caller stops waiting for it.
    tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
    Ok((status, body.map_err(|error| anyhow!("{error}"))?.to_bytes()))
}
