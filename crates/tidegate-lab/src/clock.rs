//! A wall clock that a test can set, for the servers and programs that it starts.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The C source of the clock. The C compiler that Rust links with builds it, because `faketime` cannot be preloaded
/// into a Redis with jemalloc.
const SHIFT: &str = include_str!("clock/shift.c");

/// A wall clock for processes. Their monotonic clock is not changed, as when an administrator or NTP sets a clock.
#[derive(Debug)]
pub struct Clock {
    folder: TempDir,
    shift: File,
}

impl Clock {
    /// Starts a clock with the correct time.
    ///
    /// # Errors
    /// When there is no C compiler (`cc`).
    pub fn start() -> Result<Self> {
        let folder = TempDir::with_prefix("clock-").context("Failed to make a folder for a clock")?;
        let (source, library) = (folder.path().join("shift.c"), folder.path().join("shift.so"));
        fs::write(&source, SHIFT).context("Failed to write the source of a clock")?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let built = cc.output().context("Failed to run cc")?;
        ensure!(built.status.success(), "cc says: {}", String::from_utf8_lossy(&built.stderr));
        let file = folder.path().join("shift");
        fs::write(&file, 0_i64.to_ne_bytes()).context("Failed to write the shift of a clock")?;
        let shift = File::options().write(true).open(&file).context("Failed to open the shift of a clock")?;
        Ok(Self { folder, shift })
    }

    /// Sets the clock ahead of the machine by this many seconds, at once, for all processes that use it.
    pub fn set_ahead_by(&self, seconds: i64) -> Result<()> {
        // The file is changed in place, because the processes have mapped it.
        self.shift.write_all_at(&seconds.to_ne_bytes(), 0).context("Failed to set a clock")
    }

    /// The environment variables of a process that uses this clock.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, OsString); 2] {
        let at = |name: &str| Path::join(self.folder.path(), name).into_os_string();
        [("LD_PRELOAD", at("shift.so")), ("CLOCK_SHIFT", at("shift"))]
    }

    /// The words before the command of a program that uses this clock.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let assigned = |(name, value): (&str, OsString)| {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            word
        };
        [OsString::from("env")].into_iter().chain(self.variables().map(assigned)).collect()
    }
}
