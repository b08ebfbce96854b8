//! The map of a Redis Cluster: the master of each slot, as the nodes report it.
//!
//! Format: [CLUSTER NODES](https://redis.io/docs/latest/commands/cluster-nodes/). The map does not come from CLUSTER
//! SLOTS, because only CLUSTER NODES has the config epoch. The epoch decides which of two masters that claim a slot is
//! the later one.

use std::ops::RangeInclusive;

/// The number of hash slots in a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// The address of a node, as `host:port`. An IPv6 address has no brackets, and the port follows the last colon.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeAddress {
    /// The host name or the IP address of the node.
    pub host: String,
    /// The port of the node for clients.
    pub port: u16,
}

impl NodeAddress {
    /// Parses `host:port`; an IPv6 address may be in brackets.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Some(Self { host: host.to_owned(), port: port.parse().ok().filter(|port| *port > 0)? })
    }
}

impl std::fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// One node of a Redis Cluster, as a node of the cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id of the node in the cluster: 40 hexadecimal digits.
    pub id: String,
    /// The address of the node. None: the cluster does not know the address yet.
    pub address: Option<NodeAddress>,
    /// Whether the node is a master, which accepts writes for its hash slots.
    pub is_master: bool,
    /// Whether most masters of the cluster report the node as failed.
    pub has_failed: bool,
    /// The config epoch of the node. If two masters claim a hash slot, the slot belongs to the master with the higher
    /// epoch.
    pub config_epoch: u64,
    /// The hash slots that the node serves.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Whether the node is moving a hash slot to another node, or importing one.
    pub moves_slots: bool,
}

/// Parses the reply of CLUSTER NODES. If a node does not know its own address, the result has the address `asked`
/// instead. Lines in an unknown form, perhaps of a later version of Redis, are skipped.
#[must_use]
pub fn parse_nodes(reply: &str, asked: &NodeAddress) -> Vec<Node> {
    reply.lines().filter_map(|line| parse_node(line, asked)).collect()
}

fn parse_node(line: &str, asked: &NodeAddress) -> Option<Node> {
    let mut words = line.split_ascii_whitespace();
    let (id, address, flags) = (words.next()?, words.next()?, words.next()?);
    let config_epoch = words.nth(3)?.parse().ok()?;
    // The state of the link follows.
    let served: Vec<&str> = words.skip(1).collect();
    let flags: Vec<&str> = flags.split(',').collect();
    // HOST:PORT@BUS-PORT,HOSTNAME,...
    let address = address.split(['@', ',']).next()?;
    let address = match (NodeAddress::parse(address), flags.contains(&"myself")) {
        (Some(found), _) if !found.host.is_empty() && !flags.contains(&"noaddr") => Some(found),
        (_, true) => Some(asked.clone()),
        _ => None,
    };
    Some(Node {
        id: id.to_owned(),
        address,
        is_master: flags.contains(&"master"),
        has_failed: flags.contains(&"fail"),
        config_epoch,
        slots: served.iter().filter_map(|range| parse_range(range)).collect(),
        moves_slots: served.iter().any(|range| range.starts_with('[')),
    })
}

/// Parses `7` or `0-5460`; None for `[7->-ID]`, which is a slot that is moving.
fn parse_range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then_some(first..=last)
}

/// The map of a Redis Cluster: which node serves which hash slots, merged from the reports of several nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterMap {
    nodes: Vec<Node>,
}

impl ClusterMap {
    /// Merges the reports of several nodes, and keeps the latest information on each node. Reports can differ, because
    /// a node that was cut off for a while reports an old map.
    #[must_use]
    pub fn of_views(views: impl IntoIterator<Item = Vec<Node>>) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        for node in views.into_iter().flatten() {
            match nodes.iter_mut().find(|known| known.id == node.id) {
                Some(known) if is_later(&node, known) => *known = node,
                Some(_) => {}
                None => nodes.push(node),
            }
        }
        nodes.sort_by(|a, b| a.id.cmp(&b.id));
        Self { nodes }
    }

    /// Whether the map contains no node, because no node has sent a report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns all nodes, sorted by their ids.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The addresses of the masters that have hash slots, as a text for the log.
    #[must_use]
    pub fn masters(&self) -> String {
        let masters = self.nodes.iter().filter(|node| node.is_master && !node.slots.is_empty());
        let mut masters: Vec<String> =
            masters.filter_map(|node| node.address.as_ref().map(ToString::to_string)).collect();
        masters.sort_unstable();
        masters.join(" ")
    }

    /// Returns the master of a hash slot. If several nodes claim the slot, the result is the node with the highest
    /// config epoch. None: no node claims the slot, or the address of its master is unknown.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<&NodeAddress> {
        let claims = self.nodes.iter().filter(|node| node.is_master && has_slot(node, slot));
        claims.max_by_key(|node| node.config_epoch)?.address.as_ref()
    }

    /// The number of hash slots without a working master in this map.
    #[must_use]
    pub fn uncovered(&self) -> usize {
        let covered =
            |slot| self.nodes.iter().any(|node| node.is_master && !node.has_failed && has_slot(node, slot));
        (0..SLOTS).filter(|slot| !covered(*slot)).count()
    }
}

fn has_slot(node: &Node, slot: u16) -> bool {
    node.slots.iter().any(|range| range.contains(&slot))
}

/// Whether `node` is newer information than `known`. With the same epoch, a node that became a replica gave up its
/// slots, so the view as a replica is later. A view that has the address of the node is better than one that does not.
fn is_later(node: &Node, known: &Node) -> bool {
    let rank = |node: &Node| (node.config_epoch, !node.is_master, node.address.is_some(), node.has_failed);
    rank(node) > rank(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: &str = "\
07c37dfeb235213a872192d90877d0cd55635b91 127.0.0.1:30004@31004,host4 slave e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca 0 1426238317239 4 connected
67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1 127.0.0.1:30002@31002 master - 0 1426238316232 2 connected 5461-10922
292f8b365bb7edb5e285caf0b7e6ddc7265d2f4f ::1:30003@31003 master,fail - 0 1426238318243 3 connected 10923-16382 16383
e7d1eecce10fd6bb5eb35b9f99a514335d9ba9ca :30001@31001 myself,master - 0 0 1 connected 0-5460 [77->-67ed2db8d677e59ec4a4cefb06858cf2a1a89fa1]
824fe116063bc5fcf9f4ffd895bc17aee7731ac3 :0@0 master,noaddr - 1426238317741 1426238316232 0 disconnected
some line of a later version
";

    fn asked() -> NodeAddress {
        NodeAddress::parse("10.0.0.1:7000").unwrap()
    }

    #[test]
    fn every_node_that_is_told_of_is_read() {
        let nodes = parse_nodes(VIEW, &asked());
        assert_eq!(nodes.len(), 5);
        let listen: Vec<_> =
            nodes.iter().map(|node| node.address.as_ref().map(ToString::to_string)).collect();
        let known = ["127.0.0.1:30004", "127.0.0.1:30002", "::1:30003", "10.0.0.1:7000"];
        assert_eq!(listen[..4], known.map(|address| Some(address.to_owned())));
        assert_eq!(listen[4], None);
        assert_eq!(
            nodes.iter().map(|node| node.is_master).collect::<Vec<_>>(),
            [false, true, true, true, true]
        );
        assert!(nodes[2].has_failed && !nodes[1].has_failed);
        assert_eq!(nodes[2].slots, [10_923..=16_382, 16_383..=16_383]);
        assert_eq!(nodes[3].slots, [0..=5460]);
        assert!(nodes[3].moves_slots && !nodes[1].moves_slots);
        let map = ClusterMap::of_views([nodes]);
        assert_eq!(map.owner(77).unwrap().to_string(), "10.0.0.1:7000", "until the move is over");
        assert_eq!(map.owner(16_383).unwrap().to_string(), "::1:30003", "nobody else has it");
        assert_eq!(map.uncovered(), 5461);
    }

    #[test]
    fn an_address_is_read_with_or_without_brackets() {
        for (text, host) in [("a:1", "a"), ("::1:1", "::1"), ("[::1]:1", "::1")] {
            assert_eq!(NodeAddress::parse(text), Some(NodeAddress { host: host.into(), port: 1 }), "{text}");
        }
        for wrong in ["a", "a:", "a:0", "a:70000"] {
            assert_eq!(NodeAddress::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn of_two_that_claim_a_slot_the_later_one_has_it() {
        let view = |text: &str| parse_nodes(text, &asked());
        // A master that was frozen, and its replica, which was promoted in the meantime.
        let old = view(
            "aa 10.0.0.1:7000@1 myself,master - 0 0 1 connected 0-16383\n\
             bb 10.0.0.2:7000@1 slave aa 0 0 1 connected\n",
        );
        let new = view(
            "aa 10.0.0.1:7000@1 master,fail - 0 0 1 connected\n\
             bb 10.0.0.2:7000@1 myself,master - 0 0 7 connected 0-16383\n",
        );
        for views in [[old.clone(), new.clone()], [new.clone(), old.clone()]] {
            assert_eq!(ClusterMap::of_views(views).owner(5).unwrap().host, "10.0.0.2");
        }
        assert_eq!(ClusterMap::of_views([old]).owner(5).unwrap().host, "10.0.0.1", "nobody says otherwise");
        // The old master has become a replica, and one node still reports it as a master.
        let after = view(
            "aa 10.0.0.1:7000@1 slave bb 0 0 7 connected\n\
             bb 10.0.0.2:7000@1 myself,master - 0 0 7 connected 0-16383\n",
        );
        let map = ClusterMap::of_views([new, after]);
        assert_eq!(map.nodes().iter().filter(|node| node.is_master).count(), 1);
        assert_eq!(ClusterMap::default().owner(5), None);
        assert!(ClusterMap::default().is_empty());
    }
}
