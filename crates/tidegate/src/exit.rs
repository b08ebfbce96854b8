//! The exit codes of the program, which no other module knows.

use std::{
    fmt,
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{config::InvalidConfig, output::print_note};
use tidegate_compare::text::error_chain;
use tidegate_operations::{InvalidInput, order_partition::ShardsAway};

/// The exit codes, as `tidegate --help` prints them.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0  done; the answer is yes
  1  the answer is no: order refused, event rejected or not recorded in time, audit failed,
     Redis and MySQL differ, doctor found errors, voucher is on sale already, migration
     refused, partitions not changed; no such order, entry or dead letter; worker not alive
     or not ready; you answered a question with no; there is no sale to pause or to resume;
     a living worker has the entry in progress.
     Or a part of the work is left: letters, pending entries, consumers, locked entries. The
     command prints the reasons. If you can run it again later, it prints the command line
  2  wrong usage or configuration; or a question without a terminal and without --yes
  3  failed: a store could not be reached, or an unexpected error occurred. If a part of the
     work was done, the command prints this part, and how to continue
  4  worker: stop deadline or second signal with a batch in progress (it stays pending,
     nothing is lost); gate: the same with unanswered clients (they may retry)
  5  worker: another live worker has this name
  6  stopped by a signal before all work was done. A second signal stops the command at once,
     in the middle of a step. The command prints what it has done and how to continue
  7  order wait: the order was refused
  8  order wait: the order was cancelled or refunded, or released before it was written
  9  order wait: the order was not paid in time, and has expired
  10 order wait: the order is among the dead letters
  11 order wait: the order was still waiting when the time ended
  12 unknown: a partition or MySQL shard gave no answer, and is missing in the output.
     admit: the order is admitted, but too few replicas (gate.wait_replicas) confirmed it:
     run the command again with the same --order";

/// The way in which a command ended, with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command is done; where a question was asked, the answer is yes.
    Ok = 0,
    /// The answer of the command is no, or a part of the work is left.
    No = 1,
    /// Wrong usage or configuration; clap uses the same code.
    Usage = 2,
    /// A store could not be reached, or an unexpected error occurred.
    Failed = 3,
    /// The worker ended with a batch in progress, because the stop deadline passed or a second signal came. Or a gate
    /// ended in this way, with clients unanswered.
    DeadlinePassed = 4,
    /// Another live worker has the same name.
    NameTaken = 5,
    /// A signal stopped a change before all of it was done.
    Stopped = 6,
    /// The order that `order wait` waited for was refused.
    OrderRefused = 7,
    /// The order that `order wait` waited for was cancelled or released.
    OrderCancelled = 8,
    /// The order that `order wait` waited for was not paid in time.
    OrderExpired = 9,
    /// The order that `order wait` waited for is among the dead letters.
    OrderDead = 10,
    /// The order that `order wait` waited for did not reach the state in time.
    TimeOver = 11,
    /// A partition of the system gave no answer.
    Unknown = 12,
}

/// The place where a failure is reported: the log or stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutput {
    /// The failure is a line in the log, in the format of the log.
    Log,
    /// The failure is plain text on stderr, for the person who typed the command.
    Person,
}

/// The error for arguments that contradict each other in a way that clap cannot check.
#[derive(Debug, thiserror::Error)]
pub struct WrongUsage(pub String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reports a failure of the command, and converts the result of the command to the exit code.
pub fn finish(outcome: anyhow::Result<Exit>, failure_output: FailureOutput) -> ExitCode {
    let exit = outcome.unwrap_or_else(|error| {
        report(&error, failure_output);
        exit_of(&error)
    });
    ExitCode::from(exit as u8)
}

/// The time for which a finished process waits for its own threads.
const THREADS_END_WITHIN: Duration = Duration::from_secs(2);

/// Stops the background tasks and the runtime. If a thread does not end in time, the process exits without waiting for
/// the thread.
pub fn shut_down(runtime: Runtime) {
    let began = Instant::now();
    runtime.shutdown_timeout(THREADS_END_WITHIN);
    if began.elapsed() >= THREADS_END_WITHIN {
        tracing::warn!(waited = ?THREADS_END_WITHIN, "a thread has not ended in time: the process exits anyway");
    }
}

fn exit_of(error: &anyhow::Error) -> Exit {
    let is_usage = error.is::<InvalidConfig>() || error.is::<WrongUsage>() || error.is::<InvalidInput>();
    match is_usage {
        true => Exit::Usage,
        false if error.is::<ShardsAway>() => Exit::Unknown,
        false => Exit::Failed,
    }
}

fn report(error: &anyhow::Error, failure_output: FailureOutput) {
    // Before the log is set up, there is only stderr.
    if failure_output == FailureOutput::Log && tracing::dispatcher::has_been_set() {
        tracing::error!("{}", error_chain(error));
    } else {
        print_note(&format!("error: {}", error_chain(error)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_does_not_end_keeps_no_process_alive() {
        let runtime = Runtime::new().unwrap();
        let (release, released) = mpsc::channel::<()>();
        let (begin, begun) = mpsc::channel();
        runtime.spawn(async move {
            begin.send(()).unwrap();
            released.recv()
        });
        begun.recv().unwrap();
        shut_down(runtime);
        drop(release);
    }
}
