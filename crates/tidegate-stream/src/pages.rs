//! Page-by-page reads of a stream or a pending list.

use crate::{
    entry::{Entry, EntryId, PendingEntry},
    group_inspector::GroupInspector,
    inspector::{Read, StreamInspector},
    page_size::PageSize,
    stream::StreamError,
};

/// The entries of a stream, oldest first, in pages of about 4 MiB.
#[derive(Clone, Debug)]
pub struct EntryPages {
    inspector: StreamInspector,
    key: String,
    after: EntryId,
    last: EntryId,
    size: PageSize,
}

impl EntryPages {
    /// Reads the next page of at most `most` entries. None: all entries were read.
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

    /// Counts the remaining entries page by page, and stops when the count reaches `enough`. After each page, it calls
    /// `seen` with the number of entries in the page.
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

    /// Returns the last entry that was read. Before the first page, it returns the id after which the pages begin.
    #[must_use]
    pub fn after(&self) -> EntryId {
        self.after
    }
}

/// The pending entries of the group, oldest first, read page by page.
#[derive(Clone, Debug)]
pub struct PendingPages {
    inspector: StreamInspector,
    after: EntryId,
    last: EntryId,
    count: u16,
    consumer: Option<String>,
}

impl PendingPages {
    /// Reads the next page of pending entries. None: all entries were read, or the group does not exist. If a page has
    /// fewer entries than requested, it is the last page.
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

/// The entries of a stream with given ids, in pages of about 4 MiB and in the order of the ids. Only one page is in
/// memory at a time.
#[derive(Clone, Debug)]
pub struct EntriesById<'a> {
    inspector: &'a StreamInspector,
    key: &'a str,
    left: &'a [EntryId],
    read: Read<'a>,
}

impl EntriesById<'_> {
    /// Reads the next page. An entry that does not exist is None within the page. After the last page, the call returns
    /// None instead of a page.
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
    /// Returns the entries of the stream `key` with the given ids, in pages.
    #[must_use]
    pub fn entries<'a>(&'a self, key: &'a str, ids: &'a [EntryId], read: Read<'a>) -> EntriesById<'a> {
        EntriesById { inspector: self, key, left: ids, read }
    }

    /// Returns the entries of the stream `key` with ids greater than `after`, up to and including `last`, in pages of
    /// at most `most` entries.
    #[must_use]
    pub fn entry_pages(&self, key: &str, (after, last): (EntryId, EntryId), most: u16) -> EntryPages {
        let (inspector, key, size) = (self.clone(), key.to_owned(), PageSize::new(most));
        EntryPages { inspector, key, after, last, size }
    }
}

impl GroupInspector<'_> {
    /// Returns the pending entries of the group with ids greater than `after`, up to and including `last`, in pages of
    /// `count` entries. The entries belong to one consumer or to all consumers.
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
