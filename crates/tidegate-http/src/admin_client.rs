//! Asks the worker on this machine, over HTTP.

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
use secrecy::ExposeSecret;
use tokio::net::TcpStream;

use crate::settings::AdminSettings;

/// More than a worker has to say; what listens there may be something else.
const ANSWER_BYTES: usize = 1 << 20;

/// Where a worker with this configuration is to be asked.
///
/// # Errors
/// When the configuration names no address; says so.
pub fn address(admin: &AdminSettings) -> Result<SocketAddr, &'static str> {
    let mut address = admin.listen.ok_or("admin.listen is off: the worker cannot be asked")?;
    if address.port() == 0 {
        return Err("admin.listen has port 0: name the port to ask");
    }
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

/// Asks for a page, with the token of the configuration.
///
/// # Errors
/// When nobody answers there in HTTP.
pub async fn ask(
    address: SocketAddr,
    path: &str,
    admin: &AdminSettings,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // Ends with the answer, or when nobody waits for it any more.
    tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, address.to_string());
    if let Some(token) = &admin.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose_secret()));
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
    Ok((status, body.map_err(|error| anyhow!("{error}"))?.to_bytes()))
}
