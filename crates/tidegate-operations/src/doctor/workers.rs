//! Checks whether any worker is alive.

use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_orders::RedisStore;

use crate::{
    SystemSettings,
    finding::Findings,
    status::{no_worker, read_stream},
};

/// Reports how serious it is that no worker is alive. If a worker is alive, it reports nothing, because the check of
/// the group reports the consumers.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: Option<&MySqlPool>,
) {
    // Another check reports a stream that cannot be read.
    let Ok(stream) = read_stream(redis, settings).await else { return };
    let within = settings.mysql.statement_timeout;
    match no_worker::check(settings, (redis, mysql), &stream, within).await {
        Ok(None) => {}
        Ok(Some(found)) => findings.take(found),
        Err(error) => findings.not_read(
            format!("the doctor failed to read whether any worker is alive: {}", error_chain(&error)),
            "run tidegate probe readyz on the machine of each worker",
        ),
    }
}
