//! What the HTTP servers of the process have in common.

use std::{io, net::SocketAddr, time::Duration};

use hyper::{
    HeaderMap, Request, Version,
    header::{AUTHORIZATION, HOST, HeaderValue},
    http::uri::Authority,
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

/// Checks what RFC 9112 (section 3.2) asks of the head of every request. None: it is right; otherwise what is wrong.
///
/// Two servers that read a head with two values differently are how requests are smuggled past the first of them.
pub fn fault_of_head<B>(request: &Request<B>) -> Option<&'static str> {
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if request.version() >= Version::HTTP_11 => Some("the header Host is missing"),
        (_, Some(_)) => Some("the header Host is sent more than once"),
        (Some(host), None) if !is_host(host) => Some("the header Host is not a valid host name"),
        _ if headers.get_all(AUTHORIZATION).iter().nth(1).is_some() => {
            Some("the header Authorization is sent more than once")
        }
        _ => None,
    }
}

/// Empty where the client does not know its name; never with a user, as the authority of a URL may have one.
fn is_host(host: &HeaderValue) -> bool {
    let host = host.as_bytes();
    host.is_empty() || !host.contains(&b'@') && Authority::try_from(host).is_ok()
}

/// Whether a request has the secret, where there is one: `Authorization: Bearer TOKEN`.
pub fn has_token(headers: &HeaderMap, token: Option<&SecretString>) -> bool {
    let Some(token) = token else { return true };
    let sent = headers.get(AUTHORIZATION).map_or(&b""[..], HeaderValue::as_bytes);
    let Some((scheme, sent)) = sent.split_at_checked("Bearer ".len()) else { return false };
    // In the same time, however much of it is right.
    scheme.eq_ignore_ascii_case(b"Bearer ") && sent.ct_eq(token.expose_secret().as_bytes()).into()
}
