//! Exports entries of the stream, or dead letters, as lines of JSON: page by page, to a new file or to a writer. Lines
//! of several partitions are merged by their ids.

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

/// The selection of stream entries or dead letters to export.
#[derive(Clone, Debug)]
pub enum ExportSelection {
    /// Entries of the stream of orders.
    Entries(EntrySelection),
    /// Dead letters of the system.
    Letters(LetterSelection),
}

/// The report of an export of entries or dead letters.
#[derive(Clone, Debug, Serialize)]
pub struct ExportReport {
    /// The key of the stream that was exported.
    pub stream: String,
    /// The path of the new file, which does not exist if nothing was written; None: the lines went to a writer.
    pub out: Option<PathBuf>,
    /// The number of lines that the export wrote.
    pub entries: u64,
    /// The number of exported lines that hold an event of an order.
    pub events: u64,
    /// The ids in the request for which no entry exists.
    pub missing: Vec<String>,
    /// Whether all selected entries were read, and there was nothing to write.
    #[serde(skip)]
    pub is_empty: bool,
    /// The selection of entries that the caller asked to export.
    #[serde(skip)]
    pub selection: ExportSelection,
    /// The selection of the entries that this export has not written yet.
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
        "the last line of the export may be incomplete: check that line before you append to the file"
    }
}

/// The operation that writes entries or dead letters to a file or to a writer.
pub struct Export {
    stream: String,
    total: u64,
    selection: ExportSelection,
    pages: Merged,
    out: Out,
}

impl Export {
    /// Counts the selected entries, and creates the file. The export does not contain entries that arrive later, so
    /// that it can end.
    ///
    /// # Errors
    /// If Redis does not answer, the key holds no stream, or the file cannot be created or exists already.
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

    /// Returns the highest number of entries that the export reads.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns an empty report, which [`Export::run`] fills.
    pub fn report(&self) -> ExportReport {
        let (stream, out) = (self.stream.clone(), self.out.path().map(Path::to_owned));
        let (selection, rest) = (self.selection.clone(), self.pages.rest());
        let missing = Vec::new();
        ExportReport { stream, out, entries: 0, events: 0, missing, is_empty: false, selection, rest }
    }

    /// Writes all selected entries to the output, page by page.
    ///
    /// # Errors
    /// If Redis does not answer, or the lines cannot be written; the report holds what was written and what is left.
    pub async fn run(self, report: &mut ExportReport, job: &Job) -> anyhow::Result<End> {
        let Self { mut pages, out, .. } = self;
        let (out, ended) = write_all(&mut pages, out, report, job).await;
        // The written lines are made durable, even if the rest could not be read.
        if let Some(out) = out {
            on_thread(|| out.finish()).await?;
        }
        ended
    }
}

/// Starts reading the selection of one stream. It returns the stream's name, the number of entries to read at most, and
/// the pages.
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

/// Writes all pages to the output. The returned output is None if its reader has closed it, or if the last page could
/// not be written.
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
        // The write runs on another thread, so that a signal is handled even while the other end of a pipe does not
        // read.
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
