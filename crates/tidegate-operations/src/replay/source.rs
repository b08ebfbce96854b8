//! Where entries come from that are run again: the stream, or a file that `tidegate export` wrote.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use anyhow::Context;
use tidegate_orders::{Partition, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, EntryLine};

use crate::{
    change::InvalidInput,
    selection::{EntrySelection, Page, StreamPages},
};

/// What is read of a file at once, up to the end of a line: one line may be a megabyte.
const PAGE_BYTES: u64 = 4 << 20;

/// Where entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaySource {
    /// The stream: those that are pending are settled.
    Stream,
    /// A file of JSON lines: there is nothing to settle.
    File(PathBuf),
}

/// Reads entries page by page.
#[derive(Debug)]
pub(super) enum EntryReader {
    /// Of the stream.
    Stream(StreamPages),
    /// Of a file.
    File(FileReader),
}

impl EntryReader {
    /// The next `count` entries, or fewer where they are large; None when all were seen.
    ///
    /// # Errors
    /// When Redis does not answer, or the file cannot be read.
    pub(super) async fn next(&mut self, count: u16) -> anyhow::Result<Option<Page>> {
        match self {
            Self::Stream(pages) => pages.next(count).await.context("Failed to read the stream in Redis"),
            Self::File(lines) => lines.next(count),
        }
    }

    /// Whether the entries that were read ascend, so that one of them can tell how far it came.
    pub(super) fn is_sorted(&self) -> bool {
        match self {
            Self::Stream(_) => true,
            Self::File(lines) => lines.is_sorted,
        }
    }
}

/// The entries of a file of JSON lines.
#[derive(Debug)]
pub(super) struct FileReader {
    reader: BufReader<File>,
    path: PathBuf,
    fields: FieldNames,
    /// What belongs to others is theirs.
    partition: Partition,
    selection: EntrySelection,
    number: u64,
    is_sorted: bool,
    last: EntryId,
}

impl FileReader {
    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be read, or is no file: it is read twice, first to see whether all of it is good.
    pub(super) fn open(
        path: &Path,
        (partition, fields): (Partition, FieldNames),
        selection: EntrySelection,
    ) -> anyhow::Result<Self> {
        // Before it is opened: a FIFO would wait for its writer.
        let about = fs::metadata(path).with_context(|| format!("Failed to open {}", path.display()))?;
        if !about.is_file() {
            return Err(InvalidInput(format!("{} is no file: it is read twice", path.display())).into());
        }
        let file = File::open(path).with_context(|| format!("Failed to open {}", path.display()))?;
        let (reader, path) = (BufReader::new(file), path.to_owned());
        Ok(Self {
            reader,
            path,
            fields,
            partition,
            selection,
            number: 0,
            is_sorted: true,
            last: EntryId::MIN,
        })
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(super) fn length(&self) -> anyhow::Result<u64> {
        let about = self.reader.get_ref().metadata();
        Ok(about.with_context(|| format!("Failed to read {}", self.path.display()))?.len())
    }

    /// Whether its voucher belongs here. What names none is the first partition's: somebody has to tell of it.
    fn is_own(&self, entry: &Entry) -> bool {
        let voucher = self.fields.peek(entry).voucher;
        voucher.map_or(self.partition.index() == 0, |voucher| self.partition.owns(voucher))
    }

    fn next(&mut self, count: u16) -> anyhow::Result<Option<Page>> {
        let mut page = Page { entries: Vec::new(), looked_at: 0 };
        let mut line = Vec::new();
        for _ in 0..count {
            if page.looked_at > PAGE_BYTES {
                break;
            }
            line.clear();
            let path = self.path.display();
            self.reader.read_until(b'\n', &mut line).with_context(|| format!("Failed to read {path}"))?;
            if line.is_empty() {
                break;
            }
            page.looked_at += line.len() as u64;
            self.number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let entry = EntryLine::parse(&line)
                .map_err(|error| InvalidInput(format!("{path}, line {}: {error}", self.number)))?;
            self.is_sorted &= self.last <= entry.id;
            self.last = entry.id;
            if self.is_own(&entry) && self.selection.holds(&self.fields, &entry) {
                page.entries.push(entry);
            }
        }
        Ok((page.looked_at > 0).then_some(page))
    }
}
