//! The parts that the HTTP servers of the process share.

use std::{borrow::Cow, io, net::SocketAddr, time::Duration};

use hyper::{
    Request, Version,
    header::{AUTHORIZATION, HOST, HeaderValue},
    http::uri::Authority,
};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// The number of connections that may wait in the kernel until they are accepted. If there is no room, a client tries
/// again after a whole second, and a probe has given up by then.
const BACKLOG: u32 = 4096;

/// The idle time before the kernel sends the first keepalive probe.
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// The time between two keepalive probes.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Creates a TCP listener on an address.
pub fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // `TcpListener::bind` does the same: a process that ended a moment ago leaves connections behind.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Configures a connection to send answers at once, and to close if the client reads nothing for `taken_within`. If the
/// client does not answer a probe, the kernel closes the connection 20 s after the client's last byte; with a longer
/// `taken_within`, at the first probe after that time.
pub fn answer_or_leave(client: &TcpStream, taken_within: Duration) {
    // All are best effort: a connection that has closed meanwhile refuses them.
    let _best_effort = client.set_nodelay(true);
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_EVERY);
    let _best_effort = SockRef::from(client).set_tcp_keepalive(&probes);
    let _best_effort = SockRef::from(client).set_tcp_user_timeout(Some(taken_within));
}

/// Checks the head of a request by the rules of RFC 9112 (section 3.2). Returns the error, or None if the head is
/// valid.
///
/// If two servers read a head with two values differently, an attacker can smuggle a request past the first server.
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

/// The decoded value of a parameter of a query. `names` are the present name of the parameter, then its former names.
///
/// # Errors
/// Fails with the reason if the parameter is sent more than once: two servers may take different values.
pub fn parameter<'q>(query: &'q str, names: &[&str]) -> Result<Option<Cow<'q, str>>, String> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    let mut values = pairs.filter(|(name, _)| names.contains(&&**name)).map(|(_, value)| value);
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(format!("send `{}` only once", names[0])),
    }
}

/// Whether a value is a valid host. It is empty if the client does not know the name, and it never has a user, which a
/// URL's authority may have.
fn is_host(host: &HeaderValue) -> bool {
    let host = host.as_bytes();
    host.is_empty() || !host.contains(&b'@') && Authority::try_from(host).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_decoded_and_sent_once_under_one_of_its_names() {
        let value = |query: &'static str| {
            parameter(query, &["voucherId", "voucher"]).map(|it| it.map(Cow::into_owned))
        };
        assert_eq!((value(""), value("voucherIds=7")), (Ok(None), Ok(None)));
        assert_eq!(value("voucherId"), Ok(Some(String::new())));
        for query in ["voucherId=7+%2c", "x=1&voucher=7%20,", "%76oucher%49d=7+,"] {
            assert_eq!(value(query), Ok(Some("7 ,".to_owned())), "{query}");
        }
        for twice in ["voucherId=7&voucherId=7", "voucher=7&x&voucherId=8", "voucherId&voucher%49d"] {
            assert_eq!(value(twice), Err("send `voucherId` only once".to_owned()), "{twice}");
        }
    }
}
