//! What the HTTP servers of the process have in common.

use std::{io, net::SocketAddr};

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait in the kernel until they are accepted. Whoever finds no room there tries again after a
/// whole second: a probe has given up by then.
const BACKLOG: u32 = 4096;

/// Listens on an address.
pub fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As TcpListener::bind does it: a process that ended a moment ago leaves connections behind.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether a request has the secret, where there is one: `Authorization: Bearer TOKEN`.
pub fn has_token(headers: &HeaderMap, token: Option<&SecretString>) -> bool {
    let Some(token) = token else { return true };
    let sent = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((scheme, sent)) = sent.split_at_checked("Bearer ".len()) else { return false };
    // In the same time, however much of it is right.
    scheme.eq_ignore_ascii_case(b"Bearer ") && sent.ct_eq(token.expose_secret().as_bytes()).into()
}
