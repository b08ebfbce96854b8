//! Parsers of the replies that carry entries and their ids.

use bytes::Bytes;
use fred::types::{Resp3Frame as Frame, Value};

use super::{Delivery, Entry, EntryId, PendingEntry};

/// The result of a scan that claims idle entries of other consumers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// The cursor of the next scan; [`EntryId::MIN`] when the whole list was scanned.
    pub(crate) cursor: EntryId,
    pub(crate) ids: Vec<EntryId>,
    /// Deleted entries, which are not pending any more since Redis 7; before, they are among `ids`.
    pub(crate) gone: Vec<EntryId>,
}

/// The result of fetching the payloads of pending entries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) delivery: Delivery,
    /// Entries that crashed too many processes, each with the number of these crashes.
    pub(crate) withheld: Vec<(EntryId, u32)>,
    /// The number of ids that the script handled; the batch had no room for the rest.
    pub(crate) looked: usize,
}

/// The error for a reply in a form that no supported Redis version sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Redis sent an unexpected reply: expected {expected}, got {got}")]
pub struct BadReply {
    expected: &'static str,
    got: String,
}

pub(crate) fn bad_reply(expected: &'static str, got: &Value) -> BadReply {
    unexpected(expected, format!("{got:?}"))
}

fn bad_frame(expected: &'static str, got: &Frame) -> BadReply {
    unexpected(expected, format!("{got:?}"))
}

fn unexpected(expected: &'static str, mut got: String) -> BadReply {
    if got.len() > 200 {
        got.truncate((0..=200).rev().find(|&at| got.is_char_boundary(at)).unwrap_or(0));
    }
    BadReply { expected, got }
}

/// Parses a reply of XREADGROUP for one stream. Null, if no entry came within the block time, gives an empty delivery.
///
/// RESP2 answers `[[stream, entries]]`, RESP3 a map `{stream: entries}`.
pub(crate) fn parse_read(reply: Frame) -> Result<Delivery, BadReply> {
    match reply {
        Frame::Null => Ok(Delivery::default()),
        Frame::Array { data: streams, .. } => match streams.into_iter().next() {
            None => Ok(Delivery::default()),
            Some(Frame::Array { data: mut pair, .. }) if pair.len() == 2 => parse_entries(pair.remove(1)),
            Some(other) => Err(bad_frame("[stream, entries]", &other)),
        },
        Frame::Map { data: streams, .. } => match streams.into_iter().next() {
            None => Ok(Delivery::default()),
            Some((_, entries)) => parse_entries(entries),
        },
        other => Err(bad_frame("streams", &other)),
    }
}

/// Parses a reply of XAUTOCLAIM with JUSTID.
pub(crate) fn parse_claim(reply: Frame) -> Result<Claimed, BadReply> {
    let Frame::Array { data: parts, .. } = reply else {
        return Err(bad_frame("[cursor, ids, deleted]", &reply));
    };
    match parts.as_slice() {
        [cursor, ids] => {
            Ok(Claimed { cursor: parse_frame_id(cursor)?, ids: parse_ids(ids)?, gone: Vec::new() })
        }
        [cursor, ids, deleted] => {
            Ok(Claimed { cursor: parse_frame_id(cursor)?, ids: parse_ids(ids)?, gone: parse_ids(deleted)? })
        }
        _ => Err(bad_frame("[cursor, ids, deleted]", &Frame::Null)),
    }
}

/// Parses a reply of `lua/fetch.lua`.
pub(crate) fn parse_fetched(reply: Frame) -> Result<Fetched, BadReply> {
    const EXPECTED: &str = "[entries, gone, large, withheld, survivors, number]";
    let Frame::Array { data: parts, .. } = reply else { return Err(bad_frame(EXPECTED, &reply)) };
    let Ok([entries, gone, large, withheld, survivors, looked]) = <[Frame; 6]>::try_from(parts) else {
        return Err(bad_frame(EXPECTED, &Frame::Null));
    };
    let mut delivery = parse_entries(entries)?;
    delivery.gone = parse_ids(&gone)?;
    delivery.large = parse_ids(&large)?;
    delivery.survivors = parse_ids(&survivors)?;
    let Frame::Array { data: pairs, .. } = withheld else {
        return Err(bad_frame("[id, crashes, ...]", &withheld));
    };
    let pair = |pair: &[Frame]| {
        Ok((parse_frame_id(&pair[0])?, u32::try_from(number(&pair[1])?).unwrap_or(u32::MAX)))
    };
    let withheld: Result<Vec<(EntryId, u32)>, BadReply> = pairs.chunks_exact(2).map(pair).collect();
    let looked = usize::try_from(number(&looked)?).unwrap_or_default();
    Ok(Fetched { delivery, withheld: withheld?, looked })
}

/// Parses a reply of `lua/peek.lua`: the fields of each entry that the script read; None: there is no such entry.
pub(crate) fn parse_glimpsed(reply: Frame) -> Result<Vec<Option<Fields>>, BadReply> {
    let Frame::Array { data: entries, .. } = reply else {
        return Err(bad_frame("fields of entries", &reply));
    };
    let fields = |entry| match entry {
        Frame::Null => Ok(None),
        fields => parse_fields(fields).map(Some),
    };
    entries.into_iter().map(fields).collect()
}

/// Parses `[[id, consumer, idle, deliveries], ...]`.
pub(crate) fn parse_pending(reply: &Frame) -> Result<Vec<PendingEntry>, BadReply> {
    let Frame::Array { data: rows, .. } = reply else { return Err(bad_frame("pending entries", reply)) };
    let pending_entry = |row: &Frame| {
        if let Frame::Array { data, .. } = row
            && let [id, consumer, idle_ms, deliveries] = data.as_slice()
            && let Some(consumer) = text(consumer)
            && let Ok(idle_ms) = u64::try_from(number(idle_ms)?)
            && let Ok(deliveries) = u64::try_from(number(deliveries)?)
        {
            let (id, consumer) = (parse_frame_id(id)?, consumer.to_owned());
            return Ok(PendingEntry { id, consumer, idle_ms, deliveries });
        }
        Err(bad_frame("[id, consumer, idle, deliveries]", row))
    };
    rows.iter().map(pending_entry).collect()
}

fn number(frame: &Frame) -> Result<i64, BadReply> {
    match frame {
        Frame::Number { data, .. } => Ok(*data),
        other => Err(bad_frame("a number", other)),
    }
}

fn parse_ids(frame: &Frame) -> Result<Vec<EntryId>, BadReply> {
    match frame {
        Frame::Array { data, .. } => data.iter().map(parse_frame_id).collect(),
        Frame::Null => Ok(Vec::new()),
        other => Err(bad_frame("ids", other)),
    }
}

/// Parses `[[id, [name, value, ...]], ...]` directly from the frames of the connection. This happens for every entry,
/// and the client's own values would only be built to be taken apart again.
pub(crate) fn parse_entries(reply: Frame) -> Result<Delivery, BadReply> {
    let items = match reply {
        Frame::Array { data, .. } => data,
        Frame::Null => return Ok(Delivery::default()),
        other => return Err(bad_frame("entries", &other)),
    };
    let mut delivery = Delivery { entries: Vec::with_capacity(items.len()), ..Delivery::default() };
    for item in items {
        let mut pair = match item {
            Frame::Array { data, .. } if data.len() == 2 => data,
            other => return Err(bad_frame("[id, fields]", &other)),
        };
        let fields = pair.pop().unwrap_or(Frame::Null);
        let id = parse_frame_id(&pair[0])?;
        match fields {
            Frame::Null => delivery.gone.push(id),
            fields => delivery.entries.push(Entry { id, fields: parse_fields(fields)? }),
        }
    }
    Ok(delivery)
}

type Fields = Vec<(Bytes, Bytes)>;

fn parse_fields(reply: Frame) -> Result<Fields, BadReply> {
    let items = match reply {
        Frame::Array { data, .. } => data,
        other => return Err(bad_frame("fields", &other)),
    };
    let mut fields = Vec::with_capacity(items.len() / 2);
    let mut items = items.into_iter();
    while let (Some(name), Some(value)) = (items.next(), items.next()) {
        fields.push((into_bytes(name)?, into_bytes(value)?));
    }
    Ok(fields)
}

fn into_bytes(frame: Frame) -> Result<Bytes, BadReply> {
    match frame {
        Frame::BlobString { data, .. } | Frame::SimpleString { data, .. } => Ok(data),
        Frame::Number { data, .. } => Ok(Bytes::from(data.to_string())),
        other => Err(bad_frame("a string", &other)),
    }
}

fn text(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::BlobString { data, .. } | Frame::SimpleString { data, .. } => std::str::from_utf8(data).ok(),
        _ => None,
    }
}

fn parse_frame_id(frame: &Frame) -> Result<EntryId, BadReply> {
    text(frame).and_then(|text| text.parse().ok()).ok_or_else(|| bad_frame("an entry id", frame))
}

pub(crate) fn parse_id(value: &Value) -> Result<EntryId, BadReply> {
    value.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| bad_reply("an entry id", value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Frame {
        Frame::BlobString { data: Bytes::copy_from_slice(text.as_bytes()), attributes: None }
    }

    fn array(data: Vec<Frame>) -> Frame {
        Frame::Array { data, attributes: None }
    }

    #[test]
    fn a_pending_entry_without_payload_does_not_hide_its_neighbours() {
        let whole = array(vec![text("2-0"), array(vec![text("a"), text("1")])]);
        let gone = array(vec![text("1-0"), Frame::Null]);
        let reply = array(vec![array(vec![text("s"), array(vec![gone, whole])])]);
        let delivery = parse_read(reply).unwrap();
        assert_eq!(delivery.gone, [EntryId { ms: 1, seq: 0 }]);
        assert_eq!(delivery.entries[0].fields, [(Bytes::from("a"), Bytes::from("1"))]);
        assert_eq!(delivery.last_id(), Some(EntryId { ms: 2, seq: 0 }));
    }

    #[test]
    fn a_block_that_timed_out_is_an_empty_delivery() {
        assert!(parse_read(Frame::Null).unwrap().is_empty());
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_and_no_panic() {
        let number = Frame::Number { data: 1, attributes: None };
        for reply in [number.clone(), text("x"), array(vec![number])] {
            assert!(parse_read(reply.clone()).is_err());
            assert!(parse_claim(reply).is_err());
        }
    }
}
