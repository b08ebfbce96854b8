//! Redis behind Sentinels: who is the master, now.
//!
//! The client asks a Sentinel whenever it connects. It does not learn that there is another master while its connection to the old one
//! stays open: a master that is frozen or cut off closes nothing. So the Sentinels are asked each second, and when their answer changes,
//! every client connects anew.
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

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a Sentinel has to answer. All are asked at the same time.
const PATIENCE: Duration = Duration::from_secs(1);

/// The Sentinels of a URL, and the master that they name. They are asked while anybody is connected by them.
pub struct Sentinels {
    hosts: Vec<Server>,
    service: String,
    /// TLS as for the servers; user and password are those of the Sentinels.
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
    /// Those of a URL `redis-sentinel://` or `rediss-sentinel://`; None: it is another one, or cannot be read. Nobody is asked yet.
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

    /// Makes clients connect anew whenever another server becomes the master.
    pub(crate) fn follow(self: &Arc<Self>, clients: &[Client]) {
        self.watch();
        tokio::spawn(reconnect_on_change(Arc::clone(self), clients.to_vec()));
    }

    /// Looks again and again, from the first time on that anybody connects.
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

    /// Asks all. The master that most of them name is the one; nothing changes while none answers.
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
                tracing::info!(%master, "another server is the master, by Sentinel");
            }
            *known = Some(master);
            is_new
        });
    }

    /// Whom one Sentinel names; None when it does not answer in time.
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
                tracing::debug!(sentinel = %address, "a Sentinel does not tell the master: {error}");
                // A connection that swallows what it is sent is not asked again.
                self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
                None
            }
        }
    }

    /// A connection that is not made anew when it breaks: the next look makes another one.
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
            // Nobody waits for the connection: the server may need a while.
            tokio::spawn(async move { client.force_reconnection().await });
        }
    }
}
