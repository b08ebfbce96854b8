//! The URL of a webhook, and the addresses to which a worker may connect for it.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use hyper::{
    Uri,
    header::HeaderValue,
    http::uri::{PathAndQuery, Scheme},
};

/// The parsed URL of a webhook. The path and the query may contain a secret, so `Target` has no `Debug`. To show a
/// URL, use `WebhookUrl`.
#[derive(Clone)]
pub struct Target {
    /// Whether the worker uses TLS.
    pub(super) is_tls: bool,
    /// The host name or the IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of the header `Host`.
    pub(super) authority: HeaderValue,
    pub(super) path: PathAndQuery,
    allow_http: bool,
}

/// The reason why a worker must not connect to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressRefusal {
    /// The address is valid on a single network link only. Cloud servers have their credentials on such addresses.
    LinkLocal,
    /// The address is no address of a single host: it is unspecified, multicast or broadcast.
    NoHost,
    /// Plain HTTP is allowed to loopback only.
    PlainHttp,
}

impl fmt::Display for AddressRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkLocal => "is link-local",
            Self::NoHost => "is no address of a single host",
            Self::PlainHttp => "is not loopback, and the URL has no TLS",
        })
    }
}

impl Target {
    /// Parses the URL of a webhook. With `allow_http`, the URL may have the scheme `http` for hosts other than loopback.
    ///
    /// # Errors
    /// Fails with the reason if a worker may not send results to the URL. The text does not contain the URL.
    pub fn parse(url: &str, allow_http: bool) -> Result<Self, &'static str> {
        const NO_URL: &str = "must be a URL such as https://shop.example/hooks";
        let uri: Uri = url.parse().map_err(|_| NO_URL)?;
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(NO_URL),
        };
        let authority = uri.authority().ok_or(NO_URL)?;
        if authority.as_str().contains('@') {
            return Err("must not contain a user or a password: receivers check the signature");
        }
        // `Uri` returns no port for a text that is not a number up to 65535. Such a URL must not get the default port.
        let port = match (authority.as_str().strip_prefix(authority.host()), authority.port_u16()) {
            (Some(""), None) if is_tls => 443,
            (Some(""), None) => 80,
            (Some(text), Some(port)) if port > 0 && !text.contains('+') => port,
            _ => return Err(NO_URL),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(NO_URL);
        }
        let target = Self {
            is_tls,
            host,
            port,
            authority: HeaderValue::from_str(authority.as_str()).map_err(|_| NO_URL)?,
            path: uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
            allow_http,
        };
        if !is_tls && !allow_http && !target.names_loopback() {
            return Err("must begin with https://: set allow_http = true to send results without TLS");
        }
        match target.host.parse().map(|address| target.check(address)) {
            Ok(Err(AddressRefusal::LinkLocal | AddressRefusal::NoHost)) => {
                Err("must not name a link-local, unspecified, multicast or broadcast address")
            }
            _ => Ok(target),
        }
    }

    fn names_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Checks that a worker may connect to an address of the host. The check comes after the name was resolved,
    /// because a name may be made to resolve to any address.
    ///
    /// # Errors
    /// Fails with the reason why the worker must not connect.
    pub fn check(&self, address: IpAddr) -> Result<(), AddressRefusal> {
        let address = embedded(address);
        let (is_link_local, is_broadcast) = match address {
            IpAddr::V4(v4) => (v4.is_link_local(), v4.is_broadcast()),
            IpAddr::V6(v6) => (v6.is_unicast_link_local(), false),
        };
        if is_link_local {
            Err(AddressRefusal::LinkLocal)
        } else if is_broadcast
            || address.is_unspecified()
            || address.is_multicast()
            || is_this_network(address)
        {
            Err(AddressRefusal::NoHost)
        } else if !self.is_tls && !self.allow_http && !address.is_loopback() {
            Err(AddressRefusal::PlainHttp)
        } else {
            Ok(())
        }
    }
}

/// Whether the system may take the address for itself: 0.0.0.0/8.
fn is_this_network(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 0)
}

/// The IPv4 address to which a connection to an IPv6 address leads, if there is one: mapped (::ffff:a.b.c.d), translated
/// by NAT64 (64:ff9b::/96), or in a 6to4 tunnel (2002::/16).
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
    let words = v6.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match words {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => v4(high, low),
        [0x2002, high, low, ..] => v4(high, low),
        // The old compatible form, which is not ::1 or ::.
        [0, 0, 0, 0, 0, 0, high, low] if v6 != Ipv6Addr::LOCALHOST && v6 != Ipv6Addr::UNSPECIFIED => {
            v4(high, low)
        }
        _ => IpAddr::V6(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, allow_http: bool, address: &str) -> Result<(), AddressRefusal> {
        Target::parse(url, allow_http).unwrap().check(address.parse().unwrap())
    }

    #[test]
    fn link_local_addresses_are_forbidden_in_every_form() {
        for address in [
            "169.254.169.254",
            "fe80::1",
            "febf::1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "::169.254.169.254",
        ] {
            for url in ["https://shop.example/", "http://shop.example/"] {
                assert_eq!(check(url, true, address), Err(AddressRefusal::LinkLocal), "{address}");
            }
        }
        for address in
            ["0.0.0.0", "0.1.2.3", "::", "255.255.255.255", "224.0.0.1", "ff02::1", "::ffff:0.0.0.0"]
        {
            assert_eq!(
                check("https://shop.example/", true, address),
                Err(AddressRefusal::NoHost),
                "{address}"
            );
        }
    }

    #[test]
    fn plain_http_goes_to_loopback_only_unless_it_is_allowed() {
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(check("http://localhost/", false, address), Ok(()), "{address}");
        }
        for address in ["10.0.0.1", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(
                check("http://localhost/", false, address),
                Err(AddressRefusal::PlainHttp),
                "{address}"
            );
            assert_eq!(check("http://shop.example/", true, address), Ok(()), "{address}");
            assert_eq!(check("https://shop.example/", false, address), Ok(()), "{address}");
        }
    }

    #[test]
    fn a_url_has_a_scheme_and_a_host_and_no_password() {
        let parse = |url: &str| Target::parse(url, false);
        for url in [
            "https://shop.example",
            "https://shop.example:8443/a?b=c",
            "http://localhost:1/",
            "http://[::1]/",
        ] {
            assert!(parse(url).is_ok(), "{url}");
        }
        let target = parse("https://[2001:db8::1]:444/hooks?x=1").unwrap();
        assert_eq!((&*target.host, target.port, target.path.as_str()), ("2001:db8::1", 444, "/hooks?x=1"));
        assert_eq!(target.authority, "[2001:db8::1]:444");
        for url in [
            "",
            "shop.example/hooks",
            "ftp://shop.example/",
            "https:///hooks",
            "https://user:secret@shop.example/",
            "http://shop.example/",
            "https://169.254.169.254/",
            "https://[::ffff:a9fe:a9fe]/",
            "https://0.0.0.0/",
            "https://shop.example:65536/",
            "https://shop.example:99999999999/",
            "https://shop.example:0/",
            "https://shop.example:/",
            "https://shop.example:x/",
            "https://shop.example:+443/",
            "https://shop.example:-1/",
            "https://[2001:db8::1]:65536/",
            "https://[2001:db8::1]:/",
            "https://[2001:db8::1]x/",
        ] {
            let error = parse(url).err().expect(url);
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
