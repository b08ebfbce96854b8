//! The trusted proxies before the gate, and the header in which they name the user.

use std::{net::IpAddr, str::FromStr};

use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, FORWARDED, HOST, HeaderName,
    TRANSFER_ENCODING,
};
use ipnet::IpNet;

/// The headers that have another meaning already, so that they cannot name the user.
const TAKEN: [HeaderName; 8] =
    [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, FORWARDED, HOST, TRANSFER_ENCODING];
const FURTHER_TAKEN: [&str; 4] = ["x-forwarded-for", "traceparent", "tracestate", "idempotency-key"];

/// The address or the network of trusted proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyNet(IpNet);

impl ProxyNet {
    /// Whether this address or network contains the given address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for ProxyNet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let net = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse::<IpNet>());
        match net.map(canonical) {
            Ok(net) if net.prefix_len() == 0 => Err("would trust every address: list only your proxies"),
            Ok(net) => Ok(Self(net)),
            Err(_) => Err("is neither an IP address nor a network such as 10.0.0.0/8 or fd00::/8"),
        }
    }
}

/// Converts an IPv4 network that is written as IPv6 to IPv4. The gate converts the addresses of callers in the same
/// way.
fn canonical(net: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(net) = net else { return net };
    let Some(address) = net.addr().to_ipv4_mapped() else { return net.into() };
    let prefix = net.prefix_len().checked_sub(MAPPED_BITS);
    prefix.and_then(|prefix| IpNet::new(address.into(), prefix).ok()).unwrap_or(net.into())
}

/// The HTTP header in which trusted proxies name the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserHeader(HeaderName);

impl UserHeader {
    /// The name of the HTTP header, in lower case.
    #[must_use]
    pub const fn name(&self) -> &HeaderName {
        &self.0
    }
}

impl FromStr for UserHeader {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name: HeaderName = text.parse().map_err(|_| "is not a header name such as X-User-Id")?;
        match TAKEN.contains(&name) || FURTHER_TAKEN.contains(&name.as_str()) {
            true => Err("already has another meaning: choose another header, such as X-User-Id"),
            false => Ok(Self(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_addresses_or_nets_and_never_everybody() {
        let is_in =
            |net: &str, address: &str| net.parse::<ProxyNet>().unwrap().contains(address.parse().unwrap());
        assert!(is_in("10.1.0.0/16", "10.1.255.3") && !is_in("10.1.0.0/16", "10.2.0.1"));
        assert!(is_in("127.0.0.1", "127.0.0.1") && !is_in("127.0.0.1", "127.0.0.2"));
        assert!(is_in("127.0.0.1", "::ffff:127.0.0.1"), "as a socket for both says it");
        assert!(is_in("::ffff:10.0.0.0/104", "10.9.9.9") && !is_in("::ffff:10.0.0.0/104", "11.0.0.1"));
        assert!(is_in("fd00::/8", "fd12::1") && !is_in("fd00::/8", "10.0.0.1"));
        for wrong in ["", "localhost", "10.0.0.0/33", "10.0.0.1:80", "0.0.0.0/0", "::/0", "::ffff:0.0.0.0/96"]
        {
            assert!(wrong.parse::<ProxyNet>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_user_has_a_header_that_means_nothing_else() {
        assert_eq!("X-User-Id".parse::<UserHeader>().unwrap().name(), "x-user-id");
        for wrong in ["", "X User", "X-Üser", "Authorization", "x-forwarded-for", "Host"] {
            assert!(wrong.parse::<UserHeader>().is_err(), "{wrong}");
        }
    }
}
