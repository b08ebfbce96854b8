//! A private Redis (or Valkey).

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::endpoint::Endpoint;
use crate::flavour::RedisFlavour;
use crate::ground::Ground;
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

/// How to start a [`RedisServer`] that differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    flavour: Option<RedisFlavour>,
    args: Vec<OsString>,
    port: Option<u16>,
    folder: Option<PathBuf>,
}

impl RedisOptions {
    /// Which program; otherwise `TIDEGATE_LAB_REDIS` decides.
    pub fn flavour(mut self, flavour: RedisFlavour) -> Self {
        self.flavour = Some(flavour);
        self
    }

    /// More arguments for the server, such as `["--maxmemory", "10mb"]`. They win over the lab's own.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// This port instead of any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Keeps the data in this folder, and the server running when its [`RedisServer`] is dropped and its owner ends.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<RedisServer> {
        let program = self.flavour.map_or_else(RedisFlavour::from_env, Ok)?.program()?;
        let port = self.port.map_or_else(ReservedPort::any, |port| Ok(ReservedPort::fixed(port)))?;
        let ground = match &self.folder {
            Some(folder) => Ground::kept(folder)?,
            None => Ground::temporary("redis-")?,
        };
        let mut words = program.words;
        words.extend(settings(port.number, ground.path()));
        words.extend(self.args);
        Ok(RedisServer { server: PrivateServer::start(words, port, ground, answers_ping)? })
    }
}

/// A Redis of our own, durable as in production: append-only file, fsync every second, no eviction.
///
/// With `appendfsync everysec` a killed Redis can lose its last moments when the disk was slow; a test that must not
/// see that adds `.args(["--appendfsync", "always"])`.
#[derive(Debug)]
pub struct RedisServer {
    server: PrivateServer,
}

impl RedisServer {
    /// Starts the usual server.
    pub fn start() -> Result<Self> {
        Self::options().start()
    }

    /// A server that differs from the usual one.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The port it listens on; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The process, or None while it does not run.
    pub fn pid(&self) -> Option<u32> {
        self.server.pid()
    }

    /// The folder with its data and `server.log`.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(&self) -> Result<()> {
        self.server.kill9()
    }

    /// SIGSTOP: connections stay open, nothing answers.
    pub fn stop(&self) -> Result<()> {
        self.server.stop()
    }

    /// SIGCONT: goes on after [`stop`](Self::stop).
    pub fn cont(&self) -> Result<()> {
        self.server.cont()
    }

    /// SIGTERM; returns when the process has ended by itself.
    pub fn shutdown(&self) -> Result<()> {
        self.server.shutdown()
    }

    /// Starts it again with the same data on the same port, after a shutdown if it still runs.
    pub fn restart(&self) -> Result<()> {
        self.server.restart()
    }
}

impl Endpoint for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn port(&self) -> u16 {
        self.port()
    }
}

fn settings(port: u16, folder: &Path) -> Vec<OsString> {
    let port = port.to_string();
    let settings = [
        ("--port", port.as_ref()),
        ("--bind", "127.0.0.1".as_ref()),
        ("--dir", folder.as_os_str()),
        ("--daemonize", "no".as_ref()),
        ("--appendonly", "yes".as_ref()),
        ("--appendfsync", "everysec".as_ref()),
        ("--save", "".as_ref()),
        ("--maxmemory-policy", "noeviction".as_ref()),
    ];
    settings.into_iter().flat_map(|(name, value)| [name.into(), value.into()]).collect()
}

/// While it loads its file it answers -LOADING, which is not ready.
fn answers_ping(port: u16) -> bool {
    let limit = Duration::from_secs(1);
    let ping = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply)?;
        Ok(&reply == b"+PONG\r\n")
    };
    ping().unwrap_or(false)
}
