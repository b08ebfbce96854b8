//! The settings of the HTTP servers: the admin pages of a worker, and the gate.

mod proxies;
mod tokens;

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use tidegate_orders::limits::SubjectName;

pub use self::{
    proxies::{ProxyNet, UserHeader},
    tokens::{DigestSource, RereadTokens, TokenDigest, TokenEntry, TokenScope, TokenSettings},
};

/// The settings in the section `[admin]` of the configuration.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The address on which the admin server listens. None: the admin server is off. An address other than loopback
    /// needs a token with the scope `read`.
    pub listen: Option<SocketAddr>,
}

/// The settings in the section `[gate]` of the configuration, for the gate over HTTP.
#[derive(Clone, Debug)]
pub struct GateSettings {
    /// The address on which the gate listens. An address other than loopback needs tokens or client certificates.
    pub listen: SocketAddr,
    /// The largest number of open client connections.
    pub connections: usize,
    /// The time limit for each step of a connection: the TLS handshake, the head of a request, its body, and sending
    /// the answer.
    pub read_within: Duration,
    /// The time after the stop signal for which the gate still accepts connections, while `/readyz` already answers
    /// that the gate stops.
    pub leave_for: Duration,
    /// The time for which the gate answers "sold out" without a call to Redis, after Redis has answered this once.
    pub sold_out_for: Duration,
    /// The template of the Redis key in which the tutorial shop hm-dianping keeps a login, such as
    /// `login:token:<token>`. None: the gate does not serve the shop's path.
    pub tutorial_login: Option<String>,
    /// The trusted proxies, and the header in which trusted proxies name the user.
    pub callers: CallerSettings,
    /// The limits on how many requests a client may send. The gate checks these limits before it calls Redis.
    pub attempts: AttemptSettings,
    /// The certificate files for TLS. None: the gate uses HTTP without TLS.
    pub tls: Option<TlsSettings>,
}

/// The trusted proxies, and the header in which trusted proxies name the user.
#[derive(Clone, Debug, Default)]
pub struct CallerSettings {
    /// The addresses of the proxies that the gate trusts.
    pub proxies: Vec<ProxyNet>,
    /// The header in which proxies name the user. None: proxies name no user.
    pub user_header: Option<UserHeader>,
}

/// The limits on how many requests a client may send. The gate checks these limits before it calls Redis.
#[derive(Clone, Debug, Default)]
pub struct AttemptSettings {
    /// The limit on requests from one address. None: the gate does not count by address.
    pub by_address: Option<AttemptRate>,
    /// The limits on requests with the same user, device or other subject, by the name of the subject.
    pub by_subject: BTreeMap<SubjectName, AttemptRate>,
}

/// A limit on the rate of requests: after a pause, at most `attempts` requests at the same time, and then at most
/// `attempts` in each `span`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRate {
    /// The largest number of requests that are allowed in a span.
    pub attempts: NonZeroU32,
    /// The length of a span, in which at most `attempts` requests are allowed.
    pub span: Duration,
}

/// The paths of the PEM files that the gate needs for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The path of the file with the certificate of the gate and the intermediate certificates.
    pub certificate: PathBuf,
    /// The path of the file with the private key of the certificate.
    pub key: PathBuf,
    /// The path of the file with certificate authorities for clients. If this path is set, the gate serves only clients
    /// with a certificate from one of these authorities.
    pub client_authorities: Option<PathBuf>,
}
