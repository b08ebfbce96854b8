//! The lines to export, page by page: of one stream, or of the streams of several partitions, merged by their ids.

use std::collections::VecDeque;

use anyhow::Context;
use serde::Serialize;
use tidegate_orders::{Partition, wire::is_event};
use tidegate_stream::{EntryId, EntryLine};

use super::ExportSelection;
use crate::{
    dead_letters::{FullLetter, LetterPages, LetterSelection},
    selection::{EntrySelection, StreamPages},
};

/// The entries that are read at once.
const PAGE: u16 = 1_000;

/// A page in the form in which it is written.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The text of the page, which consists of complete lines.
    pub text: String,
    /// The number of lines in the page.
    pub count: u64,
    /// The number of the page's lines that hold an event of an order.
    pub events: u64,
    /// The number of entries that were read to fill the page.
    pub looked_at: u64,
    /// The ids in the request for which no entry exists.
    pub missing: Vec<String>,
}

/// The pages that are read from one stream.
#[derive(Debug)]
pub(super) enum Pages {
    Entries(StreamPages),
    Letters(LetterPages),
}

/// A stream, with the entries that were read and are not written yet.
#[derive(Debug)]
pub(super) struct Source {
    /// The tag of the stream's partition, if the system has partitions.
    tag: Option<String>,
    pages: Pages,
    read: VecDeque<Piece>,
    is_over: bool,
}

/// A line with the id of its entry.
#[derive(Debug)]
struct Piece {
    id: EntryId,
    line: String,
    is_event: bool,
}

/// All streams of the export. Their lines are merged by id, and an id begins with a time.
#[derive(Debug)]
pub(super) struct Merged {
    sources: Vec<Source>,
    /// The number of lines that may still be written.
    left: u64,
}

impl Merged {
    /// Merges these streams, up to `limit` lines.
    pub(super) fn new(sources: Vec<Source>, limit: Option<u64>) -> Self {
        Self { sources, left: limit.unwrap_or(u64::MAX) }
    }

    /// Reads the next page; None at the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Lines>> {
        let mut lines = Lines::default();
        for source in self.sources.iter_mut().filter(|source| source.read.is_empty() && !source.is_over) {
            source.fill(&mut lines).await?;
        }
        let is_whole = self.sources.iter().all(|source| source.is_over && source.read.is_empty());
        if self.left == 0 || (is_whole && lines.looked_at == 0) {
            return Ok(None);
        }
        // If nothing is read of a stream, it may hold the next line, so the merge stops there.
        while self.left > 0 && self.sources.iter().all(|source| source.is_over || !source.read.is_empty()) {
            let waiting = self.sources.iter_mut().filter(|source| !source.read.is_empty());
            let first = waiting.min_by_key(|source| source.read.front().map(|piece| piece.id));
            let Some(piece) = first.and_then(|source| source.read.pop_front()) else { break };
            lines.text.push_str(&piece.line);
            lines.text.push('\n');
            lines.count += 1;
            lines.events += u64::from(piece.is_event);
            self.left -= 1;
        }
        Ok(Some(lines))
    }

    /// Returns the selection after the pages so far. At least one line must be left.
    pub(super) fn rest(&self) -> ExportSelection {
        let rests: Vec<ExportSelection> = self.sources.iter().map(Source::rest).collect();
        let first = rests.iter().map(first_of).min().unwrap_or(EntryId::MIN);
        let last = rests.iter().map(last_of).max().unwrap_or(EntryId::MAX);
        match rests.into_iter().next() {
            Some(ExportSelection::Entries(rest)) => {
                ExportSelection::Entries(EntrySelection { first, last, ..rest })
            }
            Some(ExportSelection::Letters(rest)) => {
                let limit = rest.limit.map(|_| self.left);
                ExportSelection::Letters(LetterSelection { first, last, limit, ..rest })
            }
            None => ExportSelection::Letters(LetterSelection::ALL),
        }
    }
}

impl Source {
    /// Creates the source for the stream of a partition.
    pub(super) fn new(partition: &Partition, pages: Pages) -> Self {
        let tag = partition.tag().map(str::to_owned);
        Self { tag, pages, read: VecDeque::new(), is_over: false }
    }

    /// Reads the next page of the stream.
    async fn fill(&mut self, lines: &mut Lines) -> anyhow::Result<()> {
        let tag = self.tag.as_deref();
        match &mut self.pages {
            Pages::Entries(pages) => {
                let page = pages.next(PAGE).await.context("Failed to read the stream")?;
                let Some(page) = page else {
                    self.is_over = true;
                    return Ok(());
                };
                lines.looked_at += page.looked_at;
                for entry in &page.entries {
                    let line = written(tag, EntryLine::from(entry))?;
                    self.read.push_back(Piece { id: entry.id, line, is_event: is_event(entry) });
                }
            }
            Pages::Letters(pages) => {
                let page = pages.next().await.context("Failed to read the dead letters")?;
                let Some(page) = page else {
                    self.is_over = true;
                    return Ok(());
                };
                lines.looked_at += page.looked_at;
                lines.missing.extend(page.missing.iter().map(|id| format!("letter {id}")));
                for letter in &page.letters {
                    let line = written(tag, FullLetter::from(letter))?;
                    self.read.push_back(Piece { id: letter.id, line, is_event: is_event(&letter.entry()) });
                }
            }
        }
        Ok(())
    }

    /// Returns the selection of the lines that are not written yet.
    fn rest(&self) -> ExportSelection {
        let mut rest = match &self.pages {
            Pages::Entries(pages) => ExportSelection::Entries(pages.rest()),
            Pages::Letters(pages) => ExportSelection::Letters(pages.rest()),
        };
        if let Some(piece) = self.read.front() {
            match &mut rest {
                ExportSelection::Entries(rest) => rest.first = piece.id,
                ExportSelection::Letters(rest) => rest.first = piece.id,
            }
        }
        rest
    }
}

fn first_of(rest: &ExportSelection) -> EntryId {
    match rest {
        ExportSelection::Entries(rest) => rest.first,
        ExportSelection::Letters(rest) => rest.first,
    }
}

fn last_of(rest: &ExportSelection) -> EntryId {
    match rest {
        ExportSelection::Entries(rest) => rest.last,
        ExportSelection::Letters(rest) => rest.last,
    }
}

/// Formats a line, with its partition first if the system has partitions.
fn written(tag: Option<&str>, line: impl Serialize) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Tagged<'a, L> {
        #[serde(skip_serializing_if = "Option::is_none")]
        partition: Option<&'a str>,
        #[serde(flatten)]
        line: L,
    }
    Ok(serde_json::to_string(&Tagged { partition: tag, line })?)
}
