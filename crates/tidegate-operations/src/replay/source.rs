//! The source of replayed entries: the stream, or a file that `tidegate export` wrote.

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

/// The bytes that are read of a file at once, up to the end of a line: one line may be a megabyte.
const PAGE_BYTES: u64 = 4 << 20;

/// The source of a replay: the stream or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplaySource {
    /// The stream, whose pending entries are settled.
    Stream,
    /// A file of JSON lines, whose entries are not settled.
    File(PathBuf),
}

/// Reads entries page by page.
#[derive(Debug)]
pub(super) enum EntryReader {
    /// The entries of the stream.
    Stream(StreamPages),
    /// The entries of a file.
    File(FileReader),
}

impl EntryReader {
    /// Reads the next `count` entries, or fewer if they are large; None at the end.
    ///
    /// # Errors
    /// If Redis does not answer, or the file cannot be read.
    pub(super) async fn next(&mut self, count: u16) -> anyhow::Result<Option<Page>> {
        match self {
            Self::Stream(pages) => pages.next(count).await.context("Failed to read the stream in Redis"),
            Self::File(lines) => lines.next(count),
        }
    }

    /// Returns whether the ids of the entries that were read ascend, so that an id can serve as the position.
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
    /// The partition whose entries are read; those of other partitions are left to them.
    partition: Partition,
    selection: EntrySelection,
    number: u64,
    is_sorted: bool,
    last: EntryId,
}

impl FileReader {
    /// Opens the file at this path.
    ///
    /// # Errors
    /// If it cannot be read, or is not a regular file. It is read twice, first to check all of it.
    pub(super) fn open(
        path: &Path,
        (partition, fields): (Partition, FieldNames),
        selection: EntrySelection,
    ) -> anyhow::Result<Self> {
        // The type is checked before the file is opened, because opening a FIFO would wait for its writer.
        let about = fs::metadata(path).with_context(|| format!("Failed to open {}", path.display()))?;
        if !about.is_file() {
            return Err(InvalidInput(format!(
                "{} is not a regular file: a replay reads its file twice, so a pipe cannot be used",
                path.display()
            ))
            .into());
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

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// If the operating system does not report the length.
    pub(super) fn length(&self) -> anyhow::Result<u64> {
        let about = self.reader.get_ref().metadata();
        Ok(about.with_context(|| format!("Failed to read {}", self.path.display()))?.len())
    }

    /// Returns whether the entry's voucher belongs to this partition. An entry without a voucher counts for the first
    /// partition, so that one partition reports it.
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
