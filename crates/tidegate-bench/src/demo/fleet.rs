//! The processes of the demo: workers, and gates.

use std::{
    collections::BTreeMap,
    fs::File,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::sleep;

/// The settings for a short show: the defaults are made for real fleets, and would make the audience wait for a minute.
const SETTINGS: [(&str, &str); 7] = [
    // The admin pages are not used, and one worker would report that another has its port.
    ("TIDEGATE_ADMIN_LISTEN", "off"),
    ("TIDEGATE_GATE_LISTEN", "127.0.0.1:0"),
    ("TIDEGATE_WORKER_LOCK_LEASE_MS", "2000"),
    ("TIDEGATE_WORKER_CLAIM_IDLE_MS", "5000"),
    ("TIDEGATE_WORKER_CLAIM_EVERY_MS", "1000"),
    ("TIDEGATE_WORKER_BATCH", "100"),
    ("TIDEGATE_LOG_FORMAT", "json"),
];

/// The time until a gate listens, which it does before it has reached Redis.
const GATE_STARTS_WITHIN: Duration = Duration::from_secs(10);

pub struct Fleet {
    program: PathBuf,
    settings: Vec<(&'static str, String)>,
    workers: BTreeMap<String, Child>,
    logs: TempDir,
}

impl Fleet {
    pub fn new(program: PathBuf, redis: &str, mysql: &str, tags: &[String]) -> Result<Self> {
        let settings = vec![
            ("TIDEGATE_REDIS_URL", redis.to_owned()),
            ("TIDEGATE_MYSQL_URL", mysql.to_owned()),
            ("TIDEGATE_STREAM_PARTITIONS", tags.join(",")),
        ];
        Ok(Self {
            program,
            settings,
            workers: BTreeMap::new(),
            logs: TempDir::with_prefix("tidegate-demo-")?,
        })
    }

    /// Sets a variable of all processes that start from now on.
    pub fn set(&mut self, name: &'static str, value: String) {
        self.settings.push((name, value));
    }

    /// Runs the program to its end; it must succeed.
    pub fn tidegate(&self, args: &[&str]) -> Result<()> {
        let output = self.command(args).output().context("Failed to run tidegate")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "Failed: tidegate {}: {said}", args.join(" "));
        Ok(())
    }

    /// Runs the program to its end, and shows its output; returns true if it succeeds.
    pub fn show(&self, args: &[&str]) -> Result<bool> {
        Ok(self.command(args).status().context("Failed to run tidegate")?.success())
    }

    /// Runs the program to its end, with any result; only its errors are shown.
    pub fn show_quietly(&self, args: &[&str]) -> Result<()> {
        self.command(args).stdout(Stdio::null()).status().context("Failed to run tidegate")?;
        Ok(())
    }

    pub fn start(&mut self, name: &str) -> Result<()> {
        self.start_as("worker", name)
    }

    /// Starts a gate, and returns its address.
    pub async fn start_gate(&mut self, name: &str) -> Result<SocketAddr> {
        self.start_as("gate", name)?;
        let (log, began) = (self.log_of(name), Instant::now());
        loop {
            let said = std::fs::read_to_string(&log)?;
            let address = said.split_once(r#""address":""#).and_then(|(_, rest)| rest.split_once('"'));
            match address {
                Some((address, _)) => return Ok(address.parse()?),
                None => ensure!(began.elapsed() < GATE_STARTS_WITHIN, "{name} does not listen: {said}"),
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.logs.path().join(format!("{name}.log"))
    }

    fn start_as(&mut self, service: &str, name: &str) -> Result<()> {
        let log = File::create(self.log_of(name))?;
        let mut command = self.command(&[service]);
        command.envs(SETTINGS).env("TIDEGATE_WORKER_NAME", name);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.workers.insert(name.to_owned(), child);
        Ok(())
    }

    /// Writes a file for the program, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.logs.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    pub fn kill9(&mut self, name: &str) -> Result<()> {
        let mut worker = self.workers.remove(name).context("No such process")?;
        worker.kill()?;
        worker.wait()?;
        Ok(())
    }

    pub fn pause(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::SIGSTOP)
    }

    pub fn resume(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::SIGCONT)
    }

    /// Checks that no process has ended except those that the demo killed.
    pub fn ensure_alive(&mut self) -> Result<()> {
        let mut workers = self.workers.iter_mut();
        let ended = workers.find_map(|(name, worker)| Some((name.clone(), worker.try_wait().transpose()?)));
        let Some((name, status)) = ended else { return Ok(()) };
        let (status, log) = (status?, std::fs::read_to_string(self.log_of(&name))?);
        bail!("{name} ended by itself: {status}; its log:\n{log}")
    }

    /// Stops all workers, and waits until they have ended.
    pub fn stop(&mut self) -> Result<()> {
        for name in self.workers.keys() {
            self.signal(name, Signal::SIGTERM)?;
        }
        for (name, mut worker) in std::mem::take(&mut self.workers) {
            let status = worker.wait()?;
            ensure!(
                status.success(),
                "{name} did not stop in good order: {status}; logs: {}",
                self.logs.path().display()
            );
        }
        Ok(())
    }

    /// Keeps the logs beyond the end of this program.
    pub fn keep_logs(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("tidegate-demo-logs-{}", std::process::id()));
        match std::fs::rename(self.logs.path(), &kept) {
            Ok(()) => kept,
            Err(_) => self.logs.path().to_owned(),
        }
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let worker = self.workers.get(name).context("No such worker")?;
        Ok(kill(Pid::from_raw(i32::try_from(worker.id())?), signal)?)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = crate::program::command(&self.program);
        command.envs(self.settings.iter().map(|(name, value)| (name, value))).args(args);
        command
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for worker in self.workers.values_mut() {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
