//! A private Redis (or Valkey) server.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};

#[cfg(feature = "tls")]
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::data_folder::DataFolder;
use crate::endpoint::Endpoint;
use crate::external::ExternalRedis;
use crate::flavour::RedisFlavour;
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

/// The options of a [`RedisServer`] that differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct RedisOptions {
    flavour: Option<RedisFlavour>,
    args: Vec<OsString>,
    clock: Vec<OsString>,
    port: Option<u16>,
    folder: Option<PathBuf>,
    speaks_tls: bool,
}

impl RedisOptions {
    /// Sets the program; otherwise `TIDEGATE_LAB_REDIS` decides.
    pub fn flavour(mut self, flavour: RedisFlavour) -> Self {
        self.flavour = Some(flavour);
        self
    }

    /// Adds arguments for the server, such as `["--maxmemory", "10mb"]`. They override the lab's own.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the clock that the server uses instead of that of the machine.
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.clock = clock.words();
        self
    }

    /// Sets this port instead of any free one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Keeps the data in this folder, and keeps the server running when its [`RedisServer`] is dropped and its owner
    /// ends.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    #[cfg(feature = "tls")]
    /// Enables TLS on a separate port. Clients need no certificate.
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self.speaks_tls = true;
        let files = [
            ("--tls-cert-file", certificates.server()),
            ("--tls-key-file", certificates.server_key()),
            ("--tls-ca-cert-file", certificates.authority()),
            ("--tls-auth-clients", "no".into()),
        ];
        self.args(files.into_iter().flat_map(|(name, value)| [OsString::from(name), value.into()]))
    }

    /// Starts the server and waits until it answers.
    pub fn start(self) -> Result<RedisServer> {
        if self.may_be_external()
            && let Some(external) = ExternalRedis::from_env()
        {
            return self.on(external?);
        }
        let program = self.flavour.map_or_else(RedisFlavour::from_env, Ok)?.program()?;
        let port = self.port.map_or_else(ReservedPort::any, |port| Ok(ReservedPort::fixed(port)))?;
        let folder = match &self.folder {
            Some(folder) => DataFolder::kept(folder)?,
            None => DataFolder::temporary("redis-")?,
        };
        let mut words = self.clock;
        words.extend(program.words);
        words.extend(settings(port.number, folder.path()));
        words.extend(self.args);
        let tls_port = if self.speaks_tls { Some(ReservedPort::any()?) } else { None };
        if let Some(port) = &tls_port {
            words.extend(["--tls-port".into(), port.number.to_string().into()]);
        }
        let server = PrivateServer::start(words, port, folder, answers_ping)?;
        Ok(RedisServer { place: Place::Private(server), tls_port })
    }

    /// Whether an existing server may be used: if a program, a port, a folder or a clock is set, the lab must start its
    /// own.
    fn may_be_external(&self) -> bool {
        self.flavour.is_none() && self.port.is_none() && self.folder.is_none() && self.clock.is_empty()
    }

    fn on(self, external: ExternalRedis) -> Result<RedisServer> {
        if !self.args.is_empty() {
            bail!(
                "A running server (TIDEGATE_LAB_REDIS_URL) takes no arguments, and this test needs {:?}",
                self.args
            );
        }
        Ok(RedisServer { place: Place::External(external), tls_port: None })
    }
}

/// A private Redis, as durable as in production: append-only file, fsync every second, no eviction.
///
/// With `appendfsync everysec`, a killed Redis can lose its last moments if the disk was slow. A test that must not see
/// that adds `.args(["--appendfsync", "always"])`.
#[derive(Debug)]
pub struct RedisServer {
    place: Place,
    tls_port: Option<ReservedPort>,
}

#[derive(Debug)]
enum Place {
    Private(PrivateServer),
    External(ExternalRedis),
}

impl RedisServer {
    /// Starts the usual server.
    pub fn start() -> Result<Self> {
        Self::options().start()
    }

    /// The options of a server that differs from the usual one.
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// The URL `redis://127.0.0.1:PORT`, or that of the external server.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Private(server) => format!("redis://127.0.0.1:{}", server.port()),
            Place::External(server) => server.url.clone(),
        }
    }

    /// The URL `rediss://localhost:PORT`, if the server was started with [`RedisOptions::tls`].
    pub fn tls_url(&self) -> Option<String> {
        Some(format!("rediss://localhost:{}", self.tls_port.as_ref()?.number))
    }

    /// The port of the server, which stays the same across restarts.
    pub fn port(&self) -> u16 {
        match &self.place {
            Place::Private(server) => server.port(),
            Place::External(server) => server.port,
        }
    }

    /// The process id, or None while the server does not run or is external.
    pub fn pid(&self) -> Option<u32> {
        self.private().ok()?.pid()
    }

    /// The folder with its data and `server.log`, or None if the server is external.
    pub fn folder(&self) -> Option<&Path> {
        Some(self.private().ok()?.folder())
    }

    /// Sends SIGKILL, and returns when the process is gone.
    pub fn kill9(&self) -> Result<()> {
        self.private()?.kill9()
    }

    /// Sends SIGSTOP: connections stay open, but the server does not answer.
    pub fn stop(&self) -> Result<()> {
        self.private()?.stop()
    }

    /// Sends SIGCONT, which continues after [`stop`](Self::stop).
    pub fn cont(&self) -> Result<()> {
        self.private()?.cont()
    }

    /// Sends SIGTERM, and returns when the process has ended by itself.
    pub fn shutdown(&self) -> Result<()> {
        self.private()?.shutdown()
    }

    /// Starts the server again with the same data on the same port, after a shutdown if it still runs.
    pub fn restart(&self) -> Result<()> {
        self.private()?.restart()
    }

    /// Keeps all its files from growing, as on a full disk. Redis logs `File too large`, where a full disk would be `No
    /// space left on device`. With `appendfsync always`, it ends at its next write.
    pub fn fill_disk(&self) -> Result<()> {
        self.private()?.limit_files("1")
    }

    /// Lets the files grow again, after [`fill_disk`](Self::fill_disk).
    pub fn free_disk(&self) -> Result<()> {
        self.private()?.limit_files("unlimited")
    }

    fn private(&self) -> Result<&PrivateServer> {
        match &self.place {
            Place::Private(server) => Ok(server),
            Place::External(_) => {
                bail!(
                    "The server of TIDEGATE_LAB_REDIS_URL is not ours: it cannot be killed, stopped or restarted"
                )
            }
        }
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

/// Whether the server is ready. While it loads its file, it answers -LOADING, which does not count.
pub(crate) fn answers_ping(port: u16) -> bool {
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
