//! One entry of a stream, and what one read or claim delivered of them.

mod replies;

use std::{fmt, str::FromStr};

use bytes::Bytes;
use serde::{Serialize, Serializer};

pub use replies::BadReply;
pub(crate) use replies::{
    Claimed, Fetched, bad_reply, parse_claim, parse_entries, parse_fetched, parse_glimpsed, parse_id,
    parse_pending, parse_read,
};

/// The id of a stream entry: milliseconds of the server's clock, then a sequence within that millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Unix time in milliseconds.
    pub ms: u64,
    /// Sequence number within the millisecond.
    pub seq: u64,
}

impl EntryId {
    /// The smallest id; reading after it reads from the start.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The largest id.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The id right after this one; the largest has none and stays.
    #[must_use]
    pub fn next(self) -> Self {
        match (self.seq.checked_add(1), self.ms.checked_add(1)) {
            (Some(seq), _) => Self { seq, ..self },
            (None, Some(ms)) => Self { ms, seq: 0 },
            (None, None) => self,
        }
    }

    /// The id right before this one; the smallest has none and stays.
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
    /// As Redis writes it.
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

/// An entry of the group's pending list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// Which entry.
    pub id: EntryId,
    /// The consumer that holds it.
    pub consumer: String,
    /// Milliseconds since it was last delivered, or kept by its consumer; see [`crate::is_claimable`].
    pub idle_ms: u64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A text that is no `<ms>-<seq>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a stream entry id; it looks like 1718000000000-0")]
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

/// What a field weighs beside the bytes of its name and value: about what it costs a worker, however small it is.
/// `lua/fetch.lua` has the same number.
pub const FIELD_BYTES: usize = 64;

/// What fields weigh: the bytes of their names and values, and 64 for each field.
pub(crate) fn weight(fields: &[(Bytes, Bytes)]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_BYTES).sum()
}

/// An entry with its payload, as the producer wrote it: any bytes, any order, fields may repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands in the stream.
    pub id: EntryId,
    /// Field names and values in the order in which they were written.
    pub fields: Vec<(Bytes, Bytes)>,
}

/// What one read or claim delivered to a consumer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Entries in stream order.
    pub entries: Vec<Entry>,
    /// Pending entries whose payload was deleted or trimmed away: nothing can be done for them but to count,
    /// report and acknowledge.
    pub gone: Vec<EntryId>,
    /// Entries that are larger than any that is supported; their payload stays where it is.
    pub large: Vec<EntryId>,
    /// Those of `entries` that were in progress when a process died.
    pub survivors: Vec<EntryId>,
}

impl Delivery {
    /// Nothing was delivered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pending entries that were delivered, with or without payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.gone.len() + self.large.len()
    }

    /// The largest id that was delivered.
    #[must_use]
    pub fn last_id(&self) -> Option<EntryId> {
        let entry = self.entries.last().map(|entry| entry.id);
        entry.max(self.gone.iter().max().copied()).max(self.large.iter().max().copied())
    }

    /// Bytes of all names and values, and 64 for each field.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.iter().map(Entry::bytes).sum()
    }

    /// Appends what was delivered after it.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.entries.append(&mut later.entries);
        self.gone.append(&mut later.gone);
        self.large.append(&mut later.large);
        self.survivors.append(&mut later.survivors);
    }

    /// Lets go of the payload of entries that weigh more than `largest` bytes.
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
    /// Bytes of its names and values, and 64 for each field.
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

    /// What an entry weighs is counted here and in scripts.
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
