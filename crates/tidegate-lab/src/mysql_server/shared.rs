//! One private MySQL for the tests of a process, with a separate database for each test, because starting a server
//! takes longer than most tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow};

use super::MysqlServer;
use crate::external::create_database;

/// A database on the shared server. It stays when this value is dropped, and is removed with the server.
#[derive(Debug)]
pub struct Database {
    pub name: String,
    pub port: u16,
}

impl Database {
    /// Creates an empty database. The first call starts the server, which ends with the process.
    pub fn create() -> Result<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let server = server()?;
        let name = format!("test_{}", CREATED.fetch_add(1, Ordering::Relaxed));
        create_database(&server.url(), &name).context("Failed to create a database")?;
        Ok(Self { name, port: server.port() })
    }
}

fn server() -> Result<&'static MysqlServer> {
    static SERVER: OnceLock<Result<MysqlServer, String>> = OnceLock::new();
    let server = SERVER.get_or_init(|| MysqlServer::start().map_err(|error| format!("{error:#}")));
    server.as_ref().map_err(|error| anyhow!("Failed to start the shared MySQL: {error}"))
}
