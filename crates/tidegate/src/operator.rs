//! How every command goes that changes something: it reads, shows what it would do, asks, does it, says what it did, and
//! leaves two lines in the operators' log.
//!
//! A command brings a [`Plan`] (what it read) and a [`Report`] (what it did); [`Change::run`] does the rest.

mod log;
mod progress;
mod question;
mod typed;

use std::pin::pin;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::Value as Json;
use tokio_util::sync::CancellationToken;

use self::{log::Record, typed::Typed};
pub use self::{
    log::{Line, OperatorLog, Outcome},
    progress::Progress,
};
use crate::{config::Settings, exit::Exit, output::OutputArgs, signals::Signals};

/// The flags of every command that changes something.
#[derive(Args, Clone, Debug)]
pub struct ChangeArgs {
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do it without asking; needed where there is no terminal to ask on
    #[arg(long, short)]
    yes: bool,
    /// Who does this, for `tidegate log`; USER@HOST by default
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ChangeArgs {
    /// Who does this.
    pub fn who(&self) -> String {
        self.name.clone().unwrap_or_else(typed::who)
    }

    /// Somebody reads the plan before anything is done: it may say more than is needed to do it.
    pub fn is_plan_read(&self) -> bool {
        self.dry_run || !self.yes
    }
}

/// What a command has read and would do. As JSON it is what a dry run prints.
pub trait Plan: Serialize {
    /// For people: what would be done, and why no more.
    fn text(&self) -> String;

    /// What comes next.
    fn next(&self) -> Next;
}

/// What comes after reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// There is nothing to do, or it must not be done: the plan is the answer, and the program ends like this.
    Nothing(Exit),
    /// Its name says it all: nobody is asked.
    Go,
    /// It destroys or surprises: this is asked, such as `Delete 12 entries of stream.orders?`.
    Ask(String),
}

/// What a command did. As JSON it is what the command prints.
pub trait Report: Serialize {
    /// For people.
    fn text(&self) -> String;

    /// The numbers for the log, as a JSON object: `json!({"deleted": 12})`.
    fn counts(&self) -> Json;

    /// How it ended.
    fn ending(&self) -> Ending {
        Ending::Done
    }
}

/// How a change ended that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is done.
    Done,
    /// The stores refused it after all, or a part of it: the exit code is 1.
    Refused,
    /// [`Job::is_stopped`] was obeyed before all was done. What to type to go on with the rest.
    Stopped {
        /// Such as `tidegate replay --from 1718000000000-0`.
        go_on: String,
    },
    /// It failed when a part was done, which the report tells of: the exit code is 3.
    Failed {
        /// Why.
        error: String,
        /// What to type to go on with the rest.
        go_on: String,
    },
}

/// What the work of a change is given.
#[derive(Debug)]
pub struct Job {
    /// Cancelled by a signal. For waits between steps, never around a step; see [`Job::is_stopped`].
    pub stop: CancellationToken,
    /// How far it is; to be told its total before it shows.
    pub progress: Progress,
}

impl Job {
    /// Whether to end after the step in hand, with [`Ending::Stopped`]. Ask between any two steps.
    pub fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }
}

/// A command that changes something.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    settings: &'a Settings,
    args: &'a ChangeArgs,
}

impl<'a> Change<'a> {
    /// With the flags that were typed.
    pub fn new(settings: &'a Settings, args: &'a ChangeArgs) -> Self {
        Self { settings, args }
    }

    /// Shows the plan or asks, as the flags say; then does the work between two lines of the log, and prints the report.
    ///
    /// The answer to a question may take its time: the work has to hold whatever has changed since the plan was made.
    ///
    /// # Errors
    /// When nobody can be asked, or the work fails.
    pub async fn run<P: Plan, R: Report>(
        &self,
        plan: P,
        work: impl AsyncFnOnce(P, &Job) -> anyhow::Result<R>,
    ) -> anyhow::Result<Exit> {
        let ChangeArgs { dry_run, yes, output, .. } = *self.args;
        let next = plan.next();
        if let Next::Nothing(exit) = next {
            output.print(&plan, P::text)?;
            return Ok(exit);
        }
        if dry_run {
            output.print(&plan, |plan| format!("{}\nNothing was changed (dry run).", plan.text()))?;
            return Ok(Exit::Ok);
        }
        if let Next::Ask(question) = next
            && !yes
            && !question::ask(&plan.text(), &question)?
        {
            eprintln!("Nothing was changed.");
            return Ok(Exit::No);
        }
        let report = self.recorded(plan, work).await?;
        output.print(&report, R::text)?;
        Ok(match report.ending() {
            Ending::Done => Exit::Ok,
            Ending::Refused => Exit::No,
            Ending::Stopped { go_on } => {
                eprintln!("Stopped before all was done. Go on with: {go_on}");
                Exit::Stopped
            }
            Ending::Failed { error, go_on } => {
                eprintln!("error: {error}. When that is mended, go on with: {go_on}");
                Exit::Failed
            }
        })
    }

    /// The work between two lines of the log: without the first, nobody would learn of a command that was killed.
    async fn recorded<P, R: Report>(
        &self,
        plan: P,
        work: impl AsyncFnOnce(P, &Job) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let record = Record::begin(self.settings, Typed::here(self.args.who())).await;
        let ended = stoppable(plan, work).await;
        let (outcome, counts, error) = match &ended {
            Ok(report) => {
                let ending = report.ending();
                let error = match &ending {
                    Ending::Failed { error, .. } => Some(error.clone()),
                    _ => None,
                };
                (ending.into(), report.counts(), error)
            }
            Err(error) => (Outcome::Failed, Json::Null, Some(format!("{error:#}"))),
        };
        record.end(outcome, &counts, error.as_deref()).await;
        ended
    }
}

impl From<Ending> for Outcome {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Done => Self::Done,
            Ending::Refused => Self::Refused,
            Ending::Stopped { .. } => Self::Stopped,
            Ending::Failed { .. } => Self::Failed,
        }
    }
}

/// Whoever did not wait for the end of the step in hand.
#[derive(Debug, thiserror::Error)]
#[error("stopped at once by a second {0}: the step in hand may be done or not")]
pub struct Aborted(&'static str);

/// Works until done. The first signal ends it after the step in hand, the second at once.
async fn stoppable<P, R>(plan: P, work: impl AsyncFnOnce(P, &Job) -> anyhow::Result<R>) -> anyhow::Result<R> {
    let mut signals = Signals::listen().context("Failed to listen to signals")?;
    let job = Job { stop: CancellationToken::new(), progress: Progress::new() };
    let mut work = pin!(work(plan, &job));
    tokio::select! {
        ended = &mut work => return ended,
        name = signals.next() => {
            job.progress.say(&format!("{name}: stopping after the step in hand; once more to stop at once"));
            job.stop.cancel();
        }
    }
    tokio::select! {
        ended = work => ended,
        name = signals.next() => Err(Aborted(name).into()),
    }
}
