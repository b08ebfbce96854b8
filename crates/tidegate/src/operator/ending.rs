//! How work ends: whole, stopped, or failed. Whatever was done by then is told, with what to type for the rest.

use std::pin::pin;

use anyhow::Context;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{Outcome, Progress, Report};
use crate::{
    command_line::{CommandLine, Shell},
    exit::Exit,
    output::{OutputArgs, tell, told},
    signals::Signals,
};

/// What work is given.
#[derive(Debug)]
pub struct Job {
    /// Cancelled by a signal. For waits between steps, never around a step; see [`Job::is_stopped`].
    pub stop: CancellationToken,
    /// How far it is; to be told its total before it shows.
    pub progress: Progress,
}

impl Job {
    /// Whether to end after the step in hand, with [`End::Stopped`]. Ask before each step, when it is known that there
    /// is one.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// How far work came that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// To its end.
    Whole,
    /// [`Job::is_stopped`] was obeyed, and something is left.
    Stopped,
}

/// How work ended that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is done.
    Done,
    /// The stores refused it, or a part of it; the same again would not change that. The exit code is 1.
    Refused,
    /// A part is left, which the same again may do. The exit code is 1.
    Left,
}

/// How work ended, in every way.
#[derive(Debug)]
pub(super) enum Ended {
    Whole,
    Stopped,
    /// A second signal came, of this name.
    Aborted(&'static str),
    Failed(anyhow::Error),
}

/// Works until done. The first signal ends it after the step in hand, the second at once.
pub(super) async fn work_off(work: impl AsyncFnOnce(&Job) -> anyhow::Result<End>) -> Ended {
    let mut signals = match Signals::listen().context("Failed to listen to signals") {
        Ok(signals) => signals,
        Err(error) => return Ended::Failed(error),
    };
    let job = Job { stop: CancellationToken::new(), progress: Progress::new() };
    let mut work = pin!(work(&job));
    tokio::select! {
        end = &mut work => return end.into(),
        name = signals.next() => {
            job.progress.say(&format!("{name}: stopping after the step in hand; once more to stop at once"));
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

/// The end of a command, for the log and for whoever typed it.
#[derive(Debug)]
pub(super) struct Conclusion<'a, R> {
    /// What was done; None where that is not known.
    pub(super) report: Option<&'a R>,
    pub(super) ended: Ended,
    /// What to type for what is left.
    pub(super) go_on: CommandLine,
}

/// The report as JSON.
#[derive(Serialize)]
struct Told<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    /// A signal came before all was done.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    /// Why it ended before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// What to type for the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    go_on: Option<String>,
}

impl<R: Report> Conclusion<'_, R> {
    fn ending(&self) -> Ending {
        self.report.map_or(Ending::Done, R::ending)
    }

    pub(super) fn outcome(&self) -> Outcome {
        match (&self.ended, self.ending()) {
            (Ended::Failed(_), _) => Outcome::Failed,
            (Ended::Stopped | Ended::Aborted(_), _) => Outcome::Stopped,
            (Ended::Whole, Ending::Done) => Outcome::Done,
            (Ended::Whole, Ending::Refused | Ending::Left) => Outcome::Refused,
        }
    }

    /// Why it ended before its end, unless that was by a signal which waited for the step in hand.
    pub(super) fn error(&self) -> Option<String> {
        match &self.ended {
            Ended::Failed(error) => Some(told(error)),
            Ended::Aborted(name) => {
                let torn = self.report.map_or("the step in hand may be done or not", R::torn);
                Some(format!("stopped at once by a second {name}: {torn}"))
            }
            Ended::Whole | Ended::Stopped => None,
        }
    }

    /// What stands before the line to paste. None: there is nothing that it could do.
    fn lead(&self) -> Option<String> {
        let error = self.error().unwrap_or_default();
        match self.ended {
            Ended::Whole => {
                (self.ending() == Ending::Left).then(|| "A part is left. Later, go on with:".to_owned())
            }
            Ended::Stopped => Some("Stopped before all was done. Go on with:".to_owned()),
            Ended::Aborted(_) => Some(format!("error: {error}\nGo on with:")),
            Ended::Failed(_) => Some(format!("error: {error}\nWhen that is mended, go on with:")),
        }
    }

    /// Prints it, and answers with the exit code. A failure of which there is nothing to report is the error.
    pub(super) fn tell(self, output: Option<OutputArgs>) -> anyhow::Result<Exit> {
        let (outcome, error, lead) = (self.outcome(), self.error(), self.lead());
        if let (Ended::Failed(error), None) = (self.ended, self.report) {
            return Err(error);
        }
        let go_on = lead.map(|lead| (lead, Shell::here()));
        let line = go_on.as_ref().map(|(_, shell)| shell.line(&self.go_on));
        if let (Some(output), Some(report)) = (output, self.report) {
            let stopped = outcome == Outcome::Stopped;
            let told = Told { report, stopped, error, go_on: line.clone() };
            output.print(&told, |told| told.report.text())?;
        }
        if let (Some((lead, shell)), Some(line)) = (go_on, line) {
            // On a line of its own: it is to be pasted.
            tell(&format!("{lead}\n  {line}"));
            shell.note().inspect(|note| tell(note));
        }
        Ok(match outcome {
            Outcome::Began | Outcome::Done => Exit::Ok,
            Outcome::Refused => Exit::No,
            Outcome::Stopped => Exit::Stopped,
            Outcome::Failed => Exit::Failed,
        })
    }
}
