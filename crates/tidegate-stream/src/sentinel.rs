//! Redis behind Sentinels: which server is the master at present.
//!
//! The client asks a Sentinel whenever it connects. It does not notice a new master while its connection to the old one
//! stays open: a master that is frozen or cut off closes no connection. So this module asks the Sentinels each second.
//! When their answer changes, it makes every client reconnect.
//!
//! Protocol: [Sentinel clients](https://redis.io/docs/latest/develop/reference/sentinel-clients/).

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use fred::{
    clients::Client,
    interfaces::ClientLike,
    prelude::{Builder, Config, FredResult, Server, ServerConfig},
    types::{ClusterHash, CustomCommand, Value, config::Options},
};
use futures_util::future::join_all;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::cluster::NodeAddress;

/// The time between two queries.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The timeout for the reply of one Sentinel. All are asked at the same time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The Sentinels of a URL, and the Redis master that they name. After the first client connects, the Sentinels are
/// queried in the background.
pub struct Sentinels {
    hosts: Vec<Server>,
    service: String,
    /// The settings of the connections to the Sentinels: TLS as for the servers, user and password of the Sentinels.
    config: Config,
    master: watch::Sender<Option<NodeAddress>>,
    clients: Mutex<BTreeMap<NodeAddress, Client>>,
    watch: Mutex<Option<AbortHandle>>,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels")
            .field("hosts", &self.hosts)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

impl Drop for Sentinels {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            watch.abort();
        }
    }
}

impl Sentinels {
    /// Reads a URL with `redis-sentinel://` or `rediss-sentinel://`. None: the URL is invalid or of another kind. This
    /// call connects to no Sentinel.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Arc<Self>> {
        let config = Config::from_url(url).ok()?;
        let ServerConfig::Sentinel { hosts, service_name, username, password } = &config.server else {
            return None;
        };
        let (username, password) = (username.clone(), password.clone());
        let (hosts, service) = (hosts.clone(), service_name.clone());
        Some(Arc::new(Self {
            hosts,
            service,
            config: Config { database: None, username, password, ..config },
            master: watch::Sender::new(None),
            clients: Mutex::default(),
            watch: Mutex::default(),
        }))
    }

    /// Makes clients reconnect whenever another server becomes the master.
    pub(crate) fn follow(self: &Arc<Self>, clients: &[Client]) {
        self.watch();
        tokio::spawn(reconnect_on_change(Arc::clone(self), clients.to_vec()));
    }

    /// Starts the task that queries the Sentinels, unless it runs already.
    fn watch(self: &Arc<Self>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let sentinels = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            while let Some(sentinels) = Weak::upgrade(&sentinels) {
                sentinels.look().await;
                drop(sentinels);
                sleep(LOOK_EVERY).await;
            }
        });
        *watch = Some(task.abort_handle());
    }

    /// Queries all Sentinels for the master. The one that most of them name is the present master; if none answers,
    /// nothing changes.
    async fn look(&self) {
        let named = join_all(self.hosts.iter().map(|host| self.ask(host))).await;
        let mut votes = BTreeMap::new();
        for master in named.into_iter().flatten() {
            *votes.entry(master).or_insert(0_usize) += 1;
        }
        let Some((master, _)) = votes.into_iter().max_by_key(|(_, votes)| *votes) else { return };
        self.master.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(&master);
            if is_new && known.is_some() {
                tracing::info!(%master, "the Sentinels report a new master");
            }
            *known = Some(master);
            is_new
        });
    }

    /// Queries one Sentinel for the master; None when it does not answer in time.
    async fn ask(&self, host: &Server) -> Option<NodeAddress> {
        let address = NodeAddress { host: host.host.to_string(), port: host.port };
        let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(&address).cloned();
        let client = match known {
            Some(client) if client.is_connected() => client,
            _ => {
                let client = self.connect_to(host).await?;
                let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
                clients.insert(address.clone(), client.clone());
                client
            }
        };
        let command = CustomCommand::new_static("SENTINEL", ClusterHash::FirstKey, false);
        let options = Options { timeout: Some(PATIENCE), max_attempts: Some(1), ..Options::default() };
        let words = vec!["GET-MASTER-ADDR-BY-NAME", &self.service];
        let reply: FredResult<Value> = client.with_options(&options).custom(command, words).await;
        match reply.map(Value::convert::<(String, u16)>) {
            Ok(Ok((host, port))) => Some(NodeAddress { host, port }),
            Ok(Err(_)) => None,
            Err(error) => {
                tracing::debug!(sentinel = %address, "a Sentinel did not report the master: {error}");
                // A connection may swallow what it is sent, so it is not used again.
                self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
                None
            }
        }
    }

    /// Opens a connection that does not reconnect when it breaks: the next query opens another one.
    async fn connect_to(&self, host: &Server) -> Option<Client> {
        let server = ServerConfig::Centralized { server: host.clone() };
        let mut builder = Builder::from_config(Config { server, ..self.config.clone() });
        builder.with_connection_config(|config| {
            config.connection_timeout = PATIENCE;
            config.internal_command_timeout = PATIENCE;
            config.max_command_attempts = 1;
        });
        let client = builder.build().ok()?;
        timeout(PATIENCE, client.init()).await.is_ok_and(|opened| opened.is_ok()).then_some(client)
    }
}

async fn reconnect_on_change(sentinels: Arc<Sentinels>, clients: Vec<Client>) {
    let mut changes = sentinels.master.subscribe();
    let mut known = changes.borrow_and_update().clone();
    while changes.changed().await.is_ok() {
        let master = changes.borrow_and_update().clone();
        if known.is_none() || master == known {
            known = master;
            continue;
        }
        known = master;
        for client in &clients {
            let client = client.clone();
            // In a task of its own, because the server may need some time to accept the connection.
            tokio::spawn(async move { client.force_reconnection().await });
        }
    }
}
