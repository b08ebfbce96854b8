//! Calls to servers from code that is not async.

use std::future::Future;
use std::thread;

use anyhow::{Context, Result, anyhow};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection};

/// Runs the work to its end on a separate thread, so that the caller may be inside a runtime or not.
pub(crate) fn run<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let thread =
        thread::spawn(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work));
    thread.join().map_err(|_| anyhow!("A call to a server panicked"))?
}

/// Runs statements that are separated by semicolons, on a new connection.
pub(crate) async fn execute(server: MySqlConnectOptions, statements: String) -> Result<()> {
    let mut client = server.connect().await.context("Failed to connect to MySQL")?;
    // The only part that varies is a name that the caller of the lab has chosen.
    client.execute(AssertSqlSafe(statements)).await?;
    client.close().await?;
    Ok(())
}

/// Returns the one text of a query, or None if it finds no row.
pub(crate) async fn ask(url: String, query: String) -> Result<Option<String>> {
    let mut client = MySqlConnection::connect(&url).await.context("Failed to connect to MySQL")?;
    let answer = sqlx::query_scalar(AssertSqlSafe(query)).fetch_optional(&mut client).await?;
    client.close().await?;
    Ok(answer)
}
