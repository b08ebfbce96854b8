//! How the program ends: the only place that knows exit codes.

use std::{
    fmt,
    process::ExitCode,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use crate::{config::InvalidConfig, output::print_note};
use tidegate_compare::text::error_chain;
use tidegate_operations::{InvalidInput, order_place::ShardsAway};

/// The exit codes, for `tidegate --help`.
pub const EXIT_CODES_HELP: &str = "\
Exit codes:
  0  done; the answer is yes
  1  the answer is no: order refused, event rejected or not recorded in time, audit failed,
     both stores differ, doctor found errors, voucher is on sale already, migration refused, partitions not
     changed; no such order, entry or letter; worker not alive or not ready; a question was answered with no; nothing is on sale to pause, or only pauses by
     name are left to resume; a living worker has the entry in progress.
     Or a part of the work is left, each with its reason: letters, pending entries,
     consumers, entries that others hold. If the same command can succeed later, it says
     what to type
  2  wrong usage or configuration; a question, but no terminal and no --yes
  3  failed: a store could not be reached, or something unexpected happened. If a part was
     done by then, it says what, and how to continue
  4  worker: ended with a batch in progress, by the stop deadline or a second signal (it stays
     pending, nothing is lost); gate: by these, with callers unanswered (they may ask again)
  5  worker: another live worker has this name
  6  stopped by a signal before all was done; by a second one, in the middle of a step. It
     says how far it came and how to continue
  7  order wait: the order was refused
  8  order wait: the order was cancelled, or released before it was written
  9  order wait: the order was not paid in time, and has expired
  10 order wait: the order is among the dead letters
  11 order wait: the time was over, and the order is not there yet
  12 unknown: a partition or MySQL shard gave no answer; what is said is true of the others. admit: the order is
     admitted, but gate.wait_replicas replicas are not known to have it: ask again with the same --order";

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; where a question was asked, the answer is yes.
    Ok = 0,
    /// The question was answered, with no; or a part of what was meant is left.
    No = 1,
    /// Wrong usage or configuration; clap uses the same code.
    Usage = 2,
    /// A store could not be reached, or something unexpected happened.
    Failed = 3,
    /// The worker ended with a batch in progress: the stop deadline passed, or a second signal came. Or a gate ended so, with callers unanswered.
    DeadlinePassed = 4,
    /// Another live worker has this name.
    NameTaken = 5,
    /// A signal stopped a change before all of it was done.
    Stopped = 6,
    /// The order that was waited for was refused.
    OrderRefused = 7,
    /// The order that was waited for was cancelled or released.
    OrderCancelled = 8,
    /// The order that was waited for was not paid in time.
    OrderExpired = 9,
    /// The order that was waited for is among the dead letters.
    OrderDead = 10,
    /// The order that was waited for is not there yet.
    TimeOver = 11,
    /// A partition of the system gave no answer.
    Unknown = 12,
}

/// Who hears of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureOutput {
    /// The log, in its format, because programs read it.
    Log,
    /// Whoever typed the command: plain text on stderr.
    Person,
}

/// Arguments that contradict each other, which clap cannot see.
#[derive(Debug, thiserror::Error)]
pub struct WrongUsage(pub String);

impl fmt::Display for WrongUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Reports a failure, once, and turns the outcome into the exit code.
pub fn finish(outcome: anyhow::Result<Exit>, failure_output: FailureOutput) -> ExitCode {
    let exit = outcome.unwrap_or_else(|error| {
        report(&error, failure_output);
        exit_of(&error)
    });
    ExitCode::from(exit as u8)
}

/// How long a process that is done waits for its own threads.
const THREADS_END_WITHIN: Duration = Duration::from_secs(2);

/// Ends what still runs in the background. A thread that does not end is left to the end of the process: nobody waits for its work.
pub fn shut_down(runtime: Runtime) {
    let began = Instant::now();
    runtime.shutdown_timeout(THREADS_END_WITHIN);
    if began.elapsed() >= THREADS_END_WITHIN {
        tracing::warn!(waited = ?THREADS_END_WITHIN, "a thread has not ended: the process ends without it");
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
    // Before the log is set up there is only stderr.
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
