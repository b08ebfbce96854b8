//! The output of `tidegate export` and `tidegate dead export`: the target of the lines, the report, and the command to
//! continue.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};
use tidegate_orders::RedisStore;

use anyhow::Context;
use clap::Args;
use tidegate_compare::{Job, text::counted};
use tidegate_operations::{
    System, SystemSettings, connect,
    export::{Export, ExportReport, ExportSelection, ExportTarget},
    selection::EntrySelection,
};

use crate::{
    command_line::CommandLine,
    exit::Exit,
    operator::{ReportText, read_in_steps},
    output::OutputArgs,
    selection, times,
};

/// The arguments for the output of an export.
#[derive(Args, Clone, Debug)]
pub struct LinesArgs {
    /// Write to this file, which must not exist; stdout by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Connects to Redis in all partitions, or fails. If a partition were left out, its orders would be missing in the
/// export without a warning.
///
/// # Errors
/// The partition that cannot be reached.
pub async fn connect(system: &System) -> anyhow::Result<Vec<(SystemSettings, RedisStore)>> {
    let mut connected = Vec::new();
    for settings in system.partitions() {
        let redis = connect::redis(settings).await;
        let redis = match settings.partition().tag() {
            None => redis?,
            Some(tag) => redis.with_context(|| {
                format!("Partition {{{tag}}} gives no answer; to export another partition alone, add --partition TAG")
            })?,
        };
        connected.push((settings.clone(), redis));
    }
    Ok(connected)
}

/// Exports the selected entries as lines.
///
/// # Errors
/// When Redis does not answer, its key holds no stream, the file exists already, or the report cannot be printed.
pub async fn run(
    partitions: &[(SystemSettings, RedisStore)],
    selection: ExportSelection,
    args: &LinesArgs,
) -> anyhow::Result<Exit> {
    let target = match args.out.clone() {
        Some(path) => ExportTarget::File(path),
        None => ExportTarget::Writer { writer: Box::new(io::stdout()), name: "stdout" },
    };
    let export = Export::open(partitions, selection, target).await?;
    let (report, total) = (export.report(), export.total());
    let is_seen = args.out.is_none() && io::stdout().is_terminal();
    // The report must not be mixed with the lines.
    let output = args.out.is_some().then_some(args.output);
    let work = async |report: &mut ExportReport, job: &Job| {
        if !is_seen {
            job.progress.expect(total, "entries, at most");
        }
        let end = export.run(report, job).await?;
        if report.is_empty && args.out.is_none() {
            job.progress.say(&report.text());
        }
        Ok(end)
    };
    read_in_steps(output, report, work).await
}

impl ReportText for ExportReport {
    fn text(&self) -> String {
        if self.is_empty {
            let no_file = if self.out.is_some() { ", so no file was written" } else { "" };
            return format!("{}: {}{no_file}", self.stream, nothing_of(&self.selection));
        }
        let out = self.out.as_ref().map(|out| out.display().to_string()).unwrap_or_default();
        let events = match self.events {
            0 => String::new(),
            events => format!(", {} among them", counted(events, "event")),
        };
        format!("{out}: {} of {} written{events}", counted(self.entries, "entry"), self.stream)
    }

    fn continue_with(&self) -> Option<CommandLine> {
        Some(typed(&self.rest).append_to(self.out.clone()))
    }
}

/// A note that no entry or letter is selected.
fn nothing_of(exported: &ExportSelection) -> String {
    let ExportSelection::Entries(EntrySelection { first, last, filter }) = exported else {
        return "no dead letter is selected".to_owned();
    };
    let of = |what: &str, id: Option<String>| id.map(|id| format!(" of {what} {id}")).unwrap_or_default();
    let (voucher, user) = (filter.voucher.map(|id| id.to_string()), filter.user.map(|id| id.to_string()));
    let between = times::nothing_between(Some(*first), Some(*last));
    format!("{between}{}{}", of("voucher", voucher), of("user", user))
}

/// The command line that would make this export again.
pub fn typed(exported: &ExportSelection) -> CommandLine {
    match exported {
        ExportSelection::Entries(EntrySelection { first, last, filter: only }) => {
            let command = CommandLine::new("export").flag("--from", Some(first)).flag("--to", Some(last));
            selection::typed(*only, command)
        }
        ExportSelection::Letters(letters) => {
            selection::letters::typed(letters, CommandLine::new("dead export"))
        }
    }
}
