//! The server under test: a separate process, the real gate or the bare handler.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::bench::{proc, trouble::http};

const START_WITHIN: Duration = Duration::from_secs(10);

/// A running process, which is killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    logs: TempDir,
}

impl Server {
    /// Starts the gate with its default settings, except for these variables, and waits until it has reached Redis.
    pub async fn gate(program: &Path, redis: &str, settings: &[(&str, &str)]) -> Result<Self> {
        let mut command = crate::program::command(program);
        command.env_remove("RUST_LOG").arg("gate").envs([
            ("TIDEGATE_REDIS_URL", redis),
            ("TIDEGATE_GATE_LISTEN", "127.0.0.1:0"),
            ("TIDEGATE_LOG_FORMAT", "json"),
        ]);
        command.envs(settings.iter().copied());
        let server = Self::start(command).await?;
        let began = Instant::now();
        while !http::is_ok(server.address, "/readyz").await {
            ensure!(began.elapsed() < START_WITHIN, "The gate is not ready: {}", server.said());
            sleep(Duration::from_millis(5)).await;
        }
        Ok(server)
    }

    pub async fn bare_handler(redis: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bare-handler", redis]);
        Self::start(command).await
    }

    async fn start(mut command: Command) -> Result<Self> {
        let logs = TempDir::with_prefix("tidegate-bench-")?;
        let log = File::create(logs.path().join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let child = child.with_context(|| format!("Failed to start {command:?}"))?;
        let mut server = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), logs };
        let began = Instant::now();
        server.address = loop {
            let said = server.said();
            let address = said.split_once(r#""address":""#).and_then(|(_, rest)| rest.split_once('"'));
            if let Some((address, _)) = address {
                break address.parse()?;
            }
            let ended = server.child.try_wait()?.is_some();
            ensure!(!ended && began.elapsed() < START_WITHIN, "It does not listen: {said}");
            sleep(Duration::from_millis(5)).await;
        };
        Ok(server)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CPU time that it has used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        proc::cpu_s(self.child.id())
    }

    /// The memory that it holds, in KiB.
    pub fn rss_kib(&self) -> u64 {
        proc::rss_kib(self.child.id())
    }

    /// Stops the process, and waits until it has ended without an error.
    pub fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "It ended with {status}: {}", self.said());
        Ok(())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.logs.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
