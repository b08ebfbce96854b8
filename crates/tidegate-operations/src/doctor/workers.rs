//! Is there a worker at all?

use sqlx::MySqlPool;
use tidegate_compare::text::error_chain;
use tidegate_orders::RedisStore;

use crate::{
    SystemSettings,
    finding::Findings,
    status::{no_worker, read_stream},
};

/// Says how grave it is where no worker is alive. Says nothing where one is: its consumers are told with the group.
pub(super) async fn check(
    settings: &SystemSettings,
    findings: &mut Findings,
    redis: &RedisStore,
    mysql: Option<&MySqlPool>,
) {
    // A stream that cannot be read is told already.
    let Ok(stream) = read_stream(redis, settings).await else { return };
    let within = settings.mysql.statement_timeout;
    match no_worker::check(settings, (redis, mysql), &stream, within).await {
        Ok(None) => {}
        Ok(Some(found)) => findings.take(found),
        Err(error) => findings.not_read(
            format!("whether any worker is alive: {}", error_chain(&error)),
            "look at the workers themselves: tidegate probe readyz, on the machine of each",
        ),
    }
}
