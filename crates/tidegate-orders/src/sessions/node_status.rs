//! The status of a server and of its cluster, as the server reports it. Reads only.

use std::{collections::HashMap, fmt};

use sqlx::{MySqlConnection, Row, mysql::MySqlRow};

/// A cluster of servers that share their data: data that one server has committed reaches all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// A cluster of Galera nodes.
    Galera {
        /// The name in `wsrep_cluster_name`.
        name: String,
        /// The UUID in `wsrep_cluster_state_uuid`, of the history that all nodes share.
        history: String,
    },
    /// A group of MySQL's group replication.
    Group {
        /// The name in `group_replication_group_name`, a UUID.
        name: String,
    },
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Galera { name, history } => write!(f, "the Galera cluster {name:?} ({history})"),
            Self::Group { name } => write!(f, "the replication group {name}"),
        }
    }
}

/// How a server replicates with other servers that accept writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replication {
    /// The server is alone, or an asynchronous replica copies it.
    None,
    Galera,
    Group,
}

/// The status of a MySQL server: the variables and status values that Tidegate needs, and the members of the server's
/// replication group.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    facts: HashMap<String, String>,
    membership: Membership,
}

/// The members of a replication group, as a server reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Membership {
    /// The server was not asked, because it is in no group.
    Unasked,
    /// This user may not read the members; the error of the server.
    Hidden(String),
    /// The state of this member, how many members can be reached from it, and how many there are.
    Seen { state: String, reachable: i64, all: i64 },
}

/// The variables that distinguish a server from the others of its cluster. Not every server has all of them.
const NAMES: [&str; 5] = ["hostname", "port", "server_id", "server_uuid", "wsrep_node_name"];
const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('hostname', 'port', 'server_id', \
    'server_uuid', 'wsrep_node_name', 'wsrep_on', 'wsrep_provider', \
    'wsrep_cluster_name', 'wsrep_sync_wait', 'wsrep_trx_fragment_size', 'group_replication_group_name', \
    'group_replication_single_primary_mode', 'group_replication_unreachable_majority_timeout', \
    'group_replication_consistency', 'read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit')";
const STATUS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_cluster_state_uuid', \
    'wsrep_cluster_status', 'wsrep_cluster_size', 'wsrep_ready', 'wsrep_local_state_comment')";
const MEMBERS: &str = "SELECT CAST(COALESCE(MAX(IF(member_id = @@server_uuid, member_state, NULL)), 'OFFLINE') AS CHAR), \
    CAST(COALESCE(SUM(member_state IN ('ONLINE', 'RECOVERING')), 0) AS SIGNED), CAST(COUNT(*) AS SIGNED) \
    FROM performance_schema.replication_group_members";

impl NodeStatus {
    /// Reads the status of a server. A node that is outside of its cluster also answers the queries.
    ///
    /// # Errors
    /// Fails if the server does not answer.
    pub async fn read(connection: &mut MySqlConnection) -> sqlx::Result<Self> {
        let mut facts = HashMap::new();
        for query in [VARIABLES, STATUS] {
            for row in sqlx::raw_sql(query).fetch_all(&mut *connection).await? {
                facts.insert(text(&row, 0)?.to_lowercase(), text(&row, 1)?);
            }
        }
        let mut status = Self { facts, membership: Membership::Unasked };
        if status.is_in_group() {
            status.membership = match sqlx::query_as(MEMBERS).fetch_one(connection).await {
                Ok((state, reachable, all)) => Membership::Seen { state, reachable, all },
                Err(sqlx::Error::Database(error)) => Membership::Hidden(error.to_string()),
                Err(error) => return Err(error),
            };
        }
        Ok(status)
    }

    /// The value of a server variable or status value, by its name in lower case. The text is empty if the server does
    /// not know the name.
    #[must_use]
    pub fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    /// The values that identify the server within its cluster.
    pub(super) fn server(&self) -> [&str; 5] {
        NAMES.map(|name| self.fact(name))
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.fact(name).to_ascii_uppercase().as_str(), "ON" | "1")
    }

    /// Whether the server is a node of Galera, or was started as one.
    pub(crate) fn is_in_galera(&self) -> bool {
        self.is_on("wsrep_on") && !matches!(self.fact("wsrep_provider"), "" | "none")
    }

    fn is_in_group(&self) -> bool {
        !self.fact("group_replication_group_name").is_empty()
    }

    /// How the server replicates with others.
    pub(super) fn replication(&self) -> Replication {
        match (self.is_in_galera(), self.is_in_group()) {
            (true, _) => Replication::Galera,
            (false, true) => Replication::Group,
            (false, false) => Replication::None,
        }
    }

    /// Whether the server replicates by certification, so that a COMMIT can fail because of a transaction on another
    /// server.
    #[must_use]
    pub fn certifies(&self) -> bool {
        self.replication() != Replication::None
    }

    /// The cluster that the server belongs to, or belonged to before. `None` for a single server, and for a Galera node
    /// that has not joined a cluster since its start.
    #[must_use]
    pub fn cluster(&self) -> Option<Cluster> {
        if self.is_in_galera() {
            let history = self.fact("wsrep_cluster_state_uuid");
            let is_known = !history.is_empty() && !history.starts_with("00000000-0000-0000");
            return is_known.then(|| Cluster::Galera {
                name: self.fact("wsrep_cluster_name").to_owned(),
                history: history.to_owned(),
            });
        }
        let name = self.fact("group_replication_group_name").to_owned();
        self.is_in_group().then_some(Cluster::Group { name })
    }

    /// The reason why commits on this server may never reach the cluster. `None` if the server is in its cluster. A
    /// server that has left its replication group may still accept writes. Galera refuses all statements in this case.
    #[must_use]
    pub fn outside_of_group(&self) -> Option<String> {
        match &self.membership {
            Membership::Seen { state, .. } if !matches!(state.as_str(), "ONLINE" | "RECOVERING") => {
                Some(format!("the server is {state} in its replication group"))
            }
            Membership::Seen { .. } | Membership::Unasked | Membership::Hidden(_) => None,
        }
    }

    /// Whether other members of the replication group also accept writes, according to this server.
    #[must_use]
    pub fn has_several_primaries(&self) -> bool {
        self.is_in_group() && !self.is_on("group_replication_single_primary_mode")
    }

    /// The reason why this user cannot read the members of the replication group. `None` if the user can read them.
    #[must_use]
    pub fn membership_error(&self) -> Option<&str> {
        match &self.membership {
            Membership::Hidden(error) => Some(error),
            Membership::Seen { .. } | Membership::Unasked => None,
        }
    }

    /// The current number of nodes of the cluster, as this server reports it.
    #[must_use]
    pub fn nodes(&self) -> Option<i64> {
        match &self.membership {
            Membership::Seen { reachable, .. } => Some(*reachable),
            Membership::Unasked | Membership::Hidden(_) => self.fact("wsrep_cluster_size").parse().ok(),
        }
    }

    /// Whether the server accepts no writes because another member is the only primary of its group.
    #[must_use]
    pub fn is_secondary(&self) -> bool {
        let is_online = matches!(&self.membership, Membership::Seen { state, .. } if state == "ONLINE");
        is_online && self.is_on("group_replication_single_primary_mode") && self.is_on("super_read_only")
    }

    /// The reason why orders cannot be written to this server now. `None` if orders can be written.
    #[must_use]
    pub fn unfit(&self) -> Option<String> {
        if self.is_in_galera() {
            let status = self.fact("wsrep_cluster_status");
            if status != "Primary" {
                return Some(format!("the server is outside of its cluster's primary component ({status})"));
            }
            // A donor of all its data delays commits.
            let state = self.fact("wsrep_local_state_comment");
            if state != "Synced" || !self.is_on("wsrep_ready") {
                return Some(format!("the server is not ready ({state})"));
            }
        }
        match &self.membership {
            Membership::Seen { state, .. } if state != "ONLINE" => {
                return Some(format!("the server is {state} in its replication group"));
            }
            Membership::Seen { reachable, all, .. } if reachable * 2 <= *all => {
                return Some(format!("the server reaches only {reachable} of {all} members of its group"));
            }
            Membership::Seen { .. } | Membership::Unasked | Membership::Hidden(_) => {}
        }
        let read_only = ["super_read_only", "read_only"].into_iter().find(|name| self.is_on(name));
        read_only.map(|name| format!("{name} is ON"))
    }
}

/// Reads a text, whether the server gives the column a text or a byte type.
fn text(row: &MySqlRow, column: usize) -> sqlx::Result<String> {
    let bytes: Option<Vec<u8>> = row.try_get_unchecked(column)?;
    Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
}

#[cfg(test)]
impl NodeStatus {
    pub(super) fn of_facts<const N: usize>(facts: [(&str, &str); N]) -> Self {
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { facts: facts.into(), membership: Membership::Unasked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_status<const N: usize>(facts: [(&str, &str); N], membership: Membership) -> NodeStatus {
        NodeStatus { membership, ..NodeStatus::of_facts(facts) }
    }

    fn seen(state: &str, reachable: i64, all: i64) -> Membership {
        Membership::Seen { state: state.to_owned(), reachable, all }
    }

    #[test]
    fn a_mariadb_without_a_provider_is_alone() {
        let alone = node_status(
            [("wsrep_on", "OFF"), ("wsrep_provider", "none"), ("wsrep_cluster_name", "my_wsrep_cluster")],
            Membership::Unasked,
        );
        assert!(!alone.certifies() && alone.cluster().is_none() && alone.unfit().is_none());
    }

    #[test]
    fn a_node_of_galera_is_fit_when_it_is_synced_in_the_primary_component() {
        let node = |status, state, ready, uuid| {
            let facts = [
                ("wsrep_on", "ON"),
                ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"),
                ("wsrep_cluster_name", "shop"),
                ("wsrep_cluster_status", status),
                ("wsrep_local_state_comment", state),
                ("wsrep_ready", ready),
                ("wsrep_cluster_state_uuid", uuid),
            ];
            node_status(facts, Membership::Unasked)
        };
        let well = node("Primary", "Synced", "ON", "e5f0e885-e62d-11f1-8a7f-6e5586df82e8");
        assert_eq!(well.unfit(), None);
        assert!(well.certifies());
        assert_eq!(
            well.cluster().unwrap().to_string(),
            "the Galera cluster \"shop\" (e5f0e885-e62d-11f1-8a7f-6e5586df82e8)"
        );
        for (unfit, word) in [
            (node("non-Primary", "Initialized", "OFF", "x"), "primary component"),
            (node("Primary", "Donor/Desynced", "ON", "x"), "Donor"),
            (node("Primary", "Synced", "OFF", "x"), "not ready"),
        ] {
            assert!(unfit.unfit().unwrap().contains(word), "{word}");
        }
        let unjoined = node("Disconnected", "Initialized", "OFF", "00000000-0000-0000-0000-000000000000");
        assert!(unjoined.cluster().is_none() && unjoined.certifies());
    }

    #[test]
    fn a_member_of_a_group_is_fit_when_it_is_online_with_the_majority_and_takes_writes() {
        let name = ("group_replication_group_name", "6b1f6a52-0000-4000-8000-000000000001");
        let member = |read_only, membership| node_status([name, ("super_read_only", read_only)], membership);
        assert_eq!(member("OFF", seen("ONLINE", 2, 3)).unfit(), None);
        for (unfit, word) in [
            (member("OFF", seen("ONLINE", 1, 3)), "1 of 3"),
            (member("ON", seen("ONLINE", 3, 3)), "super_read_only"),
            (member("OFF", seen("RECOVERING", 3, 3)), "RECOVERING"),
            (member("OFF", seen("OFFLINE", 0, 1)), "OFFLINE"),
        ] {
            assert!(unfit.unfit().unwrap().contains(word), "{word}");
        }
        // This server is writable and outside of its group: no other member gets what is committed there.
        assert!(member("OFF", seen("OFFLINE", 0, 1)).outside_of_group().is_some());
        assert!(member("ON", seen("RECOVERING", 3, 3)).outside_of_group().is_none());
    }
}
