//! The ways in which work ends: complete, stopped, or failed. In each case, the command prints what was done by then,
//! and the command for the rest.

use std::pin::pin;

use anyhow::Context;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use tidegate_compare::{Job, text::error_chain};
use tidegate_operations::{End, Ending, operator_log::CommandOutcome};

use super::{ProgressBar, ReportText};
use crate::{
    command_line::CommandLine,
    exit::Exit,
    invocation::Invocation,
    output::{OutputArgs, print_note},
    signals::Signals,
};

/// How work ended, with the signal or the error.
#[derive(Debug)]
pub(super) enum Ended {
    Whole,
    Stopped,
    /// A second signal came. The value is the name of the signal.
    Aborted(&'static str),
    Failed(anyhow::Error),
}

/// Runs the work until it is done. The first signal ends it after the step in progress, the second signal at once.
pub(super) async fn run_until_stopped(work: impl AsyncFnOnce(&Job) -> anyhow::Result<End>) -> Ended {
    let mut signals = match Signals::listen().context("Failed to set up the signal handlers") {
        Ok(signals) => signals,
        Err(error) => return Ended::Failed(error),
    };
    let job = Job { stop: CancellationToken::new(), progress: Box::new(ProgressBar::new()) };
    let mut work = pin!(work(&job));
    tokio::select! {
        end = &mut work => return end.into(),
        name = signals.next() => {
            job.progress.say(&format!("{name}: stopping after the step in progress; a second signal stops at once"));
            job.stop.cancel();
        }
    }
    tokio::select! {
        end = work => end.into(),
        name = signals.next() => Ended::Aborted(name),
    }
}

impl From<anyhow::Result<End>> for Ended {
    fn from(end: anyhow::Result<End>) -> Self {
        match end {
            Ok(End::Whole) => Self::Whole,
            Ok(End::Stopped) => Self::Stopped,
            Err(error) => Self::Failed(error),
        }
    }
}

/// Work that has ended, for the log and for the person who typed the command.
#[derive(Debug)]
pub(super) struct EndedWork<'a, R> {
    /// The report of the work that was done; None if there is no report.
    pub(super) report: Option<&'a R>,
    pub(super) ended: Ended,
    /// The command for the rest of the work.
    pub(super) continue_with: CommandLine,
}

/// The report as JSON, with how the work ended.
#[derive(Serialize)]
struct ReportJson<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    /// Whether a signal came before all work was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    /// The reason why the work ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The command for the rest of the work.
    #[serde(rename = "go_on", skip_serializing_if = "Option::is_none")]
    continue_with: Option<String>,
}

impl<R: ReportText> EndedWork<'_, R> {
    fn ending(&self) -> Ending {
        self.report.map_or(Ending::Done, R::ending)
    }

    pub(super) fn outcome(&self) -> CommandOutcome {
        match (&self.ended, self.ending()) {
            (Ended::Failed(_), _) => CommandOutcome::Failed,
            (Ended::Stopped | Ended::Aborted(_), _) => CommandOutcome::Stopped,
            (Ended::Whole, Ending::Done) => CommandOutcome::Done,
            (Ended::Whole, Ending::Partly) => CommandOutcome::Partly,
            (Ended::Whole, Ending::Refused | Ending::Left) => CommandOutcome::Refused,
        }
    }

    /// The reason why the work ended early. None if a signal ended it after the step in progress.
    pub(super) fn error(&self) -> Option<String> {
        match &self.ended {
            Ended::Failed(error) => Some(error_chain(error)),
            Ended::Aborted(name) => {
                let torn = self.report.map_or("the interrupted step may or may not be done", R::torn);
                Some(format!("a second {name} stopped the command at once: {torn}"))
            }
            Ended::Whole | Ended::Stopped => None,
        }
    }

    /// The text before the command line to paste. None: no work is left.
    fn introduction(&self) -> Option<String> {
        let error = self.error().unwrap_or_default();
        match self.ended {
            Ended::Whole => (self.ending() == Ending::Left)
                .then(|| "A part of the work is left. Later, go on with:".to_owned()),
            Ended::Stopped => Some("Stopped before all was done. Go on with:".to_owned()),
            Ended::Aborted(_) => Some(format!("error: {error}\nGo on with:")),
            Ended::Failed(_) => Some(format!("error: {error}\nAfter you have fixed that, go on with:")),
        }
    }

    /// Prints the ended work, and returns the exit code. If the work failed and there is nothing to report, the failure
    /// is returned as the error.
    pub(super) fn print(self, output: Option<OutputArgs>) -> anyhow::Result<Exit> {
        let (outcome, error, introduction) = (self.outcome(), self.error(), self.introduction());
        if let (Ended::Failed(error), None) = (self.ended, self.report) {
            return Err(error);
        }
        let invocation = Invocation::current();
        let line = invocation.line(&self.continue_with);
        if let (Some(output), Some(report)) = (output, self.report) {
            let stopped = outcome == CommandOutcome::Stopped;
            let continue_with = introduction.as_ref().map(|_| line.clone());
            let printed = output
                .print(&ReportJson { report, stopped, error, continue_with }, |json| json.report.text());
            // A reader who sees only a failure to print would do the work again.
            printed.context(match outcome {
                CommandOutcome::Done => "All work was done, but the report could not be printed",
                _ => "A part of the work was done, but the report could not be printed",
            })?;
        }
        if let Some(introduction) = introduction {
            // The command is on a line of its own, so that it can be pasted.
            print_note(&format!("{introduction}\n  {line}"));
            invocation.note().inspect(|note| print_note(note));
        }
        Ok(match outcome {
            CommandOutcome::Began | CommandOutcome::Done => Exit::Ok,
            CommandOutcome::Partly | CommandOutcome::Refused => Exit::No,
            CommandOutcome::Stopped => Exit::Stopped,
            CommandOutcome::Failed => Exit::Failed,
        })
    }
}
