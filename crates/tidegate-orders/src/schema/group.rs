//! Finds the node of a cluster that may change its schema, and takes turns for creating a view.
//!
//! In a group with several primaries, no member knows the others' DDL before it is committed. If two members add the
//! same column at once, both succeed. Each then fails to repeat the other's statement, and all members leave the group
//! for it. The lock of a migration exists only on its server, so all migrations of such a group must run on one and the
//! same server.

use std::time::Duration;

use sqlx::MySqlConnection;

use super::{MigrateError, found::failed_to};
use crate::{mysql_error::is_deadlock, sessions::NodeStatus};

/// The first member, on which all online members agree. Sorted by names, so that people can find it, too.
const FIRST: &str = "SELECT CAST(CONCAT(member_host, ':', member_port) AS CHAR), CAST(member_id = @@server_uuid AS SIGNED) \
    FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE' \
    ORDER BY member_host, member_port, member_id LIMIT 1";

/// The member that changes the schema, as `host:port`, if it is another one.
pub(super) async fn another_member(connection: &mut MySqlConnection) -> Result<Option<String>, MigrateError> {
    let asked = async {
        if !NodeStatus::read(&mut *connection).await?.has_several_primaries() {
            return Ok(None);
        }
        sqlx::query_as::<_, (String, i64)>(FIRST).fetch_optional(connection).await
    };
    let first = asked.await.map_err(|error| failed_to("read which member changes the schema", error))?;
    Ok(first.filter(|(_, is_this_one)| *is_this_one == 0).map(|(member, _)| member))
}

/// The time for which a node has the turn: longer than a statement of a migration waits for a table.
pub(super) const TURN: Duration = Duration::from_secs(40);

/// Adds a row to the probe's table that nothing else uses. At first no node has the turn.
const ADD_TURN: &str = "INSERT IGNORE INTO tidegate_probe (id, at) VALUES (2, '2000-01-01 12:00:00')";
const TAKE_TURN: &str = "UPDATE tidegate_probe SET at = CURRENT_TIMESTAMP(3) WHERE id = 2 AND at < CURRENT_TIMESTAMP(3) - INTERVAL ? SECOND";
const GIVE_TURN_BACK: &str = "UPDATE tidegate_probe SET at = '2000-01-01 12:00:00' WHERE id = 2";

/// Whether a view must be created by one node at a time. If two nodes of MariaDB's Galera create a view at once, both
/// hang for ever (seen on 10.11). The node whose statement comes later in the order of the cluster has locked the name
/// already. It waits for its turn behind a statement that waits for the name.
pub(super) async fn makes_views_in_turn(connection: &mut MySqlConnection) -> Result<bool, MigrateError> {
    let status = NodeStatus::read(connection).await;
    let status = status.map_err(|error| failed_to("read whether the server is a node of Galera", error))?;
    Ok(status.is_in_galera())
}

/// Releases the turn before it ends, because the statement failed and the next node need not wait.
pub(super) async fn give_turn_back(connection: &mut MySqlConnection) {
    if let Err(error) = sqlx::raw_sql(GIVE_TURN_BACK).execute(connection).await {
        tracing::debug!(%error, "the lock for creating a view could not be released: the lock expires");
    }
}

/// Takes the turn for [`TURN`]. Returns false if another node has it. If two nodes write it at once, the write succeeds
/// on one of them, and that node has everything that was committed before it.
pub(super) async fn take_turn(connection: &mut MySqlConnection) -> Result<bool, MigrateError> {
    let taken = async {
        sqlx::raw_sql(ADD_TURN).execute(&mut *connection).await?;
        sqlx::query(TAKE_TURN).bind(TURN.as_secs()).execute(&mut *connection).await
    };
    match taken.await {
        Ok(done) => Ok(done.rows_affected() == 1),
        Err(error) if is_deadlock(&error) => Ok(false),
        Err(error) => Err(failed_to("take the lock for creating a view", error)),
    }
}
