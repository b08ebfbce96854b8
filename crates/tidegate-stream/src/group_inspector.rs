//! Read-only access to the consumer group of a stream and its pending list. Nothing here changes anything.

use fred::types::Value;

use crate::{
    entry::{self, EntryId, PendingEntry, bad_reply, parse_id},
    inspector::{StreamInspector, field},
    set_aside_notes::SetAsideNotes,
    stream::{StreamError, StreamNames},
};

/// A reader of the consumer group of a stream. A call fails if Redis does not answer, if a key has a wrong type, or if
/// the reply has an unknown form.
#[derive(Clone, Copy, Debug)]
pub struct GroupInspector<'a> {
    /// The connections, and the names of the stream and the group.
    pub(crate) inspector: &'a StreamInspector,
}

impl StreamInspector {
    /// Returns a reader of the stream's consumer group.
    #[must_use]
    pub const fn group(&self) -> GroupInspector<'_> {
        GroupInspector { inspector: self }
    }
}

impl GroupInspector<'_> {
    /// Returns the id of the last entry that was delivered to the group. None: the group does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn last_delivered(self) -> Result<Option<EntryId>, StreamError> {
        let Some(group) = self.info().await? else { return Ok(None) };
        let id = field(&group, "last-delivered-id").ok_or_else(|| bad_reply("last-delivered-id", &group))?;
        Ok(Some(parse_id(id)?))
    }

    /// Returns what XINFO GROUPS reports about the group; `None` if it does not exist.
    pub(crate) async fn info(self) -> Result<Option<Value>, StreamError> {
        let names = self.inspector.names();
        let args = vec!["GROUPS".into(), names.stream.as_str().into()];
        let reply = match self.inspector.call("XINFO", args).await {
            Err(StreamError::Redis(error)) if error.is_no_such_key() => return Ok(None),
            reply => reply?,
        };
        let Value::Array(groups) = reply else { return Err(bad_reply("groups", &reply).into()) };
        let is_ours = |group: &Value| {
            field(group, "name").is_some_and(|name| name.as_bytes() == Some(names.group.as_bytes()))
        };
        Ok(groups.into_iter().find(is_ours))
    }

    /// Returns the time at which [`Stream::make_pending`](crate::Stream::make_pending) was last called, as a text that
    /// differs after each call. None: there was no call within the last week, or this Redis user may not read the time.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn made_pending(self) -> Result<Option<String>, StreamError> {
        let args = vec![self.inspector.names().crashes().into(), "made_pending".into()];
        match self.inspector.call("HGET", args).await {
            Err(StreamError::Redis(error)) if error.is_refusal() => Ok(None),
            reply => Ok(reply?.as_string()),
        }
    }

    /// Reads the ids of up to `count` pending entries whose ids are greater than `after`. The list is empty if the
    /// group does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn pending(self, after: EntryId, count: u16) -> Result<Vec<EntryId>, StreamError> {
        let page = self.pending_entries((after, EntryId::MAX), count, None).await?;
        Ok(page.into_iter().map(|pending| pending.id).collect())
    }

    /// Reads up to `count` pending entries with ids greater than `after`, up to and including `last`. If `consumer` is
    /// None, the entries may belong to any consumer. The list is empty if the group does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn pending_entries(
        self,
        (after, last): (EntryId, EntryId),
        count: u16,
        consumer: Option<&str>,
    ) -> Result<Vec<PendingEntry>, StreamError> {
        self.pending_range((format!("({after}"), last.to_string()), count, consumer).await
    }

    /// Reads the pending entry `id`, with the consumer that holds it. None: the entry is not pending.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn pending_entry(self, id: EntryId) -> Result<Option<PendingEntry>, StreamError> {
        Ok(self.pending_range((id.to_string(), id.to_string()), 1, None).await?.pop())
    }

    /// Returns for each given entry the number of worker processes that died while the entry was in progress.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn crashes(self, ids: &[EntryId]) -> Result<Vec<u64>, StreamError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = ids.iter().map(|id| Value::from(id.to_string()));
        let args = std::iter::once(self.inspector.names().crashes().into()).chain(ids).collect();
        let Value::Array(notes) = self.inspector.call("HMGET", args).await? else { return Ok(Vec::new()) };
        Ok(notes.iter().map(|note| note.as_str().map_or(0, |note| leading_number(&note))).collect())
    }

    /// Returns a reader of the notes (hash fields) in which living processes list the entries that they have left
    /// pending, to retry them later.
    #[must_use]
    pub fn set_aside_notes(self) -> SetAsideNotes {
        SetAsideNotes::new(self.inspector.pool(), self.inspector.names())
    }

    /// Returns the first pending entry from `first` to `last`. None: no entry is pending in this range, or the group
    /// does not exist.
    ///
    /// # Errors
    /// As for every call here.
    pub async fn first_pending(
        self,
        (first, last): (EntryId, EntryId),
    ) -> Result<Option<EntryId>, StreamError> {
        let found = self.pending_range((first.to_string(), last.to_string()), 1, None).await?;
        Ok(found.first().map(|pending| pending.id))
    }

    async fn pending_range(
        self,
        (from, to): (String, String),
        count: u16,
        consumer: Option<&str>,
    ) -> Result<Vec<PendingEntry>, StreamError> {
        let StreamNames { stream, group, .. } = self.inspector.names();
        let mut args: Vec<Value> = vec![
            stream.as_str().into(),
            group.as_str().into(),
            from.into(),
            to.into(),
            i64::from(count).into(),
        ];
        args.extend(consumer.map(Value::from));
        let reply = match self.inspector.call_raw("XPENDING", args).await {
            Err(StreamError::NoGroup(_)) => return Ok(Vec::new()),
            reply => reply?,
        };
        Ok(entry::parse_pending(&reply)?)
    }
}

/// Parses the number at the start of a note: workers of earlier versions wrote more text after it.
fn leading_number(note: &str) -> u64 {
    note.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}
