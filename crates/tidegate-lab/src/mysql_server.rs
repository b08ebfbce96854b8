//! A private MariaDB or MySQL server.

mod shared;

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

#[cfg(feature = "tls")]
use crate::certificates::Certificates;
use crate::clock::Clock;
use crate::data_folder::DataFolder;
use crate::data_template;
use crate::endpoint::Endpoint;
use crate::external::{self, ExternalMysql};
use crate::flavour::MysqlFlavour;
#[cfg(feature = "tls")]
use crate::mysql_settings::with_path;
use crate::mysql_settings::{DATA, TMP, server_words};
use crate::ports::ReservedPort;
use crate::private_server::PrivateServer;

/// The options of a [`MysqlServer`] that differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct MysqlOptions {
    flavour: Option<MysqlFlavour>,
    args: Vec<OsString>,
    clock: Vec<OsString>,
    port: Option<u16>,
    folder: Option<PathBuf>,
}

impl MysqlOptions {
    /// Sets the program; otherwise `TIDEGATE_LAB_MYSQL` decides.
    pub fn flavour(mut self, flavour: MysqlFlavour) -> Self {
        self.flavour = Some(flavour);
        self
    }

    /// Adds arguments for the server, such as `["--max-connections=10"]`. They override the lab's own.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    #[cfg(feature = "tls")]
    /// Enables TLS for clients that request it. They need no certificate.
    pub fn tls(self, certificates: &Certificates) -> Self {
        self.args([
            with_path("--ssl-ca=", &certificates.authority()),
            with_path("--ssl-cert=", &certificates.server()),
            with_path("--ssl-key=", &certificates.server_key()),
        ])
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

    /// Keeps the data in this folder, and keeps the server running when its [`MysqlServer`] is dropped and its owner
    /// ends.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Starts the server and waits until it accepts clients. The first start of a version on a machine takes some
    /// seconds longer, because it makes the template of the data folder.
    pub fn start(self) -> Result<MysqlServer> {
        if self.may_be_external()
            && let Some(external) = ExternalMysql::from_env()
        {
            return self.on(external?);
        }
        let flavour = self.flavour.map_or_else(MysqlFlavour::from_env, Ok)?;
        let program = flavour.program()?;
        let port = self.port.map_or_else(ReservedPort::any, |port| Ok(ReservedPort::fixed(port)))?;
        let folder = match &self.folder {
            Some(folder) => DataFolder::kept(folder)?,
            None => DataFolder::temporary("mysql-")?,
        };
        let data = folder.path().join(DATA);
        if !data.exists() {
            data_template::copy_to(&data, flavour, &program)?;
        }
        fs::create_dir_all(folder.path().join(TMP))
            .context("Failed to create a server's folder for temporary files")?;
        let mut words = self.clock;
        words.extend(server_words(flavour, &program, folder.path(), port.number));
        words.extend(self.args);
        let server = PrivateServer::start(words, port, folder, greets)?;
        Ok(MysqlServer { place: Place::Private(server) })
    }

    /// Whether an existing server may be used: if a program, a port, a folder or a clock is set, the lab must start its
    /// own.
    fn may_be_external(&self) -> bool {
        self.flavour.is_none() && self.port.is_none() && self.folder.is_none() && self.clock.is_empty()
    }

    fn on(self, external: ExternalMysql) -> Result<MysqlServer> {
        if !self.args.is_empty() {
            bail!(
                "A running server (TIDEGATE_LAB_MYSQL_URL) takes no arguments, and this test needs {:?}",
                self.args
            );
        }
        Ok(MysqlServer { place: Place::External(external) })
    }
}

/// A private MariaDB or MySQL, as durable as in production: each commit is on disk before it is acknowledged.
///
/// It has a database `tidegate` and a user `tidegate` with all rights and no password. With a password, MySQL 9
/// requires TLS or RSA, and a [`Proxy`](crate::Proxy) cannot find a pattern in encrypted bytes.
#[derive(Debug)]
pub struct MysqlServer {
    place: Place,
}

#[derive(Debug)]
enum Place {
    Private(PrivateServer),
    External(ExternalMysql),
    Shared(shared::Database),
}

impl MysqlServer {
    /// Starts the usual server.
    pub fn start() -> Result<Self> {
        Self::options().start()
    }

    /// Creates an empty database on a server that this process starts once and its tests share. It is for tests that
    /// neither break the server, nor change its settings or users, nor read the sessions of others.
    pub fn shared() -> Result<Self> {
        let place = match ExternalMysql::from_env() {
            Some(external) => Place::External(external?),
            None => Place::Shared(shared::Database::create()?),
        };
        Ok(Self { place })
    }

    /// The options of a server that differs from the usual one.
    pub fn options() -> MysqlOptions {
        MysqlOptions::default()
    }

    /// The URL `mysql://tidegate@127.0.0.1:PORT/tidegate?ssl-mode=disabled`. On a shared server, it has the name of its
    /// own database; on an external server, it is the configured URL.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Private(server) => url(server.port(), "tidegate"),
            Place::External(server) => server.url.clone(),
            Place::Shared(database) => url(database.port, &database.name),
        }
    }

    /// The port of the server, which stays the same across restarts.
    pub fn port(&self) -> u16 {
        match &self.place {
            Place::Private(server) => server.port(),
            Place::External(server) => server.port,
            Place::Shared(database) => database.port,
        }
    }

    /// Creates one more database, empty, and returns its URL. This works only on private servers.
    pub fn create_database(&self, name: &str) -> Result<String> {
        self.private()?;
        external::create_database(&self.url(), name)
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

    fn private(&self) -> Result<&PrivateServer> {
        match &self.place {
            Place::Private(server) => Ok(server),
            Place::External(_) => {
                bail!(
                    "The server of TIDEGATE_LAB_MYSQL_URL is not ours: it cannot be killed, stopped or restarted"
                )
            }
            Place::Shared(_) => {
                bail!(
                    "Other tests use the shared server: who kills, stops or restarts one starts one of his own"
                )
            }
        }
    }
}

impl Endpoint for MysqlServer {
    fn url(&self) -> String {
        self.url()
    }

    fn port(&self) -> u16 {
        self.port()
    }
}

fn url(port: u16, database: &str) -> String {
    format!("mysql://tidegate@127.0.0.1:{port}/{database}?ssl-mode=disabled")
}

/// Whether the server is ready. A ready server sends a handshake, protocol version 10; one that refuses sends an error
/// packet (0xff).
pub(crate) fn greets(port: u16) -> bool {
    let limit = Duration::from_secs(1);
    let greeting = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), limit)?;
        stream.set_read_timeout(Some(limit))?;
        let mut start = [0; 5];
        stream.read_exact(&mut start)?;
        Ok(start[4])
    };
    greeting().is_ok_and(|version| version == 10)
}
