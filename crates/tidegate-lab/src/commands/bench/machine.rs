//! The machine that a run was made on.

use std::{fs, process::Command, thread};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub cpu: String,
    pub memory_mib: u64,
    pub kernel: String,
    /// Load average of one minute before the run: others at work make every figure doubtful.
    pub load_before: f64,
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
            load_before: read("/proc/loadavg")
                .split_whitespace()
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
        }
    }
}

/// The commit that was measured, with a `+` when files were changed since; empty outside of a clone.
pub fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changed = git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty());
    git(&["rev-parse", "--short", "HEAD"]).unwrap_or_default() + if changed { "+" } else { "" }
}
