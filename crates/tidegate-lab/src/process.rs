//! One process, of a server or of a worker, that cannot outlive its owner.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, iter};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Whether a server ends with the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The kernel kills the server when the owner ends, however it ends.
    WithOwner,
    /// The server keeps running, for `tidegate-lab up`.
    Detached,
}

/// The command that makes a program end with its owner.
const WITH_OWNER: [&str; 3] = ["setpriv", "--pdeathsig", "KILL"];

/// Everything that is needed to start a server, repeatedly.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub words: Vec<OsString>,
    pub log: PathBuf,
    pub lifetime: Lifetime,
}

impl Launch {
    fn command(&self) -> Result<Command> {
        let log =
            File::options().create(true).append(true).open(&self.log).context("Failed to open the log")?;
        let wrapper: &[&[&str]] = match self.lifetime {
            // Then a limit on files is an error for the server, like a full disk, and does not end it.
            Lifetime::WithOwner => &[&["env", "--ignore-signal=XFSZ"], &WITH_OWNER],
            Lifetime::Detached => &[&["setsid"]],
        };
        let mut words =
            wrapper.iter().copied().flatten().map(OsString::from).chain(self.words.iter().cloned());
        let mut command = Command::new(words.next().context("A launch needs a program")?);
        command.args(words).stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        if self.lifetime == Lifetime::WithOwner {
            // Ctrl-C in a terminal goes to the foreground group; here the owner must decide, not the terminal. (setsid
            // makes a group by itself, and would fork if it already led one.)
            command.process_group(0);
        }
        Ok(command)
    }
}

/// A running child process. Dropping it kills it, unless it is detached.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    launch: Launch,
}

impl ServerProcess {
    pub fn spawn(launch: &Launch) -> Result<Self> {
        let command = launch.command()?;
        let child = spawn_from_lasting_thread(command)
            .context("Failed to start a server (setpriv is in util-linux)")?;
        Ok(Self { child, launch: launch.clone() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)
            .with_context(|| format!("Failed to send {signal} to server {}", self.pid()))
    }

    /// Limits the size of its files to a number of bytes, or `unlimited`. (This is only the soft limit, so raising it
    /// does not require root.)
    pub fn limit_files(&self, bytes: &str) -> Result<()> {
        let status = Command::new("prlimit")
            .args(["--pid", &self.pid().to_string(), &format!("--fsize={bytes}:")])
            .status()
            .context("Failed to run prlimit (it is in util-linux)")?;
        ensure!(status.success(), "prlimit ended with {status}");
        Ok(())
    }

    /// Waits until `is_ready` returns true, the server ends, or the time is up.
    pub fn wait_until_ready(&mut self, is_ready: impl Fn() -> bool, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        while !is_ready() {
            if let Some(status) = self.child.try_wait().context("Failed to look after a server")? {
                bail!("The server ended while starting ({status}). {}", tail_of_log(&self.launch.log));
            }
            if Instant::now() > deadline {
                bail!("The server was not ready within {within:?}. {}", tail_of_log(&self.launch.log));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Sends SIGKILL, and waits until the process is gone.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill().context("Failed to kill a server")?;
        self.child.wait().context("Failed to wait for a killed server")?;
        Ok(())
    }

    /// Sends SIGTERM, also to a stopped server, and waits for its end.
    pub fn shutdown(&mut self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)?;
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().context("Failed to look after a server")? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("The server did not shut down within {within:?}. {}", tail_of_log(&self.launch.log));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.launch.lifetime == Lifetime::WithOwner {
            // It may have ended already; then there is nothing to do.
            let _ = self.kill9();
        }
    }
}

/// The last lines of a server's log, for an error message.
pub(crate) fn tail_of_log(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(20).collect();
    let tail: Vec<&str> = lines.into_iter().rev().collect();
    iter::once("The end of its log:").chain(tail).collect::<Vec<_>>().join("\n  ")
}

/// Starts a program that the kernel kills when this process ends, however it ends.
///
/// # Errors
/// When it cannot be started; setpriv is in util-linux.
pub fn spawn_with_owner(program: &str, set_up: impl FnOnce(&mut Command)) -> Result<Child> {
    let mut command = Command::new(WITH_OWNER[0]);
    command.args(&WITH_OWNER[1..]).arg(program);
    set_up(&mut command);
    spawn_from_lasting_thread(command)
}

/// Starts a command on a thread that lives as long as the process. The kernel sends the death signal when the *thread*
/// that started the child ends, and the threads of tests and runtimes come and go.
fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    type Order = (Command, SyncSender<io::Result<Child>>);
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, orders) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in orders {
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, answer) = mpsc::sync_channel(1);
    spawner.send((command, reply)).map_err(|_| anyhow!("The thread that starts servers is gone"))?;
    Ok(answer.recv().context("The thread that starts servers gave no answer")??)
}
