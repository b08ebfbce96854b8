//! Sessions with MySQL: their host, their setup, and the check that all of them use the same database.
//!
//! Several hosts are nodes of one cluster. Sessions use the first of them that accepts writes. If that node is away,
//! [`Sessions::watch`] switches to another one, and back when the first is well again. Once a process has connected to
//! a cluster, it accepts only its nodes: any other server, such as an asynchronous replica, lacks acknowledged orders.

mod causal_reads;
mod node_status;
mod settings;
#[cfg(test)]
mod tests;
mod watch;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions,
};
use tokio::time::timeout;

pub use causal_reads::{CatchUpError, CausalReads, NodeBehind};
pub use node_status::{Cluster, NodeStatus};
pub use settings::SessionSettings;
use settings::name_of;

/// The time after which a lasting refusal is logged again.
const LOG_AGAIN: Duration = Duration::from_secs(60);

/// The most time between the check of a session's server and the start of the session's age, without network calls.
const AGE_LAG: Duration = Duration::from_millis(100);

/// The reason why no session could be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The only server does not answer, or refuses the connection.
    #[error(transparent)]
    Server(#[from] sqlx::Error),
    /// The server does not answer within the acquire timeout.
    #[error("no answer within {} ms", .0.as_millis())]
    Late(Duration),
    /// None of several hosts accepts orders; the text gives the reason of each.
    #[error("no MySQL node takes orders: {0}")]
    NoNode(String),
    /// The server does not belong to the database of the other sessions.
    #[error("{0}")]
    Refused(String),
}

/// The MySQL sessions of a process, in pools of connections to the same host. Clones share the same sessions.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
    /// These pools are outside `shared`, because their callbacks hold it: each would keep the other alive.
    pools: Arc<Mutex<Vec<MySqlPool>>>,
}

struct Shared {
    settings: SessionSettings,
    setup: [String; 7],
    /// The host that new sessions go to.
    current: AtomicUsize,
    state: Mutex<State>,
    opened: AtomicU64,
    commit_in_packet: Arc<AtomicBool>,
    causal_reads: Arc<CausalReads>,
}

#[derive(Debug, Default)]
struct State {
    /// The cluster that all sessions belong to.
    cluster: Option<Cluster>,
    moved: Option<Move>,
    /// The last refusal that was logged.
    logged: Option<(String, Instant)>,
}

/// The last switch to another host. Older sessions are with a host that was left.
#[derive(Debug)]
struct Move {
    at: Instant,
    /// The server at the new host, as [`NodeStatus::server`] names it.
    server: Vec<String>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("settings", &self.shared.settings).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Creates the sessions of a process, without any connection yet.
    ///
    /// # Panics
    /// Panics if the settings name no host.
    #[must_use]
    pub fn new(settings: SessionSettings) -> Self {
        assert!(!settings.hosts.is_empty(), "the caller names a host");
        let setup = settings.setup();
        let shared = Shared {
            settings,
            setup,
            current: AtomicUsize::new(0),
            state: Mutex::default(),
            opened: AtomicU64::new(0),
            commit_in_packet: Arc::default(),
            causal_reads: Arc::default(),
        };
        shared.causal_reads.note_host(shared.name_of(0));
        Self { shared: Arc::new(shared), pools: Arc::default() }
    }

    /// Whether a COMMIT may be sent in one packet with the statements of its transaction. The packet is allowed only if
    /// the server does not replicate by certification. Galera answers OK to such a packet even if certification rolled
    /// the transaction back.
    #[must_use]
    pub fn commit_in_packet(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.commit_in_packet)
    }

    /// Returns the wait for causal reads: reads that see everything that any node of the cluster has committed.
    #[must_use]
    pub fn causal_reads(&self) -> Arc<CausalReads> {
        Arc::clone(&self.shared.causal_reads)
    }

    /// The number of sessions that were opened so far.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.shared.opened.load(Relaxed)
    }

    /// The host that new sessions go to, as `name:port`.
    #[must_use]
    pub fn host(&self) -> String {
        self.shared.name_of(self.shared.current.load(Relaxed))
    }

    /// Finds the first host that accepts orders, and makes new sessions connect to this host. If there is only one
    /// host, it is accepted even if it is read-only.
    ///
    /// # Errors
    /// Fails if no host accepts orders.
    pub async fn find(&self) -> Result<(), SessionError> {
        let shared = &self.shared;
        if let [only] = &shared.settings.hosts[..] {
            let within = shared.settings.acquire_timeout;
            let connected = timeout(within, only.connect()).await.map_err(|_| SessionError::Late(within))?;
            let mut connection = connected?;
            let status = NodeStatus::read(&mut connection).await?;
            shared.accept(&status).map_err(SessionError::Refused)?;
            return Ok(connection.close().await?);
        }
        let mut reasons = Vec::new();
        for at in 0..shared.settings.hosts.len() {
            match shared.look_at(at, &mut None).await {
                Ok(status) => {
                    self.switch_to(at, &status);
                    return Ok(());
                }
                Err(reason) => reasons.push(format!("{}: {reason}", shared.name_of(at))),
            }
        }
        Err(SessionError::NoNode(reasons.join("; ")))
    }

    /// Reads the status of each host, together with its `name:port`. If a status cannot be read, the result contains
    /// the reason. This call does not bind the process to a cluster.
    pub async fn survey(&self) -> Vec<(String, Result<NodeStatus, String>)> {
        let look = async |at: usize| {
            let looked = self.shared.ask(at, &mut None).await;
            (self.shared.name_of(at), looked)
        };
        futures_util::future::join_all((0..self.shared.settings.hosts.len()).map(look)).await
    }

    /// Creates a pool of at most `connections` connections. The pool connects when it is first used.
    #[must_use]
    pub fn pool(&self, connections: u32) -> MySqlPool {
        let silence = self.shared.settings.silence;
        let (for_new, for_old) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let options = MySqlPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(self.shared.settings.acquire_timeout)
            // The test would cost a round trip for each batch. A broken connection shows at the first statement, and
            // the batch is retried.
            .test_before_acquire(false)
            // The server ends sessions that are silent for too long. Before that, a session is used no more.
            .idle_timeout(silence / 2)
            .before_acquire(move |_, session| {
                let is_here = for_old.is_here(session.age, Instant::now());
                Box::pin(async move { Ok(is_here && session.idle_for < silence / 2) })
            })
            .after_connect(move |connection, _| {
                let shared = Arc::clone(&for_new);
                Box::pin(async move { shared.set_up(connection).await })
            });
        // Both under the lock, so that a move to another host is either seen here or sees this pool.
        let mut pools = self.pools();
        let host = &self.shared.settings.hosts[self.shared.current.load(Relaxed)];
        let pool = options.connect_lazy_with(host.clone());
        pools.push(pool.clone());
        pool
    }

    /// Lets new sessions connect to this host, whose server has this status. Sessions with other hosts are not reused.
    fn switch_to(&self, at: usize, status: &NodeStatus) {
        let mut pools = self.pools();
        if self.shared.current.swap(at, Relaxed) != at {
            pools.retain(|pool| !pool.is_closed());
            for pool in &*pools {
                pool.set_connect_options(self.shared.settings.hosts[at].clone());
            }
            self.shared.causal_reads.note_host(self.shared.name_of(at));
            let server = status.server().map(str::to_owned).to_vec();
            self.shared.state().moved = Some(Move { at: Instant::now(), server });
        }
    }

    fn pools(&self) -> MutexGuard<'_, Vec<MySqlPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name_of(&self, at: usize) -> String {
        name_of(&self.settings.hosts[at])
    }

    fn is_here(&self, age: Duration, now: Instant) -> bool {
        self.state()
            .moved
            .as_ref()
            .is_none_or(|moved| age + AGE_LAG < now.saturating_duration_since(moved.at))
    }

    /// Whether a new session is with the server that was left. Its age does not show this, because the age counts from
    /// the end of the setup, and the session may have connected to the old host before the switch. So as long as
    /// connecting may take, only the server of the switch is accepted, even if several servers share one name.
    fn is_late(&self, status: &NodeStatus) -> bool {
        let within = self.settings.acquire_timeout;
        let state = self.state();
        let moved = state.moved.as_ref().filter(|moved| moved.at.elapsed() <= within);
        moved.is_some_and(|moved| moved.server != status.server())
    }

    /// Sets a new session up, and checks its server.
    async fn set_up(&self, connection: &mut MySqlConnection) -> sqlx::Result<()> {
        self.opened.fetch_add(1, Relaxed);
        for statement in &self.setup {
            connection.execute(AssertSqlSafe(statement.clone())).await?;
        }
        let status = NodeStatus::read(connection).await?;
        self.accept(&status).map_err(|refused| {
            self.log_refusal(&refused);
            sqlx::Error::Configuration(refused.into())
        })?;
        if self.is_late(&status) {
            return Err(sqlx::Error::Configuration("this process has moved to another MySQL host".into()));
        }
        Ok(())
    }

    /// Accepts a server with our database, or returns why not. The first cluster that is seen binds the process.
    fn accept(&self, status: &NodeStatus) -> Result<(), String> {
        let mut state = self.state();
        if let Some(outside) = status.outside_of_group() {
            return Err(format!("{outside}: the other members of the group do not get its data"));
        }
        match (&state.cluster, status.cluster()) {
            (Some(ours), Some(its)) if *ours == its => {}
            (Some(ours), Some(its)) => {
                return Err(format!("the server belongs to {its}, but other sessions use {ours}"));
            }
            (Some(ours), None) => {
                return Err(format!(
                    "the server is not a node of {ours}, which the other sessions use: a replica or a separate \
                     server may lack acknowledged orders"
                ));
            }
            (None, Some(its)) => state.cluster = Some(its),
            (None, None) if self.settings.hosts.len() > 1 => {
                return Err("the server is not a node of a cluster: several hosts must be nodes of one Galera cluster or \
                            of one replication group, because any other replica may lack acknowledged orders"
                    .to_owned());
            }
            (None, None) => {}
        }
        self.commit_in_packet.store(!status.certifies() && state.cluster.is_none(), Relaxed);
        self.causal_reads.note(status);
        Ok(())
    }

    /// Reads the status of a host to which orders can be written now; otherwise returns why not. Keeps its connection
    /// in `kept`.
    async fn look_at(&self, at: usize, kept: &mut Option<MySqlConnection>) -> Result<NodeStatus, String> {
        let status = self.ask(at, kept).await?;
        self.accept(&status)?;
        if let Some(error) = status.membership_error() {
            return Err(format!(
                "the members of the replication group cannot be read ({error}): GRANT SELECT ON \
                 performance_schema.replication_group_members"
            ));
        }
        status.unfit().map_or(Ok(status), Err)
    }

    /// Asks a host for its status. The server may have ended the kept connection, because the connection was silent for
    /// too long or the server was restarted. Then a new connection asks, within the same time.
    async fn ask(&self, at: usize, kept: &mut Option<MySqlConnection>) -> Result<NodeStatus, String> {
        let within = self.settings.acquire_timeout.min(watch::ANSWER_WITHIN);
        let before = kept.take();
        let asked = timeout(within, async {
            if let Some(mut connection) = before
                && let Ok(status) = NodeStatus::read(&mut connection).await
            {
                return Ok((status, connection));
            }
            let mut connection = self.settings.hosts[at].connect().await?;
            Ok::<_, sqlx::Error>((NodeStatus::read(&mut connection).await?, connection))
        });
        match asked.await {
            Ok(Ok((status, connection))) => {
                *kept = Some(connection);
                Ok(status)
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} ms", within.as_millis())),
        }
    }

    fn log_refusal(&self, refused: &str) {
        let mut state = self.state();
        let is_logged = |(logged, at): &(String, Instant)| logged == refused && at.elapsed() < LOG_AGAIN;
        if !state.logged.as_ref().is_some_and(is_logged) {
            let host = self.name_of(self.current.load(Relaxed));
            tracing::error!(host, reason = refused, "a MySQL server is refused");
            state.logged = Some((refused.to_owned(), Instant::now()));
        }
    }
}
