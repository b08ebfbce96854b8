//! The steps of every command that changes something: it reads, shows what it would do, asks, does the work, reports
//! it, and leaves two lines in the operators' log.
//!
//! A command brings a [`Plan`] (what it read) and a [`Report`] (what it did). [`Change::run`] does the rest, or
//! [`Change::run_in_steps`], if the command may end with a part of the work done.

mod ending;
mod progress;
mod question;

use clap::Args;
use serde_json::Value as Json;
use tidegate_compare::Job;
use tidegate_operations::{
    End, Next, Plan, Report, Stores,
    operator_log::{LoggedOperation, Record},
};

use self::ending::{Ended, EndedWork, run_until_stopped};
pub use self::{progress::ProgressBar, question::Together};
use crate::{
    command_line::CommandLine,
    exit::Exit,
    invocation::{self, Invocation},
    output::{OutputArgs, print_note},
};

/// The flags of every command that changes data.
#[derive(Args, Clone, Debug)]
pub struct ChangeArgs {
    /// Print what the command would do, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation; required if there is no terminal
    #[arg(long, short)]
    yes: bool,
    /// Your name as `tidegate log` shows it; by default USER@HOST
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
}

impl ChangeArgs {
    /// The name of the operator who runs the command.
    pub fn who(&self) -> String {
        self.name.clone().unwrap_or_else(invocation::account)
    }

    /// Whether the command must change nothing.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// The output arguments, which say how the command prints plans and reports.
    pub fn output(&self) -> OutputArgs {
        self.output
    }

    /// Adds the flags that were given to `command`.
    fn add_to(&self, command: CommandLine) -> CommandLine {
        self.output.add_to(command.switch("--yes", self.yes).flag("--as", self.name.as_ref()))
    }

    /// Whether an operator reads the plan before the work begins. If so, the plan may contain details that the work does
    /// not need.
    pub fn is_plan_read(&self) -> bool {
        self.dry_run || !self.yes
    }
}

/// A plan that can be shown to people.
pub trait PlanText: Plan {
    /// The text about the work that would be done, and why other work is left out.
    fn text(&self) -> String;

    /// Warnings for an operator who does not read the plan before it is carried out.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A report that can be shown to people.
pub trait ReportText: Report {
    /// The text about the work that was done.
    fn text(&self) -> String;

    /// The command line for the rest of the work, without the flags of [`ChangeArgs`]. None: the same command line.
    fn continue_with(&self) -> Option<CommandLine> {
        None
    }

    /// The command that shows the progress, if only waiting is left. It is printed instead of
    /// [`ReportText::continue_with`].
    fn look_with(&self) -> Option<CommandLine> {
        None
    }
}

/// A run of a command that changes data: its plan, its question, its work and its report.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    stores: &'a Stores,
    args: &'a ChangeArgs,
}

impl<'a> Change<'a> {
    /// Creates the run of a command that changes data in these stores, with the flags that the user typed.
    pub fn new(stores: &'a Stores, args: &'a ChangeArgs) -> Self {
        Self { stores, args }
    }

    /// Shows the plan or asks the operator, depending on the flags. Then does the work, which is a single step, and
    /// prints the report. Writes a line to the operators' log before and after the work. If the work fails, there is no
    /// report.
    ///
    /// The answer to a question may take long. The work must be correct, whatever has changed since the plan was made.
    ///
    /// # Errors
    /// When there is no terminal to ask on, or the work fails.
    pub async fn run<P: PlanText, R: ReportText>(
        &self,
        plan: P,
        work: impl AsyncFnOnce(P, &Job) -> anyhow::Result<R>,
    ) -> anyhow::Result<Exit> {
        if let Some(exit) = self.is_answered(&plan).await? {
            return Ok(exit);
        }
        let (record, mut report) = (self.begin().await, None);
        let ended = run_until_stopped(async |job: &Job| {
            report = Some(work(plan, job).await?);
            Ok(End::Whole)
        });
        let ended = ended.await;
        self.finish(record, report.as_ref(), ended).await
    }

    /// Does work of many steps, like [`Change::run`]. `report` counts the finished steps. Even if the work is stopped
    /// or fails, this function prints and logs the report, and prints the command line that does the remaining work.
    ///
    /// # Errors
    /// When there is no terminal to ask on, or stdout cannot be written to.
    pub async fn run_in_steps<P: PlanText, R: ReportText>(
        &self,
        plan: P,
        mut report: R,
        work: impl AsyncFnOnce(P, &mut R, &Job) -> anyhow::Result<End>,
    ) -> anyhow::Result<Exit> {
        if let Some(exit) = self.is_answered(&plan).await? {
            return Ok(exit);
        }
        let record = self.begin().await;
        let ended = run_until_stopped(async |job: &Job| work(plan, &mut report, job).await).await;
        self.finish(record, Some(&report), ended).await
    }

    /// Shows the plan, and asks. None: the work is to be done.
    async fn is_answered<P: PlanText>(&self, plan: &P) -> anyhow::Result<Option<Exit>> {
        let ChangeArgs { dry_run, yes, output, .. } = *self.args;
        let next = plan.next();
        let settled = match next {
            Next::NothingToDo => Some(Exit::Ok),
            Next::Refused => Some(Exit::No),
            Next::Go | Next::Ask(_) => None,
        };
        if let Some(exit) = settled {
            output.print(plan, P::text)?;
            return Ok(Some(exit));
        }
        if dry_run {
            output.print(plan, |plan| format!("{}\nNothing was changed (dry run).", plan.text()))?;
            return Ok(Some(Exit::Ok));
        }
        if let Next::Ask(question) = next
            && !yes
            && !question::ask(&plan.text(), &question).await?
        {
            return Ok(Some(Exit::No));
        }
        if yes {
            plan.warnings().iter().for_each(|warning| print_note(&format!("warning: {warning}")));
        }
        Ok(None)
    }

    /// Writes the first log line. If the log cannot be written to, the command warns about it and continues.
    async fn begin(&self) -> Option<Record> {
        let invocation = Invocation::current();
        let (command, arguments) = (invocation.command.clone(), invocation.quoted_arguments());
        let operation = LoggedOperation { who: self.args.who(), command, arguments };
        let log = self.stores.operator_log().await;
        let log = log
            .map_err(|error| {
                print_note(&format!("warning: `tidegate log` will not show this command: {error:#}"))
            })
            .ok()?;
        let mut record = Record::of(log, operation);
        warn_of_gap(record.begin().await);
        Some(record)
    }

    async fn finish<R: ReportText>(
        &self,
        record: Option<Record>,
        report: Option<&R>,
        ended: Ended,
    ) -> anyhow::Result<Exit> {
        let look_with = report.and_then(R::look_with).map(|command| self.args.output.add_to(command));
        let continue_with = report.and_then(R::continue_with).map(|command| self.args.add_to(command));
        let continue_with = look_with.or(continue_with);
        let continue_with = continue_with.unwrap_or_else(|| Invocation::current().again());
        let ended = EndedWork { report, ended, continue_with };
        let counts = report.map_or(Json::Null, R::counts);
        if let Some(record) = record {
            warn_of_gap(record.end(ended.outcome(), &counts, ended.error().as_deref()).await);
        }
        ended.print(Some(self.args.output))
    }
}

/// Prints a warning if a line of the operator log could not be written.
fn warn_of_gap(written: anyhow::Result<()>) {
    if let Err(error) = written {
        print_note(&format!("warning: a log line of this command is missing in `tidegate log`: {error:#}"));
    }
}

/// Does long work that changes nothing. The work can be stopped and continued like a change, but without a question and
/// without lines in the operators' log. `output` says how to print the report.
///
/// # Errors
/// When stdout cannot be written to.
pub async fn read_in_steps<R: ReportText>(
    output: Option<OutputArgs>,
    mut report: R,
    work: impl AsyncFnOnce(&mut R, &Job) -> anyhow::Result<End>,
) -> anyhow::Result<Exit> {
    let ended = run_until_stopped(async |job: &Job| work(&mut report, job).await).await;
    let continue_with = report.continue_with().unwrap_or_else(|| Invocation::current().again());
    EndedWork { report: Some(&report), ended, continue_with }.print(output)
}
