//! Which entries an operation is about: from where to where, of which voucher, of which user.

use tidegate_orders::{UserId, VoucherId, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, EntryPages, StreamError, StreamInspector};

use crate::change::InvalidInput;

/// What an entry must be of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// Only entries of this voucher.
    pub voucher: Option<VoucherId>,
    /// Only entries of this user.
    pub user: Option<UserId>,
}

/// A range of entries, and what they must be of.
#[derive(Clone, Copy, Debug)]
pub struct EntrySelection {
    /// The first that may be one of them.
    pub first: EntryId,
    /// The last that may be.
    pub last: EntryId,
    /// What else they must be.
    pub filter: EntryFilter,
}

impl EntrySelection {
    /// From the first to the last that may be one of them.
    ///
    /// # Errors
    /// When the last comes before the first.
    pub fn new((first, last): (EntryId, EntryId), filter: EntryFilter) -> Result<Self, InvalidInput> {
        if first > last {
            return Err(InvalidInput(format!("the last entry, {last}, comes before the first, {first}")));
        }
        Ok(Self { first, last, filter })
    }

    /// Whether this is one of them.
    pub fn holds(&self, fields: &FieldNames, entry: &Entry) -> bool {
        let EntryFilter { voucher, user } = self.filter;
        (self.first..=self.last).contains(&entry.id) && fields.are_named(entry, voucher, user)
    }
}

/// A piece of what is looked through.
#[derive(Debug)]
pub struct Page {
    /// The selected entries in it.
    pub entries: Vec<Entry>,
    /// How much was looked at for it: entries of a stream, bytes of a file.
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
    /// From the first of them on.
    pub fn new(inspector: StreamInspector, fields: FieldNames, selection: EntrySelection) -> Self {
        let range = (selection.first.previous(), selection.last);
        let pages = inspector.entry_pages(&inspector.names().stream, range, u16::MAX);
        Self { pages, fields, selection }
    }

    /// The first that was not looked at.
    pub fn at(&self) -> EntryId {
        self.pages.after().next().max(self.selection.first)
    }

    /// What comes after the pages that were read.
    pub fn rest(&self) -> EntrySelection {
        EntrySelection { first: self.at(), ..self.selection }
    }

    /// The next `most` entries, or fewer where they are large; None when all were seen.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn next(&mut self, most: u16) -> Result<Option<Page>, StreamError> {
        let Some(mut entries) = self.pages.next(most.into()).await? else { return Ok(None) };
        let looked_at = entries.len() as u64;
        entries.retain(|entry| self.selection.holds(&self.fields, entry));
        Ok(Some(Page { entries, looked_at }))
    }
}
