//! Reads a stream or a pending list to its end, page by page.

use crate::{
    entry::{Entry, EntryId, PendingEntry},
    group_inspector::GroupInspector,
    inspector::{Read, StreamInspector},
    page_size::PageSize,
    stream::StreamError,
};

/// Entries of a stream, oldest first, in pages of about 4 MiB.
#[derive(Clone, Debug)]
pub struct EntryPages {
    inspector: StreamInspector,
    key: String,
    after: EntryId,
    last: EntryId,
    size: PageSize,
}

impl EntryPages {
    /// The next page, of no more than `most` entries; None: all were read.
    ///
    /// # Errors
    /// As for every call of [`StreamInspector`].
    pub async fn next(&mut self, most: u64) -> Result<Option<Vec<Entry>>, StreamError> {
        if self.after >= self.last {
            return Ok(None);
        }
        let (range, count) = ((self.after, self.last), self.size.count(most));
        let page = self.inspector.page(&self.key, range, count).await?;
        self.size.learn(page.iter().map(|entry| &entry.fields));
        let Some(last) = page.last() else { return Ok(None) };
        self.after = last.id;
        Ok(Some(page))
    }

    /// Counts the entries that are left, page by page, and ends once there are `enough`; `seen` gets the size of each page.
    ///
    /// # Errors
    /// As for every call of [`StreamInspector`].
    pub async fn count(mut self, enough: u64, seen: impl Fn(u64)) -> Result<u64, StreamError> {
        let mut counted = 0;
        while counted < enough
            && let Some(page) = self.next(enough - counted).await?
        {
            counted += page.len() as u64;
            seen(page.len() as u64);
        }
        Ok(counted)
    }

    /// The last entry that was read; before the first page, the one that the pages come after.
    #[must_use]
    pub fn after(&self) -> EntryId {
        self.after
    }
}

/// Pending entries of the group, oldest first.
#[derive(Clone, Debug)]
pub struct PendingPages {
    inspector: StreamInspector,
    after: EntryId,
    last: EntryId,
    count: u16,
    consumer: Option<String>,
}

impl PendingPages {
    /// The next page; None: all were read, or there is no group. A page that is not full is the last.
    ///
    /// # Errors
    /// As for every call of [`GroupInspector`].
    pub async fn next(&mut self) -> Result<Option<Vec<PendingEntry>>, StreamError> {
        if self.after >= self.last {
            return Ok(None);
        }
        let (range, consumer) = ((self.after, self.last), self.consumer.as_deref());
        let page = self.inspector.group().pending_entries(range, self.count, consumer).await?;
        let is_full = page.len() >= usize::from(self.count);
        self.after = page.last().filter(|_| is_full).map_or(self.last, |last| last.id);
        Ok(Some(page).filter(|page| !page.is_empty()))
    }
}

/// Entries of a stream by their ids, in the order of these, in pages of about 4 MiB. However many and however large they are, one
/// page of them is in memory.
#[derive(Clone, Debug)]
pub struct EntriesById<'a> {
    inspector: &'a StreamInspector,
    key: &'a str,
    left: &'a [EntryId],
    read: Read<'a>,
}

impl EntriesById<'_> {
    /// The next page, with None for an entry that is not there; None: all were read.
    ///
    /// # Errors
    /// As for every call of [`StreamInspector`].
    pub async fn next(&mut self) -> Result<Option<Vec<Option<Entry>>>, StreamError> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let page = self.inspector.read(self.key, self.left, self.read).await?;
        self.left = self.left.get(page.len()..).unwrap_or_default();
        Ok(Some(page))
    }
}

impl StreamInspector {
    /// These entries of the stream `key`, page by page.
    #[must_use]
    pub fn entries<'a>(&'a self, key: &'a str, ids: &'a [EntryId], read: Read<'a>) -> EntriesById<'a> {
        EntriesById { inspector: self, key, left: ids, read }
    }

    /// All entries of the stream `key` that come after `after`, none later than `last`, in pages of no more than `most`.
    #[must_use]
    pub fn entry_pages(&self, key: &str, (after, last): (EntryId, EntryId), most: u16) -> EntryPages {
        let (inspector, key, size) = (self.clone(), key.to_owned(), PageSize::new(most));
        EntryPages { inspector, key, after, last, size }
    }
}

impl GroupInspector<'_> {
    /// All entries of the group's pending list that come after `after`, none later than `last`, of all consumers or of one, in
    /// pages of `count`.
    #[must_use]
    pub fn pending_pages(
        self,
        (after, last): (EntryId, EntryId),
        count: u16,
        consumer: Option<&str>,
    ) -> PendingPages {
        let (inspector, consumer) = (self.inspector.clone(), consumer.map(str::to_owned));
        PendingPages { inspector, after, last, count, consumer }
    }
}
