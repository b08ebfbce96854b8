//! Three servers that form one database: Galera, or MySQL's group replication.

mod galera;
mod group_replication;

use std::path::Path;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sqlx::mysql::MySqlConnectOptions;

use crate::blocking::{ask, execute, run};
use crate::endpoint::Endpoint;
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

/// The number of nodes in each cluster.
const NODES: usize = 3;
/// The timeout of any change of a cluster, longer than it takes on a busy machine, including copying all data.
const WITHIN: Duration = Duration::from_secs(90);
/// The time after which a node that does not answer counts as stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The replication of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterKind {
    /// MariaDB with Galera; every node accepts writes.
    Galera,
    /// MySQL 9, group replication; one member accepts writes, the others are read-only.
    SinglePrimary,
    /// MySQL 9, group replication; every member accepts writes.
    MultiPrimary,
}

/// Three private nodes with one database `tidegate`, as durable as [`MysqlServer`](crate::MysqlServer). They notice
/// within seconds when one of them is gone.
#[derive(Debug)]
pub struct MysqlCluster {
    kind: ClusterKind,
    nodes: Vec<ClusterNode>,
}

/// One server of a [`MysqlCluster`].
#[derive(Debug)]
pub struct ClusterNode {
    kind: ClusterKind,
    server: PrivateServer,
    /// The ports of the other nodes for clients.
    peers: Vec<u16>,
    /// Reserved for as long as the node may come back.
    _ports: NodePorts,
}

#[derive(Debug)]
#[expect(dead_code, reason = "they are held, and released when dropped")]
enum NodePorts {
    Galera(galera::Ports),
    GroupReplication(ReservedPort),
}

impl MysqlCluster {
    /// Starts three nodes and waits until each has joined the others.
    pub fn start(kind: ClusterKind) -> Result<Self> {
        let servers;
        let ports: Vec<NodePorts>;
        if kind == ClusterKind::Galera {
            let reserved = (0..NODES).map(|_| galera::Ports::reserve()).collect::<Result<Vec<_>>>()?;
            servers = at_the_same_time(|at, clients| galera::start(at, clients, &reserved))?;
            ports = reserved.into_iter().map(NodePorts::Galera).collect();
        } else {
            let reserved = (0..NODES).map(|_| ReservedPort::any()).collect::<Result<Vec<_>>>()?;
            let has_one_primary = kind == ClusterKind::SinglePrimary;
            servers = at_the_same_time(|at, clients| {
                group_replication::start(at, clients, &reserved, has_one_primary)
            })?;
            ports = reserved.into_iter().map(NodePorts::GroupReplication).collect();
        }
        let clients: Vec<u16> = servers.iter().map(PrivateServer::port).collect();
        let node = |(server, _ports): (PrivateServer, NodePorts)| {
            let peers = clients.iter().copied().filter(|port| *port != server.port()).collect();
            ClusterNode { kind, server, peers, _ports }
        };
        let nodes = servers.into_iter().zip(ports).map(node).collect();
        let cluster = Self { kind, nodes };
        if kind != ClusterKind::Galera {
            cluster.make_group()?;
        }
        cluster.nodes.iter().try_for_each(ClusterNode::wait_until_synced)?;
        Ok(cluster)
    }

    fn make_group(&self) -> Result<()> {
        for node in &self.nodes {
            node.execute(group_replication::RECOVERY)?;
        }
        self.nodes[0].execute(group_replication::FOUND)?;
        self.nodes[1..].iter().try_for_each(|node| node.execute(group_replication::JOIN))
    }

    /// The kind of replication.
    pub fn kind(&self) -> ClusterKind {
        self.kind
    }

    /// The nodes, always in the same order. If there is a single primary, it is the first one at the start.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// The URL `mysql://tidegate@127.0.0.1:A,127.0.0.1:B,127.0.0.1:C/tidegate?ssl-mode=disabled`, beginning with node
    /// `first`.
    pub fn url_from(&self, first: usize) -> String {
        let nodes = self.nodes.iter().cycle().skip(first).take(self.nodes.len());
        let hosts: Vec<String> = nodes.map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("mysql://tidegate@{}/tidegate?ssl-mode=disabled", hosts.join(","))
    }
}

fn at_the_same_time(
    start: impl Fn(usize, ReservedPort) -> Result<PrivateServer> + Sync,
) -> Result<Vec<PrivateServer>> {
    let clients = (0..NODES).map(|_| ReservedPort::any()).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let start = &start;
        let starting: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(at, clients)| scope.spawn(move || start(at, clients)))
            .collect();
        let joined =
            starting.into_iter().map(|node| node.join().map_err(|_| anyhow!("Starting a node panicked"))?);
        joined.collect()
    })
}

impl ClusterNode {
    /// The URL of this node alone.
    pub fn url(&self) -> String {
        url_of(self.port())
    }

    /// The port for clients, which stays the same across restarts.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The process id, or None while the node does not run.
    pub fn pid(&self) -> Option<u32> {
        self.server.pid()
    }

    /// The folder with its data and `server.log`.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Sends SIGKILL, and returns when the process is gone. The others continue without it as soon as they notice.
    pub fn kill9(&self) -> Result<()> {
        self.server.kill9()
    }

    /// Sends SIGSTOP: connections stay open, the node does not answer, and after some seconds the others continue
    /// without it.
    pub fn stop(&self) -> Result<()> {
        self.server.stop()
    }

    /// Sends SIGCONT after [`stop`](Self::stop). Meanwhile, the others may have continued without the node.
    pub fn cont(&self) -> Result<()> {
        self.server.cont()
    }

    /// Sends SIGTERM: the node leaves the cluster in an orderly way.
    pub fn shutdown(&self) -> Result<()> {
        self.server.shutdown()
    }

    /// Starts the node again with its data. It joins the others and gets the changes that it missed; the call returns
    /// when that is done.
    pub fn restart(&self) -> Result<()> {
        self.server.restart()?;
        self.bring_back()
    }

    /// Separates the node from the others, until [`bring_back`](Self::bring_back). Returns when the others continue
    /// without it, and the node itself knows, if it can.
    ///
    /// In Galera, clients still reach it: the provider itself cuts the links (`gmcast.isolate`), as in Galera's own
    /// tests. Group replication has no such switch, its links cannot go through a proxy, and cutting them otherwise
    /// requires root. So the whole process is stopped, which also separates it from its clients.
    pub fn partition_away(&self) -> Result<()> {
        if self.kind != ClusterKind::Galera {
            self.stop()?;
            return self.wait("expelled", || self.state_at_peers().is_some_and(|state| state == "MISSING"));
        }
        self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")?;
        self.wait("alone", || self.galera_status("wsrep_cluster_status", "non-Primary"))
    }

    /// Ends [`partition_away`](Self::partition_away), and returns when the node has all data of the others.
    pub fn bring_back(&self) -> Result<()> {
        if self.kind == ClusterKind::Galera {
            // This changes nothing for a node that was not isolated.
            self.wait("there", || {
                self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'").is_ok()
            })?;
        } else {
            self.cont()?;
        }
        self.wait_until_synced()
    }

    /// Waits until the node is a full member of the cluster: it has everything that the others committed before it
    /// joined.
    pub fn wait_until_synced(&self) -> Result<()> {
        if self.kind == ClusterKind::Galera {
            return self.wait("synced", || {
                self.galera_status("wsrep_cluster_status", "Primary")
                    && self.galera_status("wsrep_local_state_comment", "Synced")
                    && self.galera_status("wsrep_ready", "ON")
            });
        }
        self.wait("online", || match self.own_state().as_deref() {
            // The node believes so until it learns that it was expelled.
            Some("ONLINE") => self.state_at_peers().is_none_or(|state| state == "ONLINE"),
            // The node was expelled. It has given up, or has not yet begun to come back by itself.
            Some("OFFLINE" | "ERROR") => {
                let _ = self.execute("STOP GROUP_REPLICATION");
                let _ = self.execute(group_replication::JOIN);
                false
            }
            _ => false,
        })
    }

    fn galera_status(&self, variable: &str, wanted: &str) -> bool {
        let query = format!(
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = '{variable}'"
        );
        run(ask(self.url(), query)).is_ok_and(|found| found.as_deref() == Some(wanted))
    }

    /// The state of a member of a group, by its own tables.
    fn own_state(&self) -> Option<String> {
        let query = "SELECT member_state FROM performance_schema.replication_group_members \
                     WHERE member_id = @@server_uuid OR member_id = ''";
        run(ask(self.url(), query.to_owned())).ok()?
    }

    /// The state of this member, by the tables of another one. None if no other member answers, as while the group is
    /// being formed.
    fn state_at_peers(&self) -> Option<String> {
        let query = format!(
            "SELECT COALESCE(MAX(IF(member_port = {}, member_state, NULL)), 'MISSING') \
             FROM performance_schema.replication_group_members HAVING SUM(member_state = 'ONLINE') > 0",
            self.port()
        );
        self.peers.iter().find_map(|peer| {
            let asked = ask(url_of(*peer), query.clone());
            run(async { tokio::time::timeout(ANSWER_WITHIN, asked).await? }).ok()?
        })
    }

    fn execute(&self, statements: &str) -> Result<()> {
        let server = MySqlConnectOptions::from_str(&self.url()).context("Failed to read a node's URL")?;
        run(execute(server, statements.to_owned()))
            .with_context(|| format!("Failed to run {statements:?} on a node"))
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + WITHIN;
        while !is_so() {
            if Instant::now() > deadline {
                bail!("A node was not {what} within {WITHIN:?}. {}", self.server.tail_of_log());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

fn url_of(port: u16) -> String {
    format!("mysql://tidegate@127.0.0.1:{port}/tidegate?ssl-mode=disabled")
}

/// Clients connect to the first node.
impl Endpoint for MysqlCluster {
    fn url(&self) -> String {
        self.nodes[0].url()
    }

    fn port(&self) -> u16 {
        self.nodes[0].port()
    }
}

impl Endpoint for ClusterNode {
    fn url(&self) -> String {
        self.url()
    }

    fn port(&self) -> u16 {
        self.port()
    }
}
