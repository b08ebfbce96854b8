//! Entries of the stream, or dead letters, as lines of JSON: page by page, to a new file or to a writer. Those of several partitions
//! come by their ids.

mod merged;
mod out;

use std::path::{Path, PathBuf};
use tidegate_orders::{DeadLetters, RedisStore};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_compare::Job;

pub use self::out::ExportTarget;
use self::{
    merged::{Merged, Pages, Source},
    out::{Out, on_thread},
};
use crate::{
    change::{End, Ending, Report},
    dead_letters::LetterSelection,
    selection::{EntrySelection, StreamPages},
    settings::SystemSettings,
};

/// What is exported.
#[derive(Clone, Debug)]
pub enum ExportSelection {
    /// Entries of the stream.
    Entries(EntrySelection),
    /// Dead letters.
    Letters(LetterSelection),
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// The stream that was read.
    pub stream: String,
    /// The new file, which is not there where nothing was written; None: the lines went to a writer.
    pub out: Option<PathBuf>,
    /// Lines that were written.
    pub entries: u64,
    /// Of these, the ones that say what happened to an order.
    pub events: u64,
    /// What was asked for by its id and is not there.
    pub missing: Vec<String>,
    /// All was looked at, and nothing was to be written.
    #[serde(skip)]
    pub is_empty: bool,
    /// What was asked for.
    #[serde(skip)]
    pub selection: ExportSelection,
    /// What to export to go on.
    #[serde(skip)]
    pub rest: ExportSelection,
}

impl Report for ExportReport {
    fn counts(&self) -> Json {
        json!({ "entries": self.entries, "events": self.events })
    }

    fn ending(&self) -> Ending {
        if self.missing.is_empty() { Ending::Done } else { Ending::Refused }
    }

    fn torn(&self) -> &'static str {
        "its last line may be cut off, look before anything is appended"
    }
}

/// An export that can be run.
pub struct Export {
    stream: String,
    total: u64,
    selection: ExportSelection,
    pages: Merged,
    out: Out,
}

impl Export {
    /// Looks how much there is, and makes the file. What comes into the stream from now on is not meant: an export would
    /// never end.
    ///
    /// # Errors
    /// When Redis does not answer, its key holds no stream, the file cannot be made, or it is there already.
    pub async fn open(
        partitions: &[(SystemSettings, RedisStore)],
        selection: ExportSelection,
        target: ExportTarget,
    ) -> anyhow::Result<Self> {
        let (mut streams, mut total, mut sources) = (Vec::new(), 0, Vec::new());
        for (settings, redis) in partitions {
            let (stream, length, pages) = begin(settings, redis.clone(), selection.clone()).await?;
            streams.push(stream);
            total += length;
            sources.push(Source::new(settings.partition(), pages));
        }
        let limit = match &selection {
            ExportSelection::Entries(_) => None,
            ExportSelection::Letters(letters) => letters.limit,
        };
        let (stream, pages) = (streams.join(", "), Merged::new(sources, limit));
        Ok(Self { stream, total, selection, pages, out: Out::open(target)? })
    }

    /// Entries that are looked at, at most.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A report of nothing, for [`Export::run`].
    pub fn report(&self) -> ExportReport {
        let (stream, out) = (self.stream.clone(), self.out.path().map(Path::to_owned));
        let (selection, rest) = (self.selection.clone(), self.pages.rest());
        let missing = Vec::new();
        ExportReport { stream, out, entries: 0, events: 0, missing, is_empty: false, selection, rest }
    }

    /// Writes all pages.
    ///
    /// # Errors
    /// When Redis does not answer, or the lines cannot be written; the report holds what was written, and what is left.
    pub async fn run(self, report: &mut ExportReport, job: &Job) -> anyhow::Result<End> {
        let Self { mut pages, out, .. } = self;
        let (out, ended) = write_all(&mut pages, out, report, job).await;
        // What is written is to last, also if the rest could not be read.
        if let Some(out) = out {
            on_thread(|| out.finish()).await?;
        }
        ended
    }
}

/// Begins to read what is selected of one stream: its name, how much is looked at for it at most, and its pages.
async fn begin(
    settings: &SystemSettings,
    redis: RedisStore,
    selection: ExportSelection,
) -> anyhow::Result<(String, u64, Pages)> {
    Ok(match selection {
        ExportSelection::Entries(selection) => {
            let inspector = redis.inspector().clone();
            let stream = settings.stream_names().stream;
            let end = inspector.last_id(&stream).await.context("Failed to read the stream")?;
            let selection = EntrySelection { last: selection.last.min(end), ..selection };
            let total = inspector.length(&stream).await?;
            let pages = StreamPages::new(inspector, settings.keys.fields.clone(), selection);
            (stream, total, Pages::Entries(pages))
        }
        ExportSelection::Letters(letters) => {
            let dead = DeadLetters::new(redis.clone());
            let all = dead.count().await.context("Failed to read the dead letters")?;
            let letters = letters.up_to_now(&dead).await?;
            (dead.stream_name().to_owned(), letters.length(all), Pages::Letters(letters.pages(&dead)))
        }
    })
}

/// Answers with None for the output where nobody reads it any more, or the last page did not get through.
async fn write_all(
    pages: &mut Merged,
    mut out: Out,
    report: &mut ExportReport,
    job: &Job,
) -> (Option<Out>, anyhow::Result<End>) {
    loop {
        report.rest = pages.rest();
        let page = match pages.next().await {
            Ok(Some(_)) if job.is_stopped() => return (Some(out), Ok(End::Stopped)),
            Ok(Some(page)) => page,
            Ok(None) => {
                report.is_empty = report.entries == 0;
                return (Some(out), Ok(End::Whole));
            }
            Err(error) => return (Some(out), Err(error)),
        };
        for missing in &page.missing {
            job.progress.say(&format!("{} holds no {missing}", report.stream));
        }
        report.missing.extend(page.missing);
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
        report.entries += page.count;
        report.events += page.events;
        job.progress.add(page.looked_at);
    }
}
