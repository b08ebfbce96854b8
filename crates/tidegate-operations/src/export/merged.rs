//! What is exported, page by page: of one stream, or of the streams of several partitions, by their ids.

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

/// Entries that are read at once.
const PAGE: u16 = 1_000;

/// A page, as it is written.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Whole lines.
    pub text: String,
    /// How many.
    pub count: u64,
    /// How many of them say what happened to an order.
    pub events: u64,
    /// How much was looked at for them.
    pub looked_at: u64,
    /// What was asked for by its id and is not there.
    pub missing: Vec<String>,
}

/// What is read of one stream.
#[derive(Debug)]
pub(super) enum Pages {
    Entries(StreamPages),
    Letters(LetterPages),
}

/// One stream, and what was read of it and is not written yet.
#[derive(Debug)]
pub(super) struct Source {
    /// Of its partition, where there are any.
    tag: Option<String>,
    pages: Pages,
    read: VecDeque<Piece>,
    is_over: bool,
}

/// A line.
#[derive(Debug)]
struct Piece {
    id: EntryId,
    line: String,
    is_event: bool,
}

/// All streams. The lines of them come by their ids, which are times first.
#[derive(Debug)]
pub(super) struct Merged {
    sources: Vec<Source>,
    /// Lines that may still be written.
    left: u64,
}

impl Merged {
    /// Of these streams, so many lines at most.
    pub(super) fn new(sources: Vec<Source>, limit: Option<u64>) -> Self {
        Self { sources, left: limit.unwrap_or(u64::MAX) }
    }

    /// The next page; None at the end.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Lines>> {
        let mut lines = Lines::default();
        for source in self.sources.iter_mut().filter(|source| source.read.is_empty() && !source.is_over) {
            source.fill(&mut lines).await?;
        }
        let is_whole = self.sources.iter().all(|source| source.is_over && source.read.is_empty());
        if self.left == 0 || (is_whole && lines.looked_at == 0) {
            return Ok(None);
        }
        // A stream of which nothing is read may have what comes next.
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

    /// All that comes after the pages so far. There must be anything.
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
    /// The stream of a partition.
    pub(super) fn new(partition: &Partition, pages: Pages) -> Self {
        let tag = partition.tag().map(str::to_owned);
        Self { tag, pages, read: VecDeque::new(), is_over: false }
    }

    /// Reads a page.
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

    /// What of it is not written yet.
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

/// A line, with its partition first, where there are any.
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
