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
                format!("{host} has not joined its cluster since it was started"),
                "see its own log; it joins without help when it reaches a node of the cluster",
            ),
            (Ok(_), _) => findings.error(
                format!("{host} is no node of {}", ours.as_ref().map_or("a cluster".to_owned(), Cluster::to_string)),
                "several hosts must be nodes of one Galera cluster or of one replication group: using any other replica \
                 loses orders that were acknowledged. Name only its nodes in mysql.url",
            ),
            // The next check reports a single server that does not answer.
            (Err(reason), _) if several => findings.warning(
                format!("{host} does not answer: {reason}"),
                "start it; until then, workers use the other hosts",
            ),
            (Err(_), _) => {}
        }
    }
    if let Some(Cluster::Galera { .. }) = &ours {
        findings.ok(
            "it is Galera: give all workers the nodes in the same order, so that one node writes a hot voucher; what Galera may \
             lose is in docs/limits.md",
        );
    }
    if let (Some(cluster), false) = (&ours, several) {
        findings.warning(
            format!("mysql.url names one node of {cluster}"),
            "name the others, too (a:3306,b:3306,c:3306), so that workers continue if this one fails",
        );
    }
}

fn check_node(findings: &mut Findings, host: &str, status: &NodeStatus, several: bool) {
    let Some(cluster) = status.cluster() else { return };
    let of_nodes = status.nodes().map_or(String::new(), |nodes| {
        format!(", which has {nodes} node{}", if nodes == 1 { "" } else { "s" })
    });
    match status.unfit() {
        None => findings.ok(format!("{host} takes orders, a node of {cluster}{of_nodes}")),
        Some(_) if several && status.is_secondary() => {
            findings.ok(format!("{host} is a secondary of {cluster}{of_nodes}"));
        }
        Some(reason) => findings.error(
            format!("{host}, a node of {cluster}, takes no orders: {reason}"),
            "see its own log, and docs/runbook/mysql-is-down.md#a-node-of-the-cluster-is-away",
        ),
    }
    if let Some(error) = status.membership_error() {
        findings.error(
            format!("{host}: which members its group has cannot be seen: {error}"),
            "GRANT SELECT ON performance_schema.replication_group_members to this user: without it, no worker goes there when \
             mysql.url names several hosts",
        );
    }
    match status.nodes() {
        Some(nodes) if nodes < ENOUGH_NODES && status.unfit().is_none() => findings.warning(
            format!("{host}: its cluster has {nodes} of at least {ENOUGH_NODES} nodes: the loss of one more stops the sale"),
            "bring the missing nodes back, or add some",
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
                "{host}: innodb_flush_log_at_trx_commit is {flush}: Galera loses orders that were acknowledged if its nodes crash \
                 within a short time"
            ),
            "SET GLOBAL innodb_flush_log_at_trx_commit = 1 on every node, and write it to their configuration: see docs/limits.md",
        );
    }
}

fn check_settings(findings: &mut Findings, host: &str, status: &NodeStatus) {
    if status.fact("wsrep_sync_wait").parse().is_ok_and(|bits: u32| bits & WRITES_WAIT > 0) {
        findings.warning(
            format!("{host}: wsrep_sync_wait makes every write wait for the other nodes' backlog: batches become slow"),
            "SET GLOBAL wsrep_sync_wait = 0 or 1; workers set it themselves for the reads that need it",
        );
    }
    if status.fact("wsrep_trx_fragment_size").parse().is_ok_and(|size: u64| size > 0) {
        findings.warning(
            format!("{host}: wsrep_trx_fragment_size is set: pieces of a batch lock rows on all nodes before its COMMIT"),
            "SET GLOBAL wsrep_trx_fragment_size = 0; batches are small and need no fragments",
        );
    }
    if status.fact("group_replication_unreachable_majority_timeout") == "0" {
        findings.warning(
            format!("{host}: group_replication_unreachable_majority_timeout is 0: without a majority, commits hang for ever"),
            "SET GLOBAL group_replication_unreachable_majority_timeout = 10, and write it to the server's configuration",
        );
    }
}
