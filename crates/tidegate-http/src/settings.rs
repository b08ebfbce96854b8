//! The settings of what is served over HTTP: the admin page of a worker, and the gate.

mod proxies;

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use secrecy::SecretString;
use tidegate_orders::limits::SubjectName;

pub use self::proxies::{ProxyNet, UserHeader};

/// `[admin]`
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where to listen; None = nowhere. Not loopback only with a token.
    pub listen: Option<SocketAddr>,
    /// What callers have to send.
    pub token: Option<SecretString>,
}

/// `[gate]`: the gate over HTTP.
#[derive(Clone, Debug)]
pub struct GateSettings {
    /// Where to listen. Not loopback only with a token, or with certificates of callers.
    pub listen: SocketAddr,
    /// What callers have to send.
    pub token: Option<SecretString>,
    /// Connections at a time.
    pub connections: usize,
    /// How long a TLS handshake may take, then a head, then a body, and until some of an answer is taken.
    pub read_within: Duration,
    /// How long callers are let in after a stop, while `/readyz` says that nobody shall be sent any more.
    pub leave_for: Duration,
    /// How long callers hear that a voucher is sold out without asking Redis.
    pub sold_out_for: Duration,
    /// Template of the key under which the tutorial's service keeps a login: `login:token:<token>`. None: its path is not answered.
    pub tutorial_login: Option<String>,
    /// Who says for others who they are.
    pub callers: CallerSettings,
    /// How often one may ask.
    pub attempts: AttemptSettings,
    /// None: it speaks HTTP without TLS.
    pub tls: Option<TlsSettings>,
}

/// Who says for others who they are.
#[derive(Clone, Debug, Default)]
pub struct CallerSettings {
    /// Proxies that are believed.
    pub proxies: Vec<ProxyNet>,
    /// The header in which they name the user; None: they do not.
    pub user_header: Option<UserHeader>,
}

/// How often one may ask before Redis is asked.
#[derive(Clone, Debug, Default)]
pub struct AttemptSettings {
    /// By the address of the caller. None: as often as it likes.
    pub by_address: Option<AttemptRate>,
    /// By the user, and by what callers say of themselves.
    pub by_subject: BTreeMap<SubjectName, AttemptRate>,
}

/// So many attempts at once after a rest, and so many in each span that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptRate {
    /// How many.
    pub attempts: NonZeroU32,
    /// In which time. Long enough that each attempt has a part of it.
    pub span: Duration,
}

/// Files (PEM) with which the gate speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, and those between it and its authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities; with them, only callers with a certificate of one of them are answered.
    pub client_authorities: Option<PathBuf>,
}
