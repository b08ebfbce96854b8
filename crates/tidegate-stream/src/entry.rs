//! One entry of a stream, and the parsing of the replies that carry entries.

use std::{fmt, str::FromStr};

use bytes::Bytes;
use fred::types::Value;

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
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
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
}

impl Delivery {
    /// Nothing was delivered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.gone.is_empty()
    }

    /// Number of pending entries that were delivered, with or without payload.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() + self.gone.len()
    }

    /// The largest id that was delivered.
    #[must_use]
    pub fn last_id(&self) -> Option<EntryId> {
        let entry = self.entries.last().map(|entry| entry.id);
        entry.max(self.gone.iter().max().copied())
    }
}

/// A reply of a shape that no supported server sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Redis sent an unexpected reply where {expected} belongs: {got}")]
pub struct BadReply {
    expected: &'static str,
    got: String,
}

pub(crate) fn bad_reply(expected: &'static str, got: &Value) -> BadReply {
    let mut got = format!("{got:?}");
    if got.len() > 200 {
        got.truncate((0..=200).rev().find(|&at| got.is_char_boundary(at)).unwrap_or(0));
    }
    BadReply { expected, got }
}

/// Parses a reply of XREADGROUP for one stream. Null (nothing came before the block time ended) is empty.
///
/// RESP2 answers `[[stream, entries]]`, RESP3 a map `{stream: entries}`.
pub(crate) fn parse_read(reply: Value) -> Result<Delivery, BadReply> {
    match reply {
        Value::Null => Ok(Delivery::default()),
        Value::Array(streams) => match streams.into_iter().next() {
            None => Ok(Delivery::default()),
            Some(Value::Array(mut pair)) if pair.len() == 2 => parse_entries(pair.remove(1)),
            Some(other) => Err(bad_reply("[stream, entries]", &other)),
        },
        Value::Map(map) => match map.inner().into_iter().next() {
            None => Ok(Delivery::default()),
            Some((_, entries)) => parse_entries(entries),
        },
        other => Err(bad_reply("streams", &other)),
    }
}

/// A reply of XAUTOCLAIM: where the next scan starts, and what was claimed.
pub(crate) fn parse_claim(reply: Value) -> Result<(EntryId, Delivery), BadReply> {
    let Value::Array(parts) = reply else { return Err(bad_reply("[cursor, entries, deleted]", &reply)) };
    let mut parts = parts.into_iter();
    let (Some(cursor), Some(entries)) = (parts.next(), parts.next()) else {
        return Err(bad_reply("[cursor, entries, deleted]", &Value::Null));
    };
    let cursor = parse_id(&cursor)?;
    let mut delivery = parse_entries(entries)?;
    // Since Redis 7 the server has dropped these from the pending list already; acknowledging them again
    // does no harm, and one path for both versions is simpler.
    if let Some(Value::Array(deleted)) = parts.next() {
        for id in &deleted {
            delivery.gone.push(parse_id(id)?);
        }
    }
    Ok((cursor, delivery))
}

pub(crate) fn parse_entries(value: Value) -> Result<Delivery, BadReply> {
    let items = match value {
        Value::Array(items) => items,
        Value::Null => return Ok(Delivery::default()),
        other => return Err(bad_reply("entries", &other)),
    };
    let mut delivery = Delivery { entries: Vec::with_capacity(items.len()), gone: Vec::new() };
    for item in items {
        let Value::Array(mut pair) = item else {
            // XAUTOCLAIM before Redis 7 answers a bare null for a deleted entry: without an id there is
            // nothing to acknowledge, but the next read of the own pending list shows it with its id.
            if item.is_null() {
                continue;
            }
            return Err(bad_reply("[id, fields]", &item));
        };
        if pair.len() != 2 {
            return Err(bad_reply("[id, fields]", &Value::Array(pair)));
        }
        let fields = pair.pop().unwrap_or(Value::Null);
        let id = parse_id(&pair[0])?;
        match fields {
            Value::Null => delivery.gone.push(id),
            fields => delivery.entries.push(Entry { id, fields: parse_fields(fields)? }),
        }
    }
    Ok(delivery)
}

fn parse_fields(value: Value) -> Result<Vec<(Bytes, Bytes)>, BadReply> {
    let items = match value {
        Value::Array(items) => items,
        other => return Err(bad_reply("fields", &other)),
    };
    let mut fields = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        fields.push((into_bytes(name)?, into_bytes(value)?));
    }
    Ok(fields)
}

pub(crate) fn parse_id(value: &Value) -> Result<EntryId, BadReply> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| bad_reply("an entry id", value))
}

pub(crate) fn into_bytes(value: Value) -> Result<Bytes, BadReply> {
    match value {
        Value::String(text) => Ok(text.into_inner()),
        Value::Bytes(bytes) => Ok(bytes),
        Value::Integer(number) => Ok(Bytes::from(number.to_string())),
        other => Err(bad_reply("a string", &other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::String(text.into())
    }

    #[test]
    fn a_pending_entry_without_payload_does_not_hide_its_neighbours() {
        let whole = Value::Array(vec![text("2-0"), Value::Array(vec![text("a"), text("1")])]);
        let gone = Value::Array(vec![text("1-0"), Value::Null]);
        let reply = Value::Array(vec![Value::Array(vec![text("s"), Value::Array(vec![gone, whole])])]);
        let delivery = parse_read(reply).unwrap();
        assert_eq!(delivery.gone, [EntryId { ms: 1, seq: 0 }]);
        assert_eq!(delivery.entries[0].fields, [(Bytes::from("a"), Bytes::from("1"))]);
        assert_eq!(delivery.last_id(), Some(EntryId { ms: 2, seq: 0 }));
    }

    #[test]
    fn a_block_that_timed_out_is_an_empty_delivery() {
        assert!(parse_read(Value::Null).unwrap().is_empty());
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_and_no_panic() {
        for reply in [Value::Integer(1), text("x"), Value::Array(vec![Value::Integer(1)])] {
            assert!(parse_read(reply.clone()).is_err());
            assert!(parse_claim(reply).is_err());
        }
    }

    #[test]
    fn entry_ids_are_parsed_and_printed() {
        let id: EntryId = "1718000000000-7".parse().unwrap();
        assert_eq!((id.ms, id.seq, id.to_string().as_str()), (1_718_000_000_000, 7, "1718000000000-7"));
        assert!("x-1".parse::<EntryId>().is_err());
    }
}
