//! Questions to stores that may not answer.

use std::{future::Future, time::Duration};

use anyhow::Context;
use sqlx::{MySqlConnection, MySqlPool};
use tidegate_orders::migration_hint;
use tokio::time::{Instant, timeout};

/// What to do about it.
const NOT_MIGRATED: &str = "the tables are not ready; run `tidegate migrate`";

/// What came of `work`, unless it takes too long.
pub async fn in_time<T>(
    store: &str,
    within: Duration,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    timeout(within, work)
        .await
        .with_context(|| format!("{store} did not answer within {} ms", within.as_millis()))?
}

/// How much time is left until `end`: requests that follow each other share it.
pub fn until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Does `work` in a session of `mysql`. One in which it failed, or took too long, is closed: a reply may still come, and would be
/// taken for that to the next statement.
pub async fn in_session<T>(
    mysql: &MySqlPool,
    within: Duration,
    work: impl AsyncFnOnce(&mut MySqlConnection) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let end = Instant::now() + within;
    let mut session = in_time("MySQL", within, async { Ok(mysql.acquire().await?) }).await?;
    let done = in_time("MySQL", until(end), work(&mut session)).await;
    if done.is_err() {
        session.close_on_drop();
    }
    done.map_err(with_hint)
}

/// Says what to do where the tables are older than the program.
fn with_hint(error: anyhow::Error) -> anyhow::Error {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<sqlx::Error>());
    let is_not_migrated = causes.any(|cause| !migration_hint(cause).is_empty());
    if is_not_migrated { error.context(NOT_MIGRATED) } else { error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_has_nothing_to_do_with_the_tables_stays_as_it_is() {
        let error = anyhow::Error::from(sqlx::Error::PoolTimedOut).context("Failed to look");
        let before = format!("{error:#}");
        assert_eq!(format!("{:#}", with_hint(error)), before);
    }
}
