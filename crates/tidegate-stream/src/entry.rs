//! Stream entries, their ids, and the result of one read or claim.

mod replies;

use std::{fmt, str::FromStr};

use bytes::Bytes;
use serde::{Serialize, Serializer};

pub use replies::BadReply;
pub(crate) use replies::{
    Claimed, Fetched, bad_reply, parse_claim, parse_entries, parse_fetched, parse_glimpsed, parse_id,
    parse_pending, parse_read,
};

/// The id of a stream entry: milliseconds of the server's clock, then a sequence number within that millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// The Unix time of the entry in milliseconds.
    pub ms: u64,
    /// The sequence number within the millisecond.
    pub seq: u64,
}

impl EntryId {
    /// The smallest entry id. A read after this id begins at the start of the stream.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The largest entry id that a stream can have.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// Returns the next entry id. The largest id has no next id, and returns itself.
    #[must_use]
    pub fn next(self) -> Self {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Self { seq, ..self },
            (None, Some(ms)) => Self { ms, seq: 0 },
            (None, None) => self,
        }
    }

    /// Returns the previous entry id. The smallest id has no previous id, and returns itself.
    #[must_use]
    pub fn previous(self) -> Self {
        match (self.seq.checked_sub(1), self.ms.checked_sub(1)) {
            (Some(seq), _) => Self { seq, ..self },
            (None, Some(ms)) => Self { ms, seq: u64::MAX },
            (None, None) => self,
        }
    }
}

impl Serialize for EntryId {
    /// Writes the id as text, as Redis does.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
        f.write_str(ms.format(self.ms))?;
        f.write_str("-")?;
        f.write_str(seq.format(self.seq))
    }
}

/// One entry of the group's pending list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The id of the entry.
    pub id: EntryId,
    /// The name of the consumer that holds the entry.
    pub consumer: String,
    /// The milliseconds since the entry was last delivered, or since its consumer last reset this time. If
    /// [`crate::is_claimable`] returns true for the value, any consumer may claim the entry.
    pub idle_ms: u64,
    /// The number of times that the entry was delivered.
    pub deliveries: u64,
}

/// The error for a text that is not an entry id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a stream entry id: an id looks like 1718000000000-0")]
pub struct BadEntryId(pub String);

impl FromStr for EntryId {
    type Err = BadEntryId;

    fn from_str(text: &str) -> Result<Self, BadEntryId> {
        let (ms, seq) = text.split_once('-').unwrap_or((text, "0"));
        match (ms.parse(), seq.parse()) {
            (Ok(ms), Ok(seq)) => Ok(Self { ms, seq }),
            _ => Err(BadEntryId(text.to_owned())),
        }
    }
}

/// The number of bytes that each field adds to the size of an entry, on top of its name and value. Even a small field
/// costs a worker about as much memory. `lua/fetch.lua` has the same number.
pub const FIELD_BYTES: usize = 64;

/// The weight of fields: the bytes of their names and values, and 64 for each field.
pub(crate) fn weight(fields: &[(Bytes, Bytes)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_BYTES).sum()
}

/// A stream entry with its payload, as the producer wrote it. Names and values may be any bytes, and a field name may
/// occur twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The id of the entry in the stream.
    pub id: EntryId,
    /// The field names and values of the entry, in the order in which they were written.
    pub fields: Vec<(Bytes, Bytes)>,
}

/// The entries that one read or claim delivered to a consumer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// The entries that have a payload, in stream order.
    pub entries: Vec<Entry>,
    /// The ids of pending entries whose payload was deleted or trimmed. A worker can only count, report and acknowledge
    /// them.
    pub gone: Vec<EntryId>,
    /// The ids of entries above the size limit, which were delivered without their payload. The payload stays in Redis.
    pub large: Vec<EntryId>,
    /// The ids of those delivered entries that were in progress when an earlier process died.
    pub survivors: Vec<EntryId>,
}

impl Delivery {
    /// Whether no entry was delivered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of pending entries that were delivered, with or without payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.gone.len() + self.large.len()
    }

    /// Returns the largest entry id that was delivered.
    #[must_use]
    pub fn last_id(&self) -> Option<EntryId> {
        let entry = self.entries.last().map(|entry| entry.id);
        entry.max(self.gone.iter().max().copied()).max(self.large.iter().max().copied())
    }

    /// The size of all delivered entries in bytes: the lengths of names and values, and 64 bytes more for each field.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }

    /// Appends a delivery that came after this one.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.entries.append(&mut later.entries);
        self.gone.append(&mut later.gone);
        self.large.append(&mut later.large);
        self.survivors.append(&mut later.survivors);
    }

    /// Drops the payload of entries that weigh more than `largest` bytes, and keeps their ids in `large`.
    pub(crate) fn drop_large(&mut self, largest: usize) {
        let large = &mut self.large;
        self.entries.retain(|entry| {
            let is_large = entry.bytes() > largest;
            if is_large {
                large.push(entry.id);
            }
            !is_large
        });
    }
}

impl Entry {
    /// The size of the entry in bytes: the lengths of names and values, and 64 bytes more for each field.
    #[must_use]
    pub fn bytes(&self) -> usize {
        weight(&self.fields)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn between_an_entry_id_and_the_next_there_is_none() {
        let id = |ms, seq| EntryId { ms, seq };
        for (before, after) in [(id(5, 0), id(5, 1)), (id(4, u64::MAX), id(5, 0)), (id(0, 0), id(0, 1))] {
            assert_eq!((before.next(), after.previous()), (after, before));
        }
        let largest = id(u64::MAX, u64::MAX);
        assert_eq!((EntryId::MIN.previous(), largest.next()), (EntryId::MIN, largest));
    }

    #[test]
    fn entry_ids_are_parsed_and_printed() {
        let id: EntryId = "1718000000000-7".parse().unwrap();
        assert_eq!((id.ms, id.seq, id.to_string().as_str()), (1_718_000_000_000, 7, "1718000000000-7"));
        assert!("x-1".parse::<EntryId>().is_err());
    }

    /// The weight of an entry is computed here and in scripts.
    #[test]
    fn scripts_weigh_a_field_as_the_crate_does() {
        let mut weighing = 0;
        for file in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("lua")).unwrap() {
            let path = file.unwrap().path();
            let lua = fs::read_to_string(&path).unwrap();
            let Some(line) =
                lua.lines().find(|line| line.starts_with("local ") && line.contains("FIELD_BYTES"))
            else {
                continue;
            };
            let (names, values) = line.trim_start_matches("local ").split_once(" = ").unwrap();
            let at = names.split(", ").position(|name| name == "FIELD_BYTES").unwrap();
            let bytes = values.split(", ").nth(at).unwrap().parse();
            assert_eq!(bytes, Ok(FIELD_BYTES), "{}", path.display());
            weighing += 1;
        }
        assert!(weighing >= 3, "{weighing} scripts weigh entries");
    }
}
