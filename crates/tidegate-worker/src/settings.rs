//! The settings of a worker process.

mod proxies;

use std::{collections::BTreeMap, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use secrecy::SecretString;
use tidegate_operations::{SystemSettings, brake::BrakeSettings};
use tidegate_orders::limits::SubjectName;

pub use self::proxies::{ProxyNet, UserHeader};

/// All that a worker process is told.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The system that it works for.
    pub system: SystemSettings,
    /// How it works.
    pub worker: WorkerSettings,
    /// When sales are marked as busy.
    pub brake: BrakeSettings,
}

/// `[worker]`
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Name of the process; never empty here.
    pub name: String,
    /// Number of lanes.
    pub lanes: usize,
    /// Entries a lane reads at most at once.
    pub batch: usize,
    /// Bytes of a lane's batch, about: of names and values, and 64 for each field.
    pub batch_bytes: usize,
    /// Bytes of the largest entry that is handled, counted so.
    pub entry_max_bytes: usize,
    /// Entries that all lanes together may have set aside.
    pub set_aside_max: usize,
    /// How long a read waits for new entries.
    pub block: Duration,
    /// Until a dead holder's user lock falls open.
    pub lock_lease: Duration,
    /// Until entries of locked users are tried again.
    pub lock_retry: Duration,
    /// Idle time after which an entry may be claimed.
    pub claim_idle: Duration,
    /// Between two looks for claimable entries.
    pub claim_every: Duration,
    /// Idle time after which a dead, empty consumer is removed.
    pub retire_idle: Duration,
    /// Between two looks for entries beyond the retention.
    pub trim_every: Duration,
    /// Until the heartbeat of a dead process expires.
    pub heartbeat_ttl: Duration,
    /// From the stop signal to the exit, at most.
    pub stop_deadline: Duration,
    /// The first retry's delay.
    pub backoff_min: Duration,
    /// The longest delay between retries.
    pub backoff_max: Duration,
    /// Between two summary lines.
    pub report_every: Duration,
    /// How long a lane may do one and the same thing.
    pub stuck_after: Duration,
}

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
