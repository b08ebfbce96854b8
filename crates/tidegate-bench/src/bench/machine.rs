//! The machine of a run, and its load.

use std::{fs, thread, time::Duration};

use serde::{Deserialize, Serialize};

use super::git::git;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub memory_mib: u64,
    pub kernel: String,
    /// The share of the cores that other processes kept busy just before the run; it makes every figure doubtful.
    pub busy_before: f64,
}

impl Machine {
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let memory_kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or_default();
        let cpu = after(&read("/proc/cpuinfo"), "model name");
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            cpu: if cpu.is_empty() { "unknown".to_owned() } else { cpu },
            memory_mib: memory_kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            busy_before: busy_share(Duration::from_millis(500)),
        }
    }

    /// Whether other processes were busy before the run.
    pub fn is_busy(&self) -> bool {
        self.busy_before > 0.15
    }

    /// The warning if they were.
    pub fn busy_note(&self) -> String {
        let percent = 100.0 * self.busy_before;
        format!("others keep {percent:.0} % of the cores busy; figures will be too low")
    }
}

/// The share of all cores' time that is not idle, over a while.
fn busy_share(length: Duration) -> f64 {
    let before = cpu_times();
    thread::sleep(length);
    let spent: Vec<f64> = cpu_times().iter().zip(before).map(|(now, before)| now - before).collect();
    let (all, idle): (f64, f64) = (spent.iter().sum(), spent.iter().skip(3).take(2).sum());
    if all > 0.0 { (all - idle) / all } else { 0.0 }
}

/// The line `cpu user nice system idle iowait ...`, without the guests' times, which are part of the others.
fn cpu_times() -> Vec<f64> {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    line.split_whitespace().skip(1).take(8).filter_map(|ticks| ticks.parse().ok()).collect()
}

/// The commit that was measured, with a `+` if files were changed since; empty outside a clone.
pub fn commit() -> String {
    let changed = git(["status", "--porcelain"]).is_ok_and(|changes| !changes.is_empty());
    git(["rev-parse", "--short", "HEAD"]).unwrap_or_default() + if changed { "+" } else { "" }
}
