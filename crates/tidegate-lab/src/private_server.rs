//! The common part of a private Redis and a private MySQL: a process, a port, a folder, and the signals for it.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::data_folder::DataFolder;
use crate::ports::ReservedPort;
use crate::process::{Launch, Lifetime, ServerProcess, tail_of_log};

const START_WITHIN: Duration = Duration::from_secs(60);
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(60);

/// A private server. The fields are dropped in this order: the process first, then its port and its folder.
#[derive(Debug)]
pub(crate) struct PrivateServer {
    process: Mutex<Option<ServerProcess>>,
    launch: Launch,
    is_ready: fn(u16) -> bool,
    port: ReservedPort,
    folder: DataFolder,
}

impl PrivateServer {
    pub fn start(
        words: Vec<OsString>,
        port: ReservedPort,
        folder: DataFolder,
        is_ready: fn(u16) -> bool,
    ) -> Result<Self> {
        let lifetime = match folder {
            DataFolder::Temporary { .. } => Lifetime::WithOwner,
            DataFolder::Kept(_) => Lifetime::Detached,
        };
        let launch = Launch { words, log: folder.path().join("server.log"), lifetime };
        let server = Self { process: Mutex::new(None), launch, is_ready, port, folder };
        server.restart()?;
        Ok(server)
    }

    pub fn port(&self) -> u16 {
        self.port.number
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(ServerProcess::pid)
    }

    pub fn kill9(&self) -> Result<()> {
        match self.process().take() {
            Some(mut process) => process.kill9(),
            None => bail!("The server is not running"),
        }
    }

    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    pub fn cont(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)
    }

    pub fn shutdown(&self) -> Result<()> {
        let mut process = self.process();
        process.as_mut().context("The server is not running")?.shutdown(SHUTDOWN_WITHIN)?;
        *process = None;
        Ok(())
    }

    /// Starts the server again, after shutting it down if it runs.
    pub fn restart(&self) -> Result<()> {
        let mut process = self.process();
        if let Some(mut running) = process.take() {
            running.shutdown(SHUTDOWN_WITHIN)?;
        }
        let mut started = ServerProcess::spawn(&self.launch)?;
        let is_ready = || (self.is_ready)(self.port());
        if let Err(error) = started.wait_until_ready(is_ready, START_WITHIN) {
            let _ = started.kill9();
            return Err(error);
        }
        *process = Some(started);
        Ok(())
    }

    /// Limits the size of its files to a number of bytes, or `unlimited`. A restart ends the limit.
    pub fn limit_files(&self, bytes: &str) -> Result<()> {
        self.process().as_ref().context("The server is not running")?.limit_files(bytes)
    }

    pub fn tail_of_log(&self) -> String {
        tail_of_log(&self.launch.log)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        self.process().as_ref().context("The server is not running")?.signal(signal)
    }

    // A test that panicked while it held this lock has not broken the process.
    fn process(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
