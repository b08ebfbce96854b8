//! A server that keeps running after `up` has ended, and the note that `up` leaves about it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const END_WITHIN: Duration = Duration::from_secs(60);

/// The folder `.lab` in the current folder.
pub fn state_folder() -> Result<PathBuf> {
    Ok(env::current_dir().context("Failed to find the current folder")?.canonicalize()?.join(".lab"))
}

/// The note about a server: process, port and URL in one line.
#[derive(Debug, Clone)]
pub struct Standing {
    pub pid: u32,
    pub port: u16,
    pub url: String,
}

impl Standing {
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::write(note(folder), format!("{} {} {}\n", self.pid, self.port, self.url))
            .context("Failed to write the note")
    }

    /// Reads the note. None: `up` has never started a server there.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let text = match fs::read_to_string(note(folder)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.context("Failed to read the note")?,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[pid, port, url] = words.as_slice() else { bail!("{} is damaged", note(folder).display()) };
        Ok(Some(Self { pid: pid.parse()?, port: port.parse()?, url: url.into() }))
    }

    /// Whether the process runs and is this server. Process ids are used again, but only this server works in this
    /// folder.
    pub fn is_running(&self, folder: &Path) -> bool {
        fs::read_link(format!("/proc/{}/cwd", self.pid)).is_ok_and(|works_in| works_in.starts_with(folder))
    }

    /// Sends SIGTERM and waits; sends SIGKILL if the server does not end in time.
    pub fn end(&self, folder: &Path) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)?;
        let deadline = Instant::now() + END_WITHIN;
        while self.is_running(folder) {
            if Instant::now() > deadline {
                self.signal(Signal::SIGKILL)?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match kill(Pid::from_raw(self.pid.cast_signed()), signal) {
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("Failed to send {signal} to process {}", self.pid))
            }
        }
    }
}

fn note(folder: &Path) -> PathBuf {
    folder.join("standing")
}
