//! How every command goes that changes something: it reads, shows what it would do, asks, does it, says what it did, and
//! leaves two lines in the operators' log.
//!
//! A command brings a [`Plan`] (what it read) and a [`Report`] (what it did); [`Change::run`] does the rest, or
//! [`Change::run_in_steps`], where a part of the work may be done when it ends.

mod ending;
mod log;
mod progress;
mod question;
mod typed;

use clap::Args;
use serde::Serialize;
use serde_json::Value as Json;

use self::{
    ending::{Conclusion, Ended, work_off},
    log::Record,
    typed::Typed,
};
pub use self::{
    ending::{End, Ending, Job},
    log::{Line, OperatorLog, Outcome},
    progress::Progress,
};
use crate::{
    command_line::CommandLine,
    config::Settings,
    exit::Exit,
    output::{OutputArgs, tell},
};

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

    /// `command` with those of these flags that were given.
    fn typed(&self, command: CommandLine) -> CommandLine {
        self.output.typed(command.switch("--yes", self.yes).flag("--as", self.name.as_ref()))
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

/// What a command did, or has done so far. As JSON it is what the command prints.
pub trait Report: Serialize {
    /// For people.
    fn text(&self) -> String;

    /// The numbers for the log, as a JSON object: `json!({"deleted": 12})`.
    fn counts(&self) -> Json;

    /// How it ended, if the work came to its end.
    fn ending(&self) -> Ending {
        Ending::Done
    }

    /// What to type for what is left, without the flags of [`ChangeArgs`]. None: the same command again.
    fn go_on(&self) -> Option<CommandLine> {
        None
    }

    /// What a second signal may have left.
    fn torn(&self) -> &'static str {
        "the step in hand may be done or not"
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
    /// The work is one step: where it fails there is nothing to report.
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
        if let Some(exit) = self.is_answered(&plan)? {
            return Ok(exit);
        }
        let (record, mut report) = (self.begin().await, None);
        let ended = work_off(async |job: &Job| {
            report = Some(work(plan, job).await?);
            Ok(End::Whole)
        });
        let ended = ended.await;
        self.finish(record, report.as_ref(), ended).await
    }

    /// As [`Change::run`], for work of many steps, each of which is told to `report` as soon as it is done. Whichever way
    /// the work ends then, what was done by then is printed and logged, with what to type for the rest.
    ///
    /// # Errors
    /// When nobody can be asked, or stdout cannot be written to.
    pub async fn run_in_steps<P: Plan, R: Report>(
        &self,
        plan: P,
        mut report: R,
        work: impl AsyncFnOnce(P, &mut R, &Job) -> anyhow::Result<End>,
    ) -> anyhow::Result<Exit> {
        if let Some(exit) = self.is_answered(&plan)? {
            return Ok(exit);
        }
        let record = self.begin().await;
        let ended = work_off(async |job: &Job| work(plan, &mut report, job).await).await;
        self.finish(record, Some(&report), ended).await
    }

    /// Shows the plan, and asks. None: the work is to be done.
    fn is_answered<P: Plan>(&self, plan: &P) -> anyhow::Result<Option<Exit>> {
        let ChangeArgs { dry_run, yes, output, .. } = *self.args;
        let next = plan.next();
        if let Next::Nothing(exit) = next {
            output.print(plan, P::text)?;
            return Ok(Some(exit));
        }
        if dry_run {
            output.print(plan, |plan| format!("{}\nNothing was changed (dry run).", plan.text()))?;
            return Ok(Some(Exit::Ok));
        }
        if let Next::Ask(question) = next
            && !yes
            && !question::ask(&plan.text(), &question)?
        {
            tell("Nothing was changed.");
            return Ok(Some(Exit::No));
        }
        Ok(None)
    }

    /// The first of two lines of the log: without it, nobody would learn of a command that was killed.
    async fn begin(&self) -> Record {
        Record::begin(self.settings, Typed::here(self.args.who())).await
    }

    async fn finish<R: Report>(
        &self,
        record: Record,
        report: Option<&R>,
        ended: Ended,
    ) -> anyhow::Result<Exit> {
        let go_on = report.and_then(R::go_on).map(|command| self.args.typed(command));
        let go_on = go_on.unwrap_or_else(|| record.typed().again());
        let conclusion = Conclusion { report, ended, go_on };
        let counts = report.map_or(Json::Null, R::counts);
        record.end(conclusion.outcome(), &counts, conclusion.error().as_deref()).await;
        conclusion.tell(Some(self.args.output))
    }
}

/// Long work that changes nothing: it can be stopped, and is reported and gone on with as a change, but is neither asked
/// about nor logged. The report is printed where `output` says how.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn read_in_steps<R: Report>(
    output: Option<OutputArgs>,
    mut report: R,
    work: impl AsyncFnOnce(&mut R, &Job) -> anyhow::Result<End>,
) -> anyhow::Result<Exit> {
    let ended = work_off(async |job: &Job| work(&mut report, job).await).await;
    let go_on = report.go_on().unwrap_or_else(|| Typed::here(String::new()).again());
    Conclusion { report: Some(&report), ended, go_on }.tell(output)
}
