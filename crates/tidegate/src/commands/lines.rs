//! What the exports have in common: pages of lines, to stdout or to a new file, until the end or Ctrl-C.

use std::{
    fs::File,
    io::{self, ErrorKind, IsTerminal, Write},
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use crate::{
    command_line::CommandLine,
    exit::{Exit, WrongUsage},
    operator::{End, Ending, Job, Report, read_in_steps},
    output::{OutputArgs, counted},
};

/// Where the lines go.
#[derive(Args, Clone, Debug)]
pub struct LinesArgs {
    /// Write to this file, which must not be there; stdout by default
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is exported.
pub trait Pages {
    /// The next page; None at the end.
    async fn next(&mut self) -> anyhow::Result<Option<Lines>>;

    /// What to type for all that comes after the pages so far. There must be anything.
    fn rest(&self) -> CommandLine;
}

/// A page.
#[derive(Debug)]
pub struct Lines {
    /// Whole lines.
    pub text: String,
    /// How many.
    pub count: u64,
    /// How much was looked at for them.
    pub looked_at: u64,
    /// What was asked for by its id and is not there.
    pub missing: Vec<String>,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Exported {
    stream: String,
    out: Option<PathBuf>,
    entries: u64,
    missing: Vec<String>,
    #[serde(skip)]
    rest: CommandLine,
}

impl Report for Exported {
    fn text(&self) -> String {
        let out = self.out.as_ref().map(|out| out.display().to_string()).unwrap_or_default();
        format!("{out}: {} of {} written", counted(self.entries, "entry"), self.stream)
    }

    fn counts(&self) -> Json {
        json!({ "entries": self.entries })
    }

    fn ending(&self) -> Ending {
        if self.missing.is_empty() { Ending::Done } else { Ending::Refused }
    }

    fn go_on(&self) -> Option<CommandLine> {
        Some(self.rest.clone().append_to(self.out.clone()))
    }

    fn torn(&self) -> &'static str {
        "its last line may be cut off, look before anything is appended"
    }
}

/// Writes all pages of `stream`, of which `total` entries are looked at, at most.
///
/// # Errors
/// When the file is there already, or the report cannot be printed.
pub async fn export(
    args: &LinesArgs,
    (stream, total): (String, u64),
    mut pages: impl Pages,
) -> anyhow::Result<Exit> {
    let out = Out::open(args.out.as_deref())?;
    let rest = pages.rest();
    let report = Exported { stream, out: args.out.clone(), entries: 0, missing: Vec::new(), rest };
    let is_seen = args.out.is_none() && io::stdout().is_terminal();
    // What is printed about it must not stand among the lines.
    let output = args.out.is_some().then_some(args.output);
    let work = async |done: &mut Exported, job: &Job| {
        if !is_seen {
            job.progress.expect(total, "entries, at most");
        }
        let (out, ended) = write_all(&mut pages, out, done, job).await;
        // What is written is to last, also if the rest could not be read.
        if let Some(out) = out {
            on_thread(|| out.finish()).await?;
        }
        ended
    };
    read_in_steps(output, report, work).await
}

/// Answers with None for the output where nobody reads it any more, or the last page did not get through.
async fn write_all(
    pages: &mut impl Pages,
    mut out: Out,
    done: &mut Exported,
    job: &Job,
) -> (Option<Out>, anyhow::Result<End>) {
    loop {
        done.rest = pages.rest();
        let page = match pages.next().await {
            Ok(Some(_)) if job.is_stopped() => return (Some(out), Ok(End::Stopped)),
            Ok(Some(page)) => page,
            Ok(None) => return (Some(out), Ok(End::Whole)),
            Err(error) => return (Some(out), Err(error)),
        };
        for missing in &page.missing {
            job.progress.say(&format!("{} holds no {missing}", done.stream));
        }
        done.missing.extend(page.missing);
        let text = page.text;
        // Not here: a signal must be heard while the other end of a pipe stands still.
        let (back, written) = on_thread(move || {
            let written = out.write(&text);
            (out, written)
        })
        .await;
        match written {
            Ok(true) => out = back,
            Ok(false) => return (None, Ok(End::Whole)),
            Err(error) => return (None, Err(error)),
        }
        done.entries += page.count;
        job.progress.add(page.looked_at);
    }
}

/// On a thread for which nobody waits when the program ends.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel();
    thread::spawn(move || _ = sender.send(work()));
    done.await.expect("it does not panic")
}

/// Where the lines go.
enum Out {
    Stdout,
    File {
        file: File,
        path: PathBuf,
        /// Its length after the last whole page.
        length: u64,
    },
}

impl Out {
    fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self::Stdout) };
        match File::create_new(path) {
            Ok(file) => Ok(Self::File { file, path: path.to_owned(), length: 0 }),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Err(WrongUsage(format!("{} is there already, and is not written over", path.display()))
                    .into())
            }
            Err(error) => Err(error).with_context(|| format!("Failed to make {}", path.display())),
        }
    }

    /// Writes whole lines. Answers whether anybody still reads.
    fn write(&mut self, lines: &str) -> anyhow::Result<bool> {
        match self {
            Self::Stdout => match io::stdout().write_all(lines.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
                written => {
                    written.context("Failed to write to stdout, the last line may be cut off").map(|()| true)
                }
            },
            Self::File { file, path, length } => {
                if let Err(error) = file.write_all(lines.as_bytes()) {
                    // The rest is to be appended: to a whole line.
                    let cut = file.set_len(*length).and_then(|()| file.sync_all());
                    let cut = if cut.is_ok() { "" } else { ", its last line may be cut off" };
                    return Err(error).with_context(|| format!("Failed to write to {}{cut}", path.display()));
                }
                *length += lines.len() as u64;
                Ok(true)
            }
        }
    }

    /// To the disk: the stream may be trimmed next.
    fn finish(self) -> anyhow::Result<()> {
        match self {
            Self::Stdout => Ok(io::stdout().flush().or_else(is_gone)?),
            Self::File { file, path, .. } => {
                file.sync_all().with_context(|| format!("Failed to write to {}", path.display()))
            }
        }
    }
}

/// A reader who went away early (`| head`) is no failure.
fn is_gone(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}
