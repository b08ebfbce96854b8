//! Checks whether `mysql.url` names a cluster, and whether its nodes can take orders.

use tidegate_orders::sessions::{Cluster, NodeStatus};

use crate::finding::Findings;
use crate::{SystemSettings, connect};

/// The statements that `wsrep_sync_wait` makes wait: INSERT and UPDATE.
const WRITES_WAIT: u32 = 2 | 4;
/// The number of nodes below which the loss of one stops the others.
const ENOUGH_NODES: i64 = 3;

/// Checks every host of `mysql.url` separately. It reports nothing about a single server that is in no cluster.
pub(super) async fn check(settings: &SystemSettings, findings: &mut Findings) {
    let Ok(sessions) = connect::mysql_sessions(settings) else { return };
    let inspector = sessions.survey().await;
    let several = inspector.len() > 1;
    let ours = inspector.iter().find_map(|(_, status)| status.as_ref().ok()?.cluster());
    for (host, status) in &inspector {
        match (status, &ours) {
            (Ok(_), None) if !several => {}
            (Ok(status), Some(ours)) if status.cluster().as_ref() == Some(ours) => {
                check_node(findings, host, status, several);
            }
            (Ok(status), _) if status.certifies() && status.cluster().is_none() => findings.error(
                format!("{host} has not joined its MySQL cluster since {host} started"),
                "read the log of this MySQL host; the host joins without help when it reaches a node of the cluster",
            ),
            (Ok(_), _) => findings.error(
                format!("{host} is not a node of {}", ours.as_ref().map_or("a cluster".to_owned(), Cluster::to_string)),
                "name only nodes of one Galera cluster or of one replication group in mysql.url: writing to any other \
                 replica loses orders that workers have acknowledged",
            ),
            // The next check reports a single server that does not answer.
            (Err(reason), _) if several => findings.warning(
                format!("{host} does not answer: {reason}"),
                "start this MySQL host; until then, workers use the other hosts of mysql.url",
            ),
            (Err(_), _) => {}
        }
    }
    if let Some(Cluster::Galera { .. }) = &ours {
        findings.ok(
            "the cluster is Galera: give all workers the nodes in the same order, so that one node writes all orders \
             of a voucher; docs/limits.md describes the orders that Galera may lose",
        );
    }
    if let (Some(cluster), false) = (&ours, several) {
        findings.warning(
            format!("mysql.url names one node of {cluster}"),
            "name all nodes in mysql.url (a:3306,b:3306,c:3306), so that workers continue if this node fails",
        );
    }
}

fn check_node(findings: &mut Findings, host: &str, status: &NodeStatus, several: bool) {
    let Some(cluster) = status.cluster() else { return };
    let of_nodes = status.nodes().map_or(String::new(), |nodes| {
        format!(", which has {nodes} node{}", if nodes == 1 { "" } else { "s" })
    });
    match status.unfit() {
        None => findings.ok(format!("{host} accepts orders and is a node of {cluster}{of_nodes}")),
        Some(_) if several && status.is_secondary() => {
            findings.ok(format!("{host} is a secondary of {cluster}{of_nodes}"));
        }
        Some(reason) => findings.error(
            format!("{host}, a node of {cluster}, does not accept writes of orders: {reason}"),
            "read the log of this node, and docs/runbook/mysql-is-down.md#a-node-of-the-cluster-is-away",
        ),
    }
    if let Some(error) = status.membership_error() {
        findings.error(
            format!("{host}: Failed to read the members of the replication group: {error}"),
            "GRANT SELECT ON performance_schema.replication_group_members to Tidegate's user: without this grant, no worker \
             uses this host if mysql.url names several hosts",
        );
    }
    match status.nodes() {
        Some(nodes) if nodes < ENOUGH_NODES && status.unfit().is_none() => findings.warning(
            format!("{host}: the cluster has {nodes} nodes, but needs {ENOUGH_NODES}: if one more node fails, all sales stop"),
            "start the missing nodes, or add new nodes",
        ),
        _ => {}
    }
    check_settings(findings, host, status);
    check_flush(findings, host, status, &cluster);
}

/// Checks how a Galera node flushes. Galera commits in the memory of the nodes before any node has written the
/// transaction to a file. If nodes that do not flush crash together, they lose it. The node to which this process
/// connects is checked with the server's settings.
fn check_flush(findings: &mut Findings, host: &str, status: &NodeStatus, cluster: &Cluster) {
    let flush = status.fact("innodb_flush_log_at_trx_commit");
    if matches!(cluster, Cluster::Galera { .. }) && !matches!(flush, "1" | "") {
        findings.error(
            format!(
                "{host}: innodb_flush_log_at_trx_commit is {flush}: if all Galera nodes crash within a short time, \
                 acknowledged orders are lost"
            ),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1 on every node, and in its configuration file: see docs/limits.md",
        );
    }
}

fn check_settings(findings: &mut Findings, host: &str, status: &NodeStatus) {
    if status.fact("wsrep_sync_wait").parse().is_ok_and(|bits: u32| bits & WRITES_WAIT > 0) {
        findings.warning(
            format!("{host}: wsrep_sync_wait is set for writes: every INSERT waits until the node has caught up"),
            "SET GLOBAL wsrep_sync_wait = 0 or 1; workers set wsrep_sync_wait in their sessions for the reads that need it",
        );
    }
    if status.fact("wsrep_trx_fragment_size").parse().is_ok_and(|size: u64| size > 0) {
        findings.warning(
            format!("{host}: wsrep_trx_fragment_size is set: a batch locks rows on all nodes before the COMMIT of the batch"),
            "SET GLOBAL wsrep_trx_fragment_size = 0; batches are small and need no fragments",
        );
    }
    if status.fact("group_replication_unreachable_majority_timeout") == "0" {
        findings.warning(
            format!("{host}: group_replication_unreachable_majority_timeout is 0: without a majority, commits wait forever"),
            "SET GLOBAL group_replication_unreachable_majority_timeout = 10, and add this setting to the server's configuration",
        );
    }
}
