//! Existing servers, named by URL in the environment. Tests can use them, but not kill them.

use std::env;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use fred::interfaces::{ClientLike, ServerInterface};
use fred::types::{ClusterHash, CustomCommand};
use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;

use crate::blocking::{execute, run};

/// A database of an existing Redis, which the test may use because it was empty.
#[derive(Debug)]
pub(crate) struct ExternalRedis {
    pub url: String,
    pub port: u16,
}

impl ExternalRedis {
    pub fn from_env() -> Option<Result<Self>> {
        Some(Self::take(url_in("TIDEGATE_LAB_REDIS_URL")?))
    }

    fn take(url: String) -> Result<Self> {
        let config =
            fred::types::config::Config::from_url(&url).context("Failed to read TIDEGATE_LAB_REDIS_URL")?;
        let port = config.server.hosts().first().context("TIDEGATE_LAB_REDIS_URL names no host")?.port;
        let keys = run(count_keys(url.clone()))?;
        if keys > 0 {
            bail!(
                "The database of TIDEGATE_LAB_REDIS_URL has {keys} keys. A test flushes its database, so it must be \
                 empty. Name another one (such as redis://host/15), flush it yourself, or, when several tests share \
                 it, run them one at a time (--test-threads=1)"
            );
        }
        Ok(Self { url, port })
    }
}

impl Drop for ExternalRedis {
    fn drop(&mut self) {
        if let Err(error) = run(flush(self.url.clone())) {
            tracing::warn!("Failed to flush the database of TIDEGATE_LAB_REDIS_URL: {error:#}");
        }
    }
}

async fn redis_client(url: &str) -> Result<fred::clients::Client> {
    let config = fred::types::config::Config::from_url(url)?;
    let client = fred::clients::Client::new(config, None, None, None);
    client.init().await.context("Failed to connect to TIDEGATE_LAB_REDIS_URL")?;
    Ok(client)
}

async fn count_keys(url: String) -> Result<u64> {
    let client = redis_client(&url).await?;
    let keys = client.dbsize().await?;
    client.quit().await?;
    Ok(keys)
}

async fn flush(url: String) -> Result<()> {
    let client = redis_client(&url).await?;
    let flush = CustomCommand::new_static("FLUSHDB", ClusterHash::FirstKey, false);
    let _: String = client.custom(flush, Vec::<String>::new()).await?;
    client.quit().await?;
    Ok(())
}

/// A new database on an existing MySQL, which is dropped with this value.
#[derive(Debug)]
pub(crate) struct ExternalMysql {
    pub url: String,
    pub port: u16,
    server: MySqlConnectOptions,
    database: String,
}

impl ExternalMysql {
    pub fn from_env() -> Option<Result<Self>> {
        Some(Self::take(&url_in("TIDEGATE_LAB_MYSQL_URL")?))
    }

    fn take(url: &str) -> Result<Self> {
        let server = MySqlConnectOptions::from_str(url).context("Failed to read TIDEGATE_LAB_MYSQL_URL")?;
        let database = format!("tidegate_{:016x}", rand::random::<u64>());
        let url =
            create_database(url, &database).context("Failed to take a database of TIDEGATE_LAB_MYSQL_URL")?;
        Ok(Self { url, port: server.get_port(), server, database })
    }
}

impl Drop for ExternalMysql {
    fn drop(&mut self) {
        if let Err(error) = run(execute(self.server.clone(), format!("DROP DATABASE {}", self.database))) {
            tracing::warn!("Failed to drop {}: {error:#}", self.database);
        }
    }
}

/// Creates a database next to the one of `url`, and returns its URL.
pub(crate) fn create_database(url: &str, name: &str) -> Result<String> {
    let server = MySqlConnectOptions::from_str(url).context("Failed to read a MySQL URL")?;
    run(execute(server.clone(), format!("CREATE DATABASE `{name}` CHARACTER SET utf8mb4")))?;
    Ok(server.database(name).to_url_lossy().to_string())
}

fn url_in(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|url| !url.is_empty())
}
