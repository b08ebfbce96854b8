//! The part of Redis Cluster support that this crate needs: which node is the master for a slot at present.
//!
//! The crate does not use the cluster mode of the client: there, one dead master stops all slots, and the first ASK
//! error ends it. Instead each pool and each reader is a client of one server, as without a cluster. When such a client
//! connects, it looks up here which node serves its slot; when the answer changes, this module makes it reconnect. The
//! module handles nothing else of a cluster. ASK, TRYAGAIN and CLUSTERDOWN are errors like others, which end when the
//! cluster has finished what it does.

mod map;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use fred::{
    bytes_utils::Str,
    clients::Client,
    error::{Error, ErrorKind},
    interfaces::ClientLike,
    prelude::{Builder, Config, FredResult, Server, ServerConfig},
    types::{ClusterHash, CustomCommand, Resolve, config::Options},
};
use futures_util::future::join_all;
use tokio::{
    net::lookup_host,
    sync::{Mutex as AsyncMutex, watch},
    time::{sleep, timeout},
};

pub use self::map::{ClusterMap, Node, NodeAddress, SLOTS, parse_nodes};

/// The time between two queries for the map.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The age up to which a map is reused, when many connections ask at the same time.
const FRESH: Duration = Duration::from_millis(200);
/// The timeout for the reply of one node. All nodes are queried at the same time.
const PATIENCE: Duration = Duration::from_secs(1);
/// The number of nodes that one query asks at most. In a larger cluster, masters with slots come first.
const MOST_ASKED: usize = 16;

/// A Redis Cluster that is found through some of its nodes. After the first client connects, a task refreshes the map
/// of the cluster in the background.
pub struct RedisCluster {
    seeds: Vec<NodeAddress>,
    /// User, password and TLS, which are the same for all nodes; the address is replaced for each node.
    config: Config,
    map: watch::Sender<Arc<ClusterMap>>,
    asked: AsyncMutex<Option<Instant>>,
    clients: Mutex<BTreeMap<NodeAddress, Client>>,
    watch: Mutex<Option<tokio::task::AbortHandle>>,
}

impl fmt::Debug for RedisCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCluster").field("seeds", &self.seeds).finish_non_exhaustive()
    }
}

impl Drop for RedisCluster {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            watch.abort();
        }
    }
}

/// Whether a URL names a Redis Cluster.
#[must_use]
pub fn is_cluster_url(url: &str) -> bool {
    ["redis-cluster://", "rediss-cluster://"].iter().any(|scheme| url.starts_with(scheme))
}

impl RedisCluster {
    /// Reads a URL of the form `redis-cluster://user:password@host:port?node=host:port`, or `rediss-cluster://` for
    /// TLS. One node is enough; the parameter `node` adds nodes that are asked if the first node is unavailable. This
    /// call connects to no node. The certificates of all nodes must be valid for the first host.
    ///
    /// # Errors
    /// When the URL is invalid; the error says why.
    pub fn new(url: &str) -> Result<Arc<Self>, crate::RedisError> {
        Self::read(url).map(Arc::new).map_err(crate::RedisError::new)
    }

    fn read(url: &str) -> FredResult<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let config = Config::from_url(&base.replacen("-cluster://", "://", 1))?;
        let first = config
            .server
            .hosts()
            .first()
            .map(|server| NodeAddress { host: server.host.to_string(), port: server.port });
        let wrong = |what: &str| Error::new(ErrorKind::Config, what.to_owned());
        let mut seeds = vec![first.ok_or_else(|| wrong("a cluster's URL needs a host"))?];
        for node in query.split('&').filter_map(|parameter| parameter.strip_prefix("node=")) {
            seeds.push(NodeAddress::parse(node).ok_or_else(|| wrong("node= in the URL must be host:port"))?);
        }
        if config.database.is_some_and(|database| database != 0) {
            return Err(wrong("a cluster has database 0 only"));
        }
        let config = Config { database: None, ..config };
        Ok(Self {
            seeds,
            config,
            map: watch::Sender::new(Arc::default()),
            asked: AsyncMutex::default(),
            clients: Mutex::default(),
            watch: Mutex::default(),
        })
    }

    /// Returns the master of the hash slot that contains `key`.
    #[must_use]
    pub fn master_of(self: &Arc<Self>, key: &str) -> SlotMaster {
        SlotMaster { cluster: Arc::clone(self), slot: fred::util::redis_keyslot(key.as_bytes()) }
    }

    /// Returns the map of the cluster: which node serves which hash slots, from the last replies of the nodes. The map
    /// is empty until a node has answered.
    #[must_use]
    pub fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.map.borrow())
    }

    /// Queries the nodes for the map of the cluster, unless another task has just queried them. If no node answers, the
    /// previous map stays.
    pub async fn look(&self) -> Arc<ClusterMap> {
        let mut asked = self.asked.lock().await;
        if asked.is_none_or(|asked| asked.elapsed() > FRESH) {
            let views = join_all(self.to_ask().into_iter().map(|node| self.ask(node))).await;
            let map = ClusterMap::of_views(views.into_iter().flatten());
            *asked = Some(Instant::now());
            if !map.is_empty() {
                self.forget_gone(&map);
                self.map.send_if_modified(|known| {
                    let is_new = **known != map;
                    if known.is_empty() {
                        tracing::debug!(masters = map.masters(), "found the masters of the Redis Cluster");
                    } else if known.masters() != map.masters() {
                        tracing::info!(masters = map.masters(), "the masters of the Redis Cluster changed");
                    }
                    *known = Arc::new(map);
                    is_new
                });
            }
        }
        self.map()
    }

    /// The nodes to query: masters with slots first, then the other nodes, then those of the URL.
    fn to_ask(&self) -> Vec<NodeAddress> {
        let map = self.map();
        let (masters, others): (Vec<_>, Vec<_>) =
            map.nodes().iter().partition(|node| node.is_master && !node.slots.is_empty());
        let known = masters.into_iter().chain(others).filter_map(|node| node.address.as_ref());
        let mut nodes: Vec<NodeAddress> = Vec::new();
        for node in known.chain(&self.seeds) {
            if !nodes.contains(node) {
                nodes.push(node.clone());
            }
        }
        nodes.truncate(MOST_ASKED);
        nodes
    }

    /// Queries one node for its view of the cluster; None when it does not answer in time.
    async fn ask(&self, node: NodeAddress) -> Option<Vec<Node>> {
        let known = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned();
        let client = match known {
            Some(client) if client.is_connected() => client,
            _ => {
                let client = self.connect_to(&node).await?;
                let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
                clients.insert(node.clone(), client.clone());
                client
            }
        };
        let command = CustomCommand::new_static("CLUSTER", ClusterHash::FirstKey, false);
        let options = Options { timeout: Some(PATIENCE), max_attempts: Some(1), ..Options::default() };
        let reply: FredResult<String> = client.with_options(&options).custom(command, vec!["NODES"]).await;
        match reply {
            Ok(reply) => Some(parse_nodes(&reply, &node)),
            Err(error) => {
                tracing::debug!(%node, "a node of the Redis Cluster did not send the cluster map: {error}");
                // A connection may swallow what it is sent, so it is not used again.
                self.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
                None
            }
        }
    }

    /// Opens a connection that does not reconnect when it breaks: the next query opens another one.
    async fn connect_to(&self, node: &NodeAddress) -> Option<Client> {
        let mut config = self.config.clone();
        config.server = ServerConfig::Centralized { server: server_at(node, &self.config) };
        let mut builder = Builder::from_config(config);
        builder.with_connection_config(|config| {
            config.connection_timeout = PATIENCE;
            config.internal_command_timeout = PATIENCE;
            config.max_command_attempts = 1;
        });
        let client = builder.build().ok()?;
        match timeout(PATIENCE, client.init()).await {
            Ok(Ok(_)) => Some(client),
            Ok(Err(error)) => {
                tracing::debug!(%node, "cannot connect to a node of the Redis Cluster: {error}");
                None
            }
            Err(_) => None,
        }
    }

    fn forget_gone(&self, map: &ClusterMap) {
        let is_there = |node: &NodeAddress| {
            self.seeds.contains(node) || map.nodes().iter().any(|known| known.address.as_ref() == Some(node))
        };
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).retain(|node, _| is_there(node));
    }

    /// Starts the task that refreshes the map, unless it runs already.
    fn watch(self: &Arc<Self>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let cluster = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            while let Some(cluster) = Weak::upgrade(&cluster) {
                cluster.look().await;
                drop(cluster);
                sleep(LOOK_EVERY).await;
            }
        });
        *watch = Some(task.abort_handle());
    }
}

/// The address of a node, with the host name that its certificate is checked against.
fn server_at(node: &NodeAddress, config: &Config) -> Server {
    let named = config.server.hosts().first().map(|server| server.host.clone());
    Server { host: node.host.as_str().into(), port: node.port, tls_server_name: named }
}

/// The present master of one hash slot of a Redis Cluster.
#[derive(Clone)]
pub struct SlotMaster {
    cluster: Arc<RedisCluster>,
    slot: u16,
}

impl fmt::Debug for SlotMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotMaster").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl SlotMaster {
    /// Returns the Redis Cluster of this master.
    #[must_use]
    pub fn cluster(&self) -> &Arc<RedisCluster> {
        &self.cluster
    }

    /// Returns the address of the master in the last cluster map.
    #[must_use]
    pub fn address(&self) -> Option<NodeAddress> {
        self.cluster.map().owner(self.slot).cloned()
    }

    /// The settings of a client of the master. The address comes from [`SlotMaster::follow`].
    pub(crate) fn config(&self) -> Config {
        self.cluster.config.clone()
    }

    /// Makes clients that are not connected yet connect to the present master, and reconnect whenever the master
    /// changes.
    pub(crate) async fn follow(&self, clients: &[Client]) {
        for client in clients {
            client.set_resolver(Arc::new(Resolver(self.clone()))).await;
        }
        self.cluster.watch();
        tokio::spawn(reconnect_on_change(self.clone(), clients.to_vec()));
    }

    async fn addresses(&self) -> FredResult<Vec<SocketAddr>> {
        let map = self.cluster.look().await;
        let failed = |what: String| Error::new(ErrorKind::IO, what);
        let Some(owner) = map.owner(self.slot) else {
            return Err(failed(match map.is_empty() {
                true => "No node of the Redis Cluster answers".to_owned(),
                false => format!("No node of the Redis Cluster serves slot {}", self.slot),
            }));
        };
        let found = lookup_host((owner.host.as_str(), owner.port)).await;
        Ok(found.map_err(|error| failed(format!("{owner}: {error}")))?.collect())
    }
}

/// A resolver that returns the address of the master each time that a client connects.
struct Resolver(SlotMaster);

impl Resolve for Resolver {
    // Written as `async_trait` would expand it, without that crate.
    fn resolve<'a, 'f>(
        &'a self,
        _host: Str,
        _port: u16,
    ) -> Pin<Box<dyn Future<Output = FredResult<Vec<SocketAddr>>> + Send + 'f>>
    where
        'a: 'f,
        Self: 'f,
    {
        Box::pin(self.0.addresses())
    }
}

/// Makes clients reconnect when the master changes. Otherwise a connection to the old master would stay open, if that
/// one is frozen or cut off.
async fn reconnect_on_change(master: SlotMaster, clients: Vec<Client>) {
    let mut changes = master.cluster.map.subscribe();
    let mut known = master.address();
    while changes.changed().await.is_ok() {
        let address = master.address();
        if address.is_none() || address == known {
            continue;
        }
        if let (Some(before), Some(now)) = (&known, &address) {
            tracing::debug!(slot = master.slot, %before, %now, "connecting to another master");
        }
        known = address;
        for client in &clients {
            let client = client.clone();
            // In a task of its own, because the node may need some time to accept the connection.
            tokio::spawn(async move { client.force_reconnection().await });
        }
    }
}
