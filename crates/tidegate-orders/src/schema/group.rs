//! Which member of a replication group may change its schema.
//!
//! Where a group has several primaries, no member knows of the others' DDL before it is committed. Two that add the same
//! column at once both succeed, each then fails to repeat the other's statement, and all members leave the group for it. The
//! lock of a migration is a server's own, so all migrations of such a group must go to one and the same server.

use sqlx::MySqlConnection;

use super::{MigrateError, found::failed_to};
use crate::sessions::NodeStatus;

/// All members that are well agree on this one. By names, so that people can tell, too.
const FIRST: &str = "SELECT CAST(CONCAT(member_host, ':', member_port) AS CHAR), CAST(member_id = @@server_uuid AS SIGNED) \
    FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE' \
    ORDER BY member_host, member_port, member_id LIMIT 1";

/// The member that changes the schema, as `host:port`, where that is another one.
pub(super) async fn another_member(connection: &mut MySqlConnection) -> Result<Option<String>, MigrateError> {
    let asked = async {
        if !NodeStatus::read(&mut *connection).await?.has_several_primaries() {
            return Ok(None);
        }
        sqlx::query_as::<_, (String, i64)>(FIRST).fetch_optional(connection).await
    };
    let first = asked.await.map_err(|error| failed_to("ask which member changes the schema", error))?;
    Ok(first.filter(|(_, is_this_one)| *is_this_one == 0).map(|(member, _)| member))
}
