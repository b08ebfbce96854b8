//! The settings of the HTTP servers: the admin pages of a worker, and the gate.

mod proxies;

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use secrecy::SecretString;
use tidegate_orders::limits::SubjectName;

pub use self::proxies::{ProxyNet, UserHeader};

/// The settings of the section `[admin]`.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// The address to listen on; None: the server is off. An address other than loopback needs a token.
    pub listen: Option<SocketAddr>,
    /// The token that clients have to send.
    pub token: Option<SecretString>,
}

/// The settings of the section `[gate]`: the gate over HTTP.
#[derive(Clone, Debug)]
pub struct GateSettings {
    /// The address to listen on. An address other than loopback needs a token or client certificates.
    pub listen: SocketAddr,
    /// The token that clients have to send.
    pub token: Option<SecretString>,
    /// The largest number of connections at a time.
    pub connections: usize,
    /// The time limit for each step of a connection: the TLS handshake, the head, the body, and each part of an answer
    /// that the client reads.
    pub read_within: Duration,
    /// The time after a stop for which the gate still accepts connections, while `/readyz` answers that it stops.
    pub leave_for: Duration,
    /// The time for which the gate answers that a voucher is sold out without a call to Redis.
    pub sold_out_for: Duration,
    /// The template of the key under which the tutorial's service keeps a login: `login:token:<token>`. None: the
    /// tutorial's path is off.
    pub tutorial_login: Option<String>,
    /// The proxies and the header that name the caller.
    pub callers: CallerSettings,
    /// The limits on requests before Redis is called.
    pub attempts: AttemptSettings,
    /// The files for TLS. None: the gate speaks HTTP without TLS.
    pub tls: Option<TlsSettings>,
}

/// The proxies and the header that name the caller.
#[derive(Clone, Debug, Default)]
pub struct CallerSettings {
    /// The proxies that the gate trusts.
    pub proxies: Vec<ProxyNet>,
    /// The header in which proxies name the user. None: proxies name no user.
    pub user_header: Option<UserHeader>,
}

/// The limits on requests before Redis is called.
#[derive(Clone, Debug, Default)]
pub struct AttemptSettings {
    /// The limit by the address of the caller. None: there is no such limit.
    pub by_address: Option<AttemptRate>,
    /// The limits by user and by the subjects that requests name.
    pub by_subject: BTreeMap<SubjectName, AttemptRate>,
}

/// A rate of attempts: `attempts` at once after a rest, and then as many in each span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRate {
    /// The number of attempts in a span.
    pub attempts: NonZeroU32,
    /// The length of a span. It is long enough that each attempt has a part of it.
    pub span: Duration,
}

/// The PEM files for the TLS of the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The file of the certificate and its intermediate certificates.
    pub certificate: PathBuf,
    /// The file of the certificate's private key.
    pub key: PathBuf,
    /// The file of the authorities for client certificates. If it is set, the gate serves only clients with a
    /// certificate from one of them.
    pub client_authorities: Option<PathBuf>,
}
