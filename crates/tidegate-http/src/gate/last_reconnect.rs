//! The time since the gate last connected to Redis anew. After such a reconnect, another server may answer, which
//! lacks the last writes of the previous one. A gate that starts after a failover sees no connection break, so it asks
//! the server whether it was promoted.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fred::{
    clients::Pool,
    interfaces::ClientLike,
    types::{ClusterHash, CustomCommand},
};
use tidegate_stream::Reconnects;
use tokio::time::Instant;

/// The time after a reconnect for which the gate assumes that the server may lack recent admissions.
const RECENT: Duration = Duration::from_secs(600);

/// The time when a connection pool last reconnected to Redis, possibly to another server that lacks the newest writes.
#[derive(Debug)]
pub struct LastReconnect(Mutex<Heard>);

#[derive(Debug)]
struct Heard {
    reconnects: Reconnects,
    last: Option<Instant>,
}

impl LastReconnect {
    /// Starts to watch when a connection pool reconnects. If the Redis server was once a replica, or does not say
    /// whether it was a replica, this function treats the present time as a failover.
    pub async fn of(pool: &Pool) -> Self {
        // Before the server is asked: a failover in between is seen as well.
        let reconnects = pool.into();
        let info = CustomCommand::new_static("INFO", ClusterHash::FirstKey, false);
        let info: Result<String, _> = pool.custom(info, vec!["replication"]).await;
        let was_promoted = info.map_or(true, |info| was_promoted(&info));
        Self(Mutex::new(Heard { reconnects, last: was_promoted.then(Instant::now) }))
    }

    /// Whether Redis reconnected so recently that clients may still repeat requests for orders that a failover lost.
    pub fn is_recent(&self) -> bool {
        let Heard { reconnects, last } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reconnects.seen() {
            *last = Some(Instant::now());
        }
        last.is_some_and(|last| last.elapsed() < RECENT)
    }
}

/// Whether a server was once a replica, from its `INFO replication`. Such a server keeps the replication id of its
/// former master next to its own. A server that reports no such id may have been a replica.
fn was_promoted(info: &str) -> bool {
    let former = info.lines().find_map(|line| line.trim_end().strip_prefix("master_replid2:"));
    former.is_none_or(|id| id.bytes().any(|byte| byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::was_promoted;

    #[test]
    fn a_server_that_has_the_replication_id_of_a_former_master_was_promoted() {
        let info = |former: &str| format!("# Replication\r\nrole:master\r\nmaster_replid2:{former}\r\n");
        assert!(!was_promoted(&info(&"0".repeat(40))));
        assert!(was_promoted(&info("8c8b3e2f00d1a4f5a6b7c8d9e0f1a2b3c4d5e6f7")));
        assert!(was_promoted("# Replication\r\nrole:master\r\n"), "it does not say");
    }
}
