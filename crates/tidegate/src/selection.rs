//! Which entries a command is about: from where to where, of which voucher, of which user.

use clap::Args;
use tidegate_orders::{UserId, VoucherId, wire::FieldNames};
use tidegate_stream::{Entry, EntryId, PageSize, StreamError, Survey};

use crate::command_line::CommandLine;

/// Flags that leave entries out.
#[derive(Args, Clone, Copy, Debug)]
pub struct OnlyArgs {
    /// Only entries of this voucher
    #[arg(long, value_name = "ID")]
    pub voucher: Option<VoucherId>,
    /// Only entries of this user
    #[arg(long, value_name = "ID")]
    pub user: Option<UserId>,
}

impl OnlyArgs {
    /// `command` with those of these flags that were given.
    pub fn typed(self, command: CommandLine) -> CommandLine {
        command.flag("--voucher", self.voucher).flag("--user", self.user)
    }
}

/// The entries that are meant.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// The first that may be one of them.
    pub first: EntryId,
    /// The last that may be.
    pub last: EntryId,
    /// What else they must be.
    pub only: OnlyArgs,
}

impl Selection {
    /// Whether this is one of them.
    pub fn holds(&self, fields: &FieldNames, entry: &Entry) -> bool {
        let OnlyArgs { voucher, user } = self.only;
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
    survey: Survey,
    fields: FieldNames,
    selection: Selection,
    after: EntryId,
    size: PageSize,
}

impl StreamPages {
    /// From the first of them on.
    pub fn new(survey: Survey, fields: FieldNames, selection: Selection) -> Self {
        Self { survey, fields, selection, after: selection.first.previous(), size: PageSize::new(u16::MAX) }
    }

    /// The first that was not looked at.
    pub fn at(&self) -> EntryId {
        self.after.next().max(self.selection.first)
    }

    /// The next `most` entries, or fewer where they are large; None when all were seen.
    ///
    /// # Errors
    /// When Redis does not answer, or the key holds no stream.
    pub async fn next(&mut self, most: u16) -> Result<Option<Page>, StreamError> {
        let (stream, until) = (self.survey.names().stream.clone(), self.selection.last);
        if self.after >= until {
            return Ok(None);
        }
        let count = self.size.count(most.into());
        let mut entries = self.survey.page(&stream, (self.after, until), count).await?;
        self.size.learn(entries.iter().map(|entry| &entry.fields));
        let Some(last) = entries.last() else { return Ok(None) };
        self.after = last.id;
        let looked_at = entries.len() as u64;
        entries.retain(|entry| self.selection.holds(&self.fields, entry));
        Ok(Some(Page { entries, looked_at }))
    }
}
