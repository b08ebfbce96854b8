//! A network between the nodes of a cluster, in which some cannot reach the others.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{FORMED_WITHIN, LOOK_EVERY, RedisCluster, RedisNode};
use crate::proxy::Proxy;

/// A simulated network. Every connection to a node goes through separate proxies, and every node connects from its own
/// address. So each connection can be cut by its source and its target. Clients on this machine, at 127.0.0.1, are in
/// no part of it.
#[derive(Debug)]
pub struct ClusterNetwork {
    /// The proxies, in the order of the nodes.
    proxies: Vec<NodeProxies>,
}

#[derive(Debug)]
struct NodeProxies {
    /// The address from which the node connects.
    from: Ipv4Addr,
    /// The proxy for clients and replicas.
    clients: Proxy,
    /// The proxy for the other nodes.
    bus: Proxy,
}

impl RedisCluster {
    /// Puts a network between the nodes, and waits until they use it. This needs Redis 7.
    pub async fn networked(&self) -> Result<ClusterNetwork> {
        let mut proxies = Vec::new();
        for (at, node) in (1..).zip(self.nodes()) {
            let own = NodeProxies {
                from: Ipv4Addr::new(127, 0, 1, at),
                clients: Proxy::start(node.port()).await?,
                bus: Proxy::start(node.bus_port()).await?,
            };
            // This comes before any message is published, because every link is reconnected then.
            node.says(&["CONFIG", "SET", "bind-source-addr", &own.from.to_string()])?;
            proxies.push(own);
        }
        for (node, own) in self.nodes().iter().zip(&proxies) {
            let settings = [
                ("cluster-announce-ip", "127.0.0.1".to_owned()),
                ("cluster-announce-port", own.clients.port().to_string()),
                ("cluster-announce-bus-port", own.bus.port().to_string()),
            ];
            for (name, value) in settings {
                node.says(&["CONFIG", "SET", name, &value])?;
            }
        }
        let network = ClusterNetwork { proxies };
        let began = Instant::now();
        while !self.nodes().iter().all(|node| network.is_used_by(node)) {
            ensure!(began.elapsed() < FORMED_WITHIN, "The nodes do not use the network");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.wait_whole(FORMED_WITHIN)?;
        Ok(network)
    }
}

impl ClusterNetwork {
    /// Separates this node from all others, in both directions. Clients still reach it.
    pub fn part(&self, cluster: &RedisCluster, node: &RedisNode) {
        let sources = |is_it: bool| {
            let both = cluster.nodes().iter().zip(&self.proxies);
            both.filter(move |(other, _)| (other.id() == node.id()) == is_it).map(|(_, own)| own.from)
        };
        for (other, own) in cluster.nodes().iter().zip(&self.proxies) {
            let is_it = other.id() == node.id();
            own.clients.refuse_from(sources(!is_it));
            own.bus.refuse_from(sources(!is_it));
        }
    }

    /// Restores the connections between all nodes.
    pub fn heal(&self) {
        for own in &self.proxies {
            own.clients.refuse_from([]);
            own.bus.refuse_from([]);
        }
    }

    /// Waits until a node that was [parted](Self::part) from the others has noticed it, and refuses commands.
    pub async fn wait_refusing(&self, node: &RedisNode, within: Duration) -> Result<()> {
        let began = Instant::now();
        while !node.says(&["CLUSTER", "INFO"])?.contains("cluster_state:fail") {
            ensure!(began.elapsed() < within, "Node {} does not notice that it is alone", node.port());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    fn is_used_by(&self, node: &RedisNode) -> bool {
        let nodes = node.says(&["CLUSTER", "NODES"]).unwrap_or_default();
        self.proxies.iter().all(|own| nodes.contains(&format!(":{}@{}", own.clients.port(), own.bus.port())))
    }
}
