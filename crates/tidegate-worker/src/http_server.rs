//! What the HTTP servers of the process have in common.

use std::{io, net::SocketAddr, time::Duration};

use hyper::{
    HeaderMap,
    header::{AUTHORIZATION, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use socket2::SockRef;
use subtle::ConstantTimeEq;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

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

/// Sends answers at once; a client that takes none for so long is gone. The kernel sees to it, because only it knows what was taken.
pub fn answer_or_leave(client: &TcpStream, taken_within: Duration) {
    // As well as can be: a socket that has gone meanwhile refuses both.
    let _best_effort = client.set_nodelay(true);
    let _best_effort = SockRef::from(client).set_tcp_user_timeout(Some(taken_within));
}

/// Whether a request has the secret, where there is one: `Authorization: Bearer TOKEN`.
pub fn has_token(headers: &HeaderMap, token: Option<&SecretString>) -> bool {
    let Some(token) = token else { return true };
    let sent = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((scheme, sent)) = sent.split_at_checked("Bearer ".len()) else { return false };
    // In the same time, however much of it is right.
    scheme.eq_ignore_ascii_case(b"Bearer ") && sent.ct_eq(token.expose_secret().as_bytes()).into()
}
