//! Three servers that are one database: Galera, or MySQL's group replication.

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

/// How many nodes each cluster has.
const NODES: usize = 3;
/// Longer than any change of a cluster takes on a busy machine, the copying of all data included.
const WITHIN: Duration = Duration::from_secs(90);
/// A node that takes longer than this to answer is stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How the servers of a cluster replicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterKind {
    /// MariaDB with Galera; every node takes writes.
    Galera,
    /// MySQL 9, group replication; one member takes writes, the others are read-only.
    SinglePrimary,
    /// MySQL 9, group replication; every member takes writes.
    MultiPrimary,
}

/// Three nodes of our own with one database `tidegate`, as durable as [`MysqlServer`](crate::MysqlServer), that notice
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
    /// The ports for clients of the other nodes.
    peers: Vec<u16>,
    /// Kept for as long as the node may come back.
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

    /// How it replicates.
    pub fn kind(&self) -> ClusterKind {
        self.kind
    }

    /// The nodes, always in the same order. The first is the primary at the start, where there is one.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// `mysql://tidegate@127.0.0.1:A,127.0.0.1:B,127.0.0.1:C/tidegate?ssl-mode=disabled`, beginning with node `first`.
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

    /// The port it listens on for clients; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The process, or None while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.server.pid()
    }

    /// The folder with its data and `server.log`.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// SIGKILL; returns when the process is gone. The others go on without it as soon as they notice.
    pub fn kill9(&self) -> Result<()> {
        self.server.kill9()
    }

    /// SIGSTOP: connections stay open, nothing answers, and after some seconds the others go on without it.
    pub fn stop(&self) -> Result<()> {
        self.server.stop()
    }

    /// SIGCONT: goes on after [`stop`](Self::stop). Where the others have gone on without it, that is what it finds.
    pub fn cont(&self) -> Result<()> {
        self.server.cont()
    }

    /// SIGTERM: it leaves the cluster in an orderly way.
    pub fn shutdown(&self) -> Result<()> {
        self.server.shutdown()
    }

    /// Starts it again with the data it has; it joins the others and gets what it missed. Returns when it has.
    pub fn restart(&self) -> Result<()> {
        self.server.restart()?;
        self.bring_back()
    }

    /// Separates it from the other nodes, until [`bring_back`](Self::bring_back); returns when they go on without it, and
    /// it knows, if it can.
    ///
    /// In Galera its clients still reach it: the provider itself cuts the links (`gmcast.isolate`), as it does in
    /// Galera's own tests. Group replication has no such switch, its links cannot be led through a proxy, and cutting
    /// them otherwise takes root: there the whole process is stopped, which separates it from its clients, too.
    pub fn partition_away(&self) -> Result<()> {
        if self.kind != ClusterKind::Galera {
            self.stop()?;
            return self.wait("expelled", || self.state_at_peers().is_some_and(|state| state == "MISSING"));
        }
        self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'")?;
        self.wait("alone", || self.galera_status("wsrep_cluster_status", "non-Primary"))
    }

    /// Ends [`partition_away`](Self::partition_away); returns when it has what the others have.
    pub fn bring_back(&self) -> Result<()> {
        if self.kind == ClusterKind::Galera {
            // For a node that was not isolated, this changes nothing.
            self.wait("there", || {
                self.execute("SET GLOBAL wsrep_provider_options = 'gmcast.isolate=0'").is_ok()
            })?;
        } else {
            self.cont()?;
        }
        self.wait_until_synced()
    }

    /// Waits until it is a full member of the cluster: it has all that the others have committed before it joined.
    pub fn wait_until_synced(&self) -> Result<()> {
        if self.kind == ClusterKind::Galera {
            return self.wait("synced", || {
                self.galera_status("wsrep_cluster_status", "Primary")
                    && self.galera_status("wsrep_local_state_comment", "Synced")
                    && self.galera_status("wsrep_ready", "ON")
            });
        }
        self.wait("online", || match self.own_state().as_deref() {
            // It believes so until it has heard that it was expelled.
            Some("ONLINE") => self.state_at_peers().is_none_or(|state| state == "ONLINE"),
            // It was expelled, and has given up or not yet begun to come back by itself.
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

    /// What a member of a group says of itself.
    fn own_state(&self) -> Option<String> {
        let query = "SELECT member_state FROM performance_schema.replication_group_members \
                     WHERE member_id = @@server_uuid OR member_id = ''";
        run(ask(self.url(), query.to_owned())).ok()?
    }

    /// What another member says of this one; None when none answers, as while a group is being made.
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

/// By way of its first node alone.
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
