//! The worker processes of the demo.

use std::{
    collections::BTreeMap,
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

/// Settings for a short show: the defaults are made for real fleets, where nobody waits for a minute.
const SETTINGS: [(&str, &str); 6] = [
    // Nobody looks, and one of them would say that another has its port.
    ("TIDEGATE_ADMIN_LISTEN", "off"),
    ("TIDEGATE_WORKER_LOCK_LEASE_MS", "2000"),
    ("TIDEGATE_WORKER_CLAIM_IDLE_MS", "5000"),
    ("TIDEGATE_WORKER_CLAIM_EVERY_MS", "1000"),
    ("TIDEGATE_WORKER_BATCH", "100"),
    ("TIDEGATE_LOG_FORMAT", "json"),
];

pub struct Fleet {
    program: PathBuf,
    settings: [(&'static str, String); 3],
    workers: BTreeMap<String, Child>,
    logs: TempDir,
}

impl Fleet {
    pub fn new(program: PathBuf, redis: &str, mysql: &str, tags: &[String]) -> Result<Self> {
        let settings = [
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

    /// Runs the program to its end; it must succeed.
    pub fn tidegate(&self, args: &[&str]) -> Result<()> {
        let output = self.command(args).output().context("Failed to run tidegate")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "Failed: tidegate {}: {said}", args.join(" "));
        Ok(())
    }

    /// Runs the program to its end, showing what it prints; true when it succeeds.
    pub fn show(&self, args: &[&str]) -> Result<bool> {
        Ok(self.command(args).status().context("Failed to run tidegate")?.success())
    }

    /// Runs the program to its end, whatever comes of it; only what it prints as an error is shown.
    pub fn show_quietly(&self, args: &[&str]) -> Result<()> {
        self.command(args).stdout(Stdio::null()).status().context("Failed to run tidegate")?;
        Ok(())
    }

    pub fn start(&mut self, name: &str) -> Result<()> {
        let log = File::create(self.logs.path().join(format!("{name}.log")))?;
        let mut command = self.command(&["worker"]);
        command.envs(SETTINGS).env("TIDEGATE_WORKER_NAME", name);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.workers.insert(name.to_owned(), child);
        Ok(())
    }

    pub fn kill9(&mut self, name: &str) -> Result<()> {
        let mut worker = self.workers.remove(name).context("No such worker")?;
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

    /// Asks all workers to stop, and waits until they have.
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
        let mut command = Command::new(&self.program);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_"))
        {
            command.env_remove(name);
        }
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
