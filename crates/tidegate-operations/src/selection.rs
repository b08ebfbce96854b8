//! The selection of the entries that an operation is about: by range, by voucher and by user.

use tidegate_orders::{UserId, VoucherId, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, EntryPages, StreamError, StreamInspector};

use crate::change::InvalidInput;

/// The voucher and the user that an entry must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// The voucher that entries must have; None: any voucher.
    pub voucher: Option<VoucherId>,
    /// The user that entries must have; None: any user.
    pub user: Option<UserId>,
}

/// A range of entries, with a filter.
#[derive(Clone, Copy, Debug)]
pub struct EntrySelection {
    /// The first id of the range.
    pub first: EntryId,
    /// The last id of the range.
    pub last: EntryId,
    /// The filter that the entries must match.
    pub filter: EntryFilter,
}

impl EntrySelection {
    /// Creates a selection of the entries from the first to the last id.
    ///
    /// # Errors
    /// If the last id comes before the first.
    pub fn new((first, last): (EntryId, EntryId), filter: EntryFilter) -> Result<Self, InvalidInput> {
        if first > last {
            return Err(InvalidInput(format!("the last entry, {last}, comes before the first, {first}")));
        }
        Ok(Self { first, last, filter })
    }

    /// Returns whether the entry is selected.
    pub fn holds(&self, fields: &FieldNames, entry: &Entry) -> bool {
        let EntryFilter { voucher, user } = self.filter;
        (self.first..=self.last).contains(&entry.id) && fields.are_named(entry, voucher, user)
    }
}

/// A page of the entries that are read.
#[derive(Debug)]
pub struct Page {
    /// The selected entries of the page.
    pub entries: Vec<Entry>,
    /// The amount that was read for the page: entries of a stream, bytes of a file.
    pub looked_at: u64,
}

/// The selected entries of a stream, page by page.
#[derive(Debug)]
pub struct StreamPages {
    pages: EntryPages,
    fields: FieldNames,
    selection: EntrySelection,
}

impl StreamPages {
    /// Starts reading from the first selected entry.
    pub fn new(inspector: StreamInspector, fields: FieldNames, selection: EntrySelection) -> Self {
        let range = (selection.first.previous(), selection.last);
        let pages = inspector.entry_pages(&inspector.names().stream, range, u16::MAX);
        Self { pages, fields, selection }
    }

    /// Returns the first id that was not read.
    pub fn at(&self) -> EntryId {
        self.pages.after().next().max(self.selection.first)
    }

    /// Returns the selection after the pages that were read.
    pub fn rest(&self) -> EntrySelection {
        EntrySelection { first: self.at(), ..self.selection }
    }

    /// Reads the next `most` entries, or fewer if they are large; None at the end.
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
