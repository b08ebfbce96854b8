//! Worker processes: the real program with its default settings, except for lanes and batch.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::sleep;

use super::proc;

const START_WITHIN: Duration = Duration::from_secs(30);

/// The number of workers, lanes and entries in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub processes: usize,
    pub lanes: usize,
    pub batch: usize,
}

impl Shape {
    /// The shape of `config/default.toml`. No setting is passed for it, because an older program has its own defaults.
    pub const DEFAULT: Self = Self { processes: 1, lanes: 4, batch: 1000 };
}

/// The running workers, which are killed when dropped.
pub struct Workers {
    children: Vec<Child>,
    logs: TempDir,
}

impl Workers {
    /// Starts the workers, and waits until each has begun to read. The first writes to the first MySQL, the next to the
    /// next.
    pub async fn start(program: &Path, shape: Shape, redis: &str, mysql: &[&str]) -> Result<Self> {
        Self::start_with(program, shape, redis, mysql, &[]).await
    }

    /// Starts the workers with more settings, by their variables.
    pub async fn start_with(
        program: &Path,
        shape: Shape,
        redis: &str,
        mysql: &[&str],
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mut workers = Self { children: Vec::new(), logs: TempDir::with_prefix("tidegate-bench-")? };
        for number in 0..shape.processes {
            let log = File::create(workers.log(number))?;
            let mut command = crate::program::command(program);
            command.env_remove("RUST_LOG").arg("worker").envs([
                ("TIDEGATE_REDIS_URL", redis),
                ("TIDEGATE_MYSQL_URL", mysql[number % mysql.len()]),
                ("TIDEGATE_WORKER_NAME", &format!("bench-{number}")),
                ("TIDEGATE_LOG_FORMAT", "json"),
                // Several workers run at once, next to other programs on this machine.
                ("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:0"),
            ]);
            if (shape.lanes, shape.batch) != (Shape::DEFAULT.lanes, Shape::DEFAULT.batch) {
                command.env("TIDEGATE_WORKER_LANES", shape.lanes.to_string());
                command.env("TIDEGATE_WORKER_BATCH", shape.batch.to_string());
            }
            command.envs(settings.iter().copied());
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
            workers.children.push(child.with_context(|| format!("Failed to start {}", program.display()))?);
        }
        workers.until_started().await?;
        Ok(workers)
    }

    async fn until_started(&mut self) -> Result<()> {
        let began = Instant::now();
        for number in 0..self.children.len() {
            while !self.said(number).contains("worker started") {
                let ended = self.children[number].try_wait()?.is_some();
                ensure!(!ended && began.elapsed() < START_WITHIN, "No start: {}", self.said(number));
                sleep(Duration::from_millis(5)).await;
            }
        }
        // The breaker opens and the lanes begin to wait at Redis.
        sleep(Duration::from_millis(100)).await;
        Ok(())
    }

    /// The address of the admin pages of one worker.
    pub fn admin_address(&self, number: usize) -> Result<SocketAddr> {
        let said = self.said(number);
        let line =
            said.lines().find(|line| line.contains("admin server listens")).context("No admin server")?;
        let address = line.split("\"address\":\"").nth(1).and_then(|rest| rest.split('"').next());
        Ok(address.context("No address")?.parse()?)
    }

    /// The CPU time that all of them have used, in seconds.
    pub fn cpu_s(&self) -> f64 {
        self.children.iter().map(|child| proc::cpu_s(child.id())).sum()
    }

    /// The largest peak memory of a worker, in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.children.iter().map(|child| proc::peak_kib(child.id())).max().unwrap_or_default()
    }

    /// Stops all workers, and waits until they have ended without an error.
    pub async fn stop(mut self) -> Result<()> {
        for child in &self.children {
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM)?;
        }
        for number in 0..self.children.len() {
            let status = self.children[number].wait()?;
            ensure!(status.success(), "A worker ended with {status}: {}", self.said(number));
        }
        Ok(())
    }

    /// The logs of all workers, for an error message.
    pub fn logs(&self) -> String {
        (0..self.children.len()).map(|number| self.said(number)).collect()
    }

    fn said(&self, number: usize) -> String {
        fs::read_to_string(self.log(number)).unwrap_or_default()
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.logs.path().join(format!("{number}.log"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;

    #[test]
    fn the_default_is_that_of_the_configuration() {
        let settings = include_str!("../../../../config/default.toml");
        let Shape { lanes, batch, .. } = Shape::DEFAULT;
        for line in [format!("worker.lanes = {lanes}"), format!("worker.batch = {batch}")] {
            assert!(settings.lines().any(|it| it == line), "{line}");
        }
    }
}
