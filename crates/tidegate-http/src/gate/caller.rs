//! The caller of a request: its address and its user. The gate believes the headers of listed proxies only.

use std::{iter::once, net::IpAddr};

use hyper::{HeaderMap, header::HeaderValue};
use tidegate_orders::UserId;
use tokio_util::sync::CancellationToken;

use super::problem::{Problem, ProblemKind};
use crate::{
    server_sent::ClientEnd,
    settings::{CallerSettings, UserHeader},
};

const FORWARDED_FOR: &str = "x-forwarded-for";

/// The address and the user of a caller, from the connection and the headers of a request.
#[derive(Clone, Debug)]
pub struct Caller {
    address: IpAddr,
    user: NamedUser,
    closed: CancellationToken,
}

/// The user that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedUser {
    /// No header names a user, and none has to: the body does.
    ByBody,
    /// A listed proxy names this user.
    ByProxy(UserId),
    /// A listed proxy names no user, two users, or an invalid one; with the reason.
    NotByProxy(&'static str),
    /// A client that is not a listed proxy sent the header.
    BySomebody,
}

impl Caller {
    /// Finds the caller of a request that came with these headers from the address `peer`. `closed` is cancelled when the
    /// caller closes its connection.
    pub fn of(
        peer: IpAddr,
        headers: &HeaderMap,
        settings: &CallerSettings,
        closed: CancellationToken,
    ) -> Self {
        let is_proxy = |address: IpAddr| settings.proxies.iter().any(|net| net.contains(address));
        let user = match &settings.user_header {
            None => NamedUser::ByBody,
            Some(header) if is_proxy(peer) => user_of_proxy(headers, header),
            Some(header) if headers.contains_key(header.name()) => NamedUser::BySomebody,
            Some(_) => NamedUser::ByBody,
        };
        Self { address: origin(peer, headers, is_proxy), user, closed }
    }

    /// The signals to end a long answer to this caller. `access` is cancelled when the list of tokens changes.
    pub fn end(&self, access: CancellationToken) -> ClientEnd {
        ClientEnd { access, closed: self.closed.clone() }
    }

    /// The IP address of the caller; behind trusted proxies, the address that the proxies report.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The user that a trusted proxy names in a header. None: the body of the request has to name the user.
    ///
    /// # Errors
    /// Fails if an untrusted client sent the header, or if a proxy sent no header or one without a valid user.
    pub fn user(&self) -> Result<Option<UserId>, Problem> {
        match self.user {
            NamedUser::ByBody => Ok(None),
            NamedUser::ByProxy(user) => Ok(Some(user)),
            NamedUser::NotByProxy(why) => Err(ProblemKind::NoUser.because(why)),
            NamedUser::BySomebody => Err(ProblemKind::NotAProxy.into()),
        }
    }

    /// Checks that the request names no user: users must not say that they have paid, or read the results of others.
    ///
    /// # Errors
    /// Fails if a proxy names a user, and as [`Caller::user`] does.
    pub fn must_be_application(&self) -> Result<(), Problem> {
        match self.user()? {
            Some(_) => Err(ProblemKind::NotForUsers.into()),
            None => Ok(()),
        }
    }
}

/// Finds the address of the caller. Each proxy appends the address that it received the request from. Thus the entries
/// are trusted from the right, up to the first address that is no listed proxy: it may have invented all entries
/// before it.
fn origin(peer: IpAddr, headers: &HeaderMap, is_proxy: impl Fn(IpAddr) -> bool) -> IpAddr {
    let lines = headers.get_all(FORWARDED_FOR).iter();
    // The entries are split as bytes: a value that one client wrote into a line must not spoil the entry that a proxy
    // appended to it.
    let entries: Vec<&[u8]> = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).collect();
    let text = |entry| std::str::from_utf8(entry).ok();
    let heard = entries.into_iter().rev().map(|entry| address_in(text(entry)?.trim()));
    let mut nearest = peer.to_canonical();
    // An entry that is no address ends the chain, and no entry before it counts: the proxy that wrote it stands for
    // its clients.
    for heard in once(Some(peer)).chain(heard).map_while(|heard| heard) {
        nearest = heard.to_canonical();
        if !is_proxy(nearest) {
            break;
        }
    }
    nearest
}

/// Parses an address. Some proxies append the port.
fn address_in(entry: &str) -> Option<IpAddr> {
    let with_port = || entry.parse().map(|address: std::net::SocketAddr| address.ip());
    let in_brackets = || entry.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    entry.parse().ok().or_else(|| with_port().ok()).or_else(in_brackets)
}

fn user_of_proxy(headers: &HeaderMap, header: &UserHeader) -> NamedUser {
    let mut named = headers.get_all(header.name()).iter().map(HeaderValue::as_bytes);
    match (named.next(), named.next()) {
        (Some(user), None) => UserId::parse(user)
            .map_or(NamedUser::NotByProxy("the header has no valid user id"), NamedUser::ByProxy),
        (None, _) => NamedUser::NotByProxy("the header is missing"),
        (Some(_), Some(_)) => NamedUser::NotByProxy("the header was sent more than once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> CallerSettings {
        let proxies = ["10.0.0.0/8", "127.0.0.1"].map(|net| net.parse().unwrap()).into();
        CallerSettings { proxies, user_header: Some("X-User-Id".parse().unwrap()) }
    }

    fn caller(peer: &str, headers: &[(&'static str, &str)]) -> Caller {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Caller::of(peer.parse().unwrap(), &map, &settings(), CancellationToken::new())
    }

    fn address(peer: &str, chain: &[&str]) -> String {
        let headers: Vec<_> = chain.iter().map(|line| (FORWARDED_FOR, *line)).collect();
        caller(peer, &headers).address().to_string()
    }

    #[test]
    fn the_address_is_the_rightmost_that_a_listed_proxy_heard_and_is_none_itself() {
        assert_eq!(address("203.0.113.9", &["198.51.100.1"]), "203.0.113.9", "nobody's word");
        assert_eq!(address("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(address("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(address("10.0.0.1", &["1.1.1.1, 198.51.100.1"]), "198.51.100.1", "before it, anything");
        assert_eq!(address("10.0.0.1", &["1.1.1.1,198.51.100.1 , 10.0.0.7,127.0.0.1"]), "198.51.100.1");
        assert_eq!(address("10.0.0.1", &["1.1.1.1", "198.51.100.1", "10.0.0.2"]), "198.51.100.1", "lines");
        assert_eq!(address("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3", "all are proxies");
        assert_eq!(address("::ffff:10.0.0.1", &["::ffff:198.51.100.1"]), "198.51.100.1");
        assert_eq!(address("10.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(address("10.0.0.1", &["[2001:db8::1]:4711"]), "2001:db8::1");
        assert_eq!(address("10.0.0.1", &["[2001:db8::1]"]), "2001:db8::1");
    }

    #[test]
    fn what_is_no_address_ends_the_chain_at_the_proxy_that_wrote_it() {
        for nothing in ["unknown", "", "198.51.100.1,", "_hidden", "198.51.100.1, 1.2.3.4.5", "\u{fc}"] {
            assert_eq!(address("10.0.0.1", &[nothing]), "10.0.0.1", "{nothing:?}");
        }
        assert_eq!(address("10.0.0.1", &["198.51.100.1, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(address("10.0.0.1", &["unknown, 198.51.100.1"]), "198.51.100.1", "it is never reached");
        assert_eq!(address("10.0.0.1", &["\u{fc}, 198.51.100.1"]), "198.51.100.1", "nor is this");
    }

    #[test]
    fn a_user_is_believed_of_a_listed_proxy_only_and_there_it_has_to_be_named() {
        let user = |peer: &str, headers: &[(&'static str, &str)]| {
            caller(peer, headers).user().map_err(|problem| problem.kind)
        };
        let named = [("x-user-id", "42")];
        assert_eq!(user("10.0.0.1", &named), Ok(Some(UserId::try_from(42).unwrap())));
        assert_eq!(user("203.0.113.9", &named), Err(ProblemKind::NotAProxy));
        assert_eq!(user("203.0.113.9", &[]), Ok(None));
        for wrong in ["", "0", "-1", "4 2", "x", "9223372036854775808"] {
            assert_eq!(user("10.0.0.1", &[("x-user-id", wrong)]), Err(ProblemKind::NoUser), "{wrong:?}");
        }
        assert_eq!(user("10.0.0.1", &[]), Err(ProblemKind::NoUser));
        assert_eq!(user("10.0.0.1", &[named[0], named[0]]), Err(ProblemKind::NoUser));
        let forged = [("x-forwarded-for", "10.0.0.2"), named[0]];
        assert_eq!(user("203.0.113.9", &forged), Err(ProblemKind::NotAProxy), "the peer is what counts");
    }
}
