//! A private Redis Sentinel server.

use std::fs;

use anyhow::{Context, Result};

use crate::data_folder::DataFolder;
use crate::flavour::RedisFlavour;
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;
use crate::redis_server::{RedisServer, answers_ping};

/// The name of the master that it watches.
const SERVICE: &str = "shop";
/// Milliseconds without an answer after which a master counts as down.
const DOWN_AFTER_MS: u32 = 500;

/// A Sentinel that watches one master, and decides alone.
#[derive(Debug)]
pub struct RedisSentinel {
    server: PrivateServer,
}

impl RedisSentinel {
    /// Starts a Sentinel, which finds the replicas of the master by itself.
    pub fn watch(master: &RedisServer) -> Result<Self> {
        Self::start(master, "")
    }

    /// Starts like [`RedisSentinel::watch`], but logs in to the master and its replicas as this user.
    pub fn watch_as(master: &RedisServer, user: &str, password: &str) -> Result<Self> {
        Self::start(
            master,
            &format!("sentinel auth-user {SERVICE} {user}\nsentinel auth-pass {SERVICE} {password}\n"),
        )
    }

    fn start(master: &RedisServer, login: &str) -> Result<Self> {
        let mut words = RedisFlavour::from_env()?.program()?.words;
        let (port, folder) = (ReservedPort::any()?, DataFolder::temporary("sentinel-")?);
        let file = folder.path().join("sentinel.conf");
        let settings = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}\n\
             sentinel failover-timeout {SERVICE} 10000\n{login}",
            port.number,
            folder.path().display(),
            master.port(),
        );
        fs::write(&file, settings).context("Failed to write the settings of a Sentinel")?;
        words.extend([file.into(), "--sentinel".into()]);
        Ok(Self { server: PrivateServer::start(words, port, folder, answers_ping)? })
    }

    /// The URL `redis-sentinel://127.0.0.1:PORT?...`, which leads to the current master.
    pub fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}?sentinelServiceName={SERVICE}", self.port())
    }

    /// Kills the Sentinel with SIGKILL. Its state stays in its file.
    pub fn kill9(&self) -> Result<()> {
        self.server.kill9()
    }

    /// Starts the Sentinel again, on its port and with its state.
    pub fn restart(&self) -> Result<()> {
        self.server.restart()
    }

    /// The port of the Sentinel.
    pub fn port(&self) -> u16 {
        self.server.port()
    }
}
