//! The selection of the entries that an operation is about: by range, by voucher and by user.

use tidegate_orders::{UserId, VoucherId, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, EntryPages, StreamError, StreamInspector};

use crate::change::InvalidInput;

/// The voucher and the user that entries must have to be selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// The voucher that entries must have; None: any voucher.
    pub voucher: Option<VoucherId>,
    /// The user that entries must have; None: any user.
    pub user: Option<UserId>,
}

/// A range of entry ids, with a filter for voucher and user.
#[derive(Clone, Copy, Debug)]
pub struct EntrySelection {
    /// The first entry id of the range.
    pub first: EntryId,
    /// The last entry id of the range.
    pub last: EntryId,
    /// The filter that the entries must match.
    pub filter: EntryFilter,
}

impl EntrySelection {
    /// Creates a selection of entries from the first to the last id.
    ///
    /// # Errors
    /// If the last id comes before the first.
    pub fn new((first, last): (EntryId, EntryId), filter: EntryFilter) -> Result<Self, InvalidInput> {
        if first > last {
            return Err(InvalidInput(format!("the last id, {last}, is smaller than the first id, {first}")));
        }
        Ok(Self { first, last, filter })
    }

    /// Returns whether the entry is in the range and matches the filter.
    pub fn holds(&self, fields: &FieldNames, entry: &Entry) -> bool {
        let EntryFilter { voucher, user } = self.filter;
        (self.first..=self.last).contains(&entry.id) && fields.are_named(entry, voucher, user)
    }
}

/// A page of selected entries from a stream or a file.
#[derive(Debug)]
pub struct Page {
    /// The selected entries of the page.
    pub entries: Vec<Entry>,
    /// The amount of data that was read to fill the page: entries of a stream, or bytes of a file.
    pub looked_at: u64,
}

/// The reader of the selected entries of a stream, page by page.
#[derive(Debug)]
pub struct StreamPages {
    pages: EntryPages,
    fields: FieldNames,
    selection: EntrySelection,
}

impl StreamPages {
    /// Creates a reader that begins with the first selected entry.
    pub fn new(inspector: StreamInspector, fields: FieldNames, selection: EntrySelection) -> Self {
        let range = (selection.first.previous(), selection.last);
        let pages = inspector.entry_pages(&inspector.names().stream, range, u16::MAX);
        Self { pages, fields, selection }
    }

    /// Returns the first entry id that was not read yet.
    pub fn at(&self) -> EntryId {
        self.pages.after().next().max(self.selection.first)
    }

    /// Returns the selection of the entries that were not read yet.
    pub fn rest(&self) -> EntrySelection {
        EntrySelection { first: self.at(), ..self.selection }
    }

    /// Reads the next page of at most `most` entries, and fewer if the entries are large; None: all entries were read.
    ///
    /// # Errors
    /// If Redis does not answer, or the key holds no stream.
    pub async fn next(&mut self, most: u16) -> Result<Option<Page>, StreamError> {
        let Some(mut entries) = self.pages.next(most.into()).await? else { return Ok(None) };
        let looked_at = entries.len() as u64;
        entries.retain(|entry| self.selection.holds(&self.fields, entry));
        Ok(Some(Page { entries, looked_at }))
    }
}
