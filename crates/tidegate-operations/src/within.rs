//! Requests to stores with a timeout.

use std::{future::Future, time::Duration};

use anyhow::Context;
use sqlx::{MySqlConnection, MySqlPool};
use tidegate_orders::migration_hint;
use tokio::time::{Instant, timeout};

/// The message with the advice if the tables are not migrated.
const NOT_MIGRATED: &str = "the tables in MySQL are missing or old; run `tidegate migrate`";

/// Runs `work`, and returns an error if the store does not answer before the timeout.
pub async fn in_time<T>(
    store: &str,
    within: Duration,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    timeout(within, work)
        .await
        .with_context(|| format!("{store} did not answer within {} ms", within.as_millis()))?
}

/// Returns the time that is left until `end`, the deadline that several requests share.
pub fn until(end: Instant) -> Duration {
    end.saturating_duration_since(Instant::now())
}

/// Runs `work` in a MySQL session. If the work fails or takes too long, closes the session, so that a late reply is not
/// mistaken for the reply to the next statement.
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

/// Adds the advice if the tables are older than the program.
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
