//! A private Redis Cluster: masters with a replica each, which tests can kill, freeze, restart and separate.

mod network;
mod node;
mod slots;

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

pub use self::network::ClusterNetwork;
pub use self::node::RedisNode;
pub use self::slots::{MovingSlot, slot_of};

/// The number of slots of a cluster.
const SLOTS: u16 = 16_384;
/// The timeout until all nodes agree.
const FORMED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The options of a [`RedisCluster`] that differs from the usual one.
#[derive(Debug, Clone)]
pub struct RedisClusterOptions {
    masters: usize,
    replicas: usize,
    node_timeout_ms: u32,
    requires_full_coverage: bool,
    args: Vec<String>,
}

impl RedisClusterOptions {
    /// Sets the number of masters.
    pub fn masters(mut self, masters: usize) -> Self {
        self.masters = masters;
        self
    }

    /// Sets the number of replicas of each master.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets the milliseconds without an answer after which a node counts as away.
    pub fn node_timeout_ms(mut self, node_timeout_ms: u32) -> Self {
        self.node_timeout_ms = node_timeout_ms;
        self
    }

    /// Makes the whole cluster refuse commands while a slot has no master, as Redis does by default.
    pub fn requires_full_coverage(mut self) -> Self {
        self.requires_full_coverage = true;
        self
    }

    /// Adds arguments for every node. They override the lab's own.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Starts all nodes, and waits until they form one cluster with all its replicas.
    pub fn start(self) -> Result<RedisCluster> {
        let count = self.masters * (1 + self.replicas);
        let start = |_| {
            let Self { node_timeout_ms, requires_full_coverage, args, .. } = &self;
            let node_timeout_ms = node_timeout_ms.to_string();
            let coverage = if *requires_full_coverage { "yes" } else { "no" };
            let own = [
                ("--cluster-node-timeout", node_timeout_ms.as_str()),
                ("--cluster-require-full-coverage", coverage),
                // Otherwise, a replica that was cut off for a moment could not stand for election.
                ("--cluster-replica-validity-factor", "0"),
                ("--repl-diskless-sync-delay", "0"),
            ];
            let own = own.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_owned()]);
            RedisNode::start(own.chain(args.iter().cloned()))
        };
        let nodes = (0..count).map(start).collect::<Result<Vec<_>>>()?;
        let cluster = RedisCluster { nodes, masters: self.masters };
        cluster.form()?;
        Ok(cluster)
    }
}

/// A private Redis Cluster. The first nodes are its masters at the start, in the order of their slots, which are spread
/// evenly; then come the replicas, in the same order.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisNode>,
    masters: usize,
}

impl RedisCluster {
    /// Starts three masters with a replica each.
    pub fn start() -> Result<Self> {
        Self::options().start()
    }

    /// The options of a cluster that differs from the usual one. By default, a dead node is replaced after two seconds,
    /// and only commands for a slot without a master are refused.
    pub fn options() -> RedisClusterOptions {
        RedisClusterOptions {
            masters: 3,
            replicas: 1,
            node_timeout_ms: 2_000,
            requires_full_coverage: false,
            args: Vec::new(),
        }
    }

    /// The URL `redis-cluster://127.0.0.1:PORT?node=127.0.0.1:PORT&...`, with all nodes.
    pub fn url(&self) -> String {
        let [first, others @ ..] = &self.nodes[..] else { unreachable!("there is one at least") };
        let others: Vec<String> =
            others.iter().map(|node| format!("node=127.0.0.1:{}", node.port())).collect();
        let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        format!("redis-cluster://127.0.0.1:{}{query}", first.port())
    }

    /// All nodes, in the order of their start.
    pub fn nodes(&self) -> &[RedisNode] {
        &self.nodes
    }

    /// The master of the slot of `{tag}`, by the majority of the nodes that answer.
    pub fn master_of(&self, tag: &str) -> Result<&RedisNode> {
        let slot = slot_of(tag);
        let mut owners: Vec<String> = self.nodes.iter().filter_map(|node| node.owner(slot)).collect();
        owners.sort_unstable();
        let count = |id: &String| owners.iter().filter(|other| *other == id).count();
        let owner = owners.iter().max_by_key(|id| count(id)).context("Nobody has the slot")?;
        self.nodes.iter().find(|node| node.id() == *owner).context("An unknown node has the slot")
    }

    /// The nodes that replicate this one.
    pub fn replicas_of(&self, master: &RedisNode) -> Vec<&RedisNode> {
        let is_replica = |node: &&RedisNode| node.master_id().is_some_and(|id| id == master.id());
        self.nodes.iter().filter(is_replica).collect()
    }

    /// Waits until every slot has a master and every running node is linked: a replica with its master, a master with
    /// the others.
    pub fn wait_whole(&self, within: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let trouble = match self.trouble() {
                None => return Ok(()),
                Some(trouble) => trouble,
            };
            ensure!(began.elapsed() < within, "The Redis Cluster is not whole after {within:?}: {trouble}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The reason why the cluster is not complete, by its running nodes.
    fn trouble(&self) -> Option<String> {
        let running: Vec<&RedisNode> = self.nodes.iter().filter(|node| node.is_running()).collect();
        for node in &running {
            let info = match node.says(&["CLUSTER", "INFO"]) {
                Ok(info) => info,
                Err(error) => return Some(format!("node {}: {error:#}", node.port())),
            };
            let has = |line: &str| info.lines().any(|found| found.trim_end() == line);
            if !(has("cluster_state:ok") && has(&format!("cluster_slots_ok:{SLOTS}"))) {
                return Some(format!("node {}: {info}", node.port()));
            }
            let replication = node.says(&["INFO", "replication"]).unwrap_or_default();
            if replication.contains("role:slave") && !replication.contains("master_link_status:up") {
                return Some(format!("replica {} is not in step", node.port()));
            }
        }
        None
    }

    fn form(&self) -> Result<()> {
        let (masters, replicas) = self.nodes.split_at(self.masters);
        for (at, (master, slots)) in masters.iter().zip(spread(self.masters)).enumerate() {
            let (first, last) = (slots.start().to_string(), slots.end().to_string());
            master.says(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            // Otherwise, two nodes would first have to resolve a conflict about their slots.
            master.says(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()])?;
        }
        for node in &self.nodes[1..] {
            let (port, bus) = (node.port().to_string(), node.bus_port().to_string());
            self.nodes[0].says(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        let began = Instant::now();
        while !self.nodes.iter().all(|node| node.knows() == self.nodes.len()) {
            ensure!(began.elapsed() < FORMED_WITHIN, "The nodes do not come to know each other");
            std::thread::sleep(LOOK_EVERY);
        }
        for (at, replica) in replicas.iter().enumerate() {
            let master = &masters[at % self.masters];
            loop {
                match replica.says(&["CLUSTER", "REPLICATE", master.id()]) {
                    Ok(_) => break,
                    // The node has not learnt yet that this one is a master.
                    Err(_) if began.elapsed() < FORMED_WITHIN => std::thread::sleep(LOOK_EVERY),
                    Err(error) => bail!("A node does not become a replica: {error:#}"),
                }
            }
        }
        self.wait_whole(FORMED_WITHIN)?;
        // A replica without a link cannot be distinguished from a master by its own output.
        while !replicas.iter().all(|replica| replica.master_id().is_some()) {
            ensure!(began.elapsed() < FORMED_WITHIN, "The replicas do not find their masters");
            std::thread::sleep(LOOK_EVERY);
        }
        self.wait_whole(FORMED_WITHIN)
    }
}

/// The slots of each of this many masters.
fn spread(masters: usize) -> impl Iterator<Item = RangeInclusive<u16>> {
    let border = move |at: usize| u16::try_from(usize::from(SLOTS) * at / masters).unwrap_or(SLOTS);
    (0..masters).map(move |at| border(at)..=border(at + 1) - 1)
}
