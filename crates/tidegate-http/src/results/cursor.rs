//! The cursor of a reader of results: a position for each partition, as a text that only Tidegate reads.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use tidegate_orders::partition::{MOST_PARTITIONS, wrong_tags};
use tidegate_stream::EntryId;

use super::position::Position;

/// The version of the form of cursors.
const VERSION: u32 = 1;
/// The largest number of positions: those of a list, and of an earlier list whose results were not read to their end.
const MOST_POSITIONS: usize = 2 * MOST_PARTITIONS;

/// The positions of a reader in the results of all partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The hash of the list of partitions for which the cursor was made.
    list: u32,
    /// The position in each partition, by its tag. A system without partitions has the tag "".
    pub positions: Vec<(String, Position)>,
}

/// The reason why a text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`after` or Last-Event-ID is not a cursor of this version: send a cursor of an answer unchanged, or leave it out \
     to read all results that are kept"
)]
pub struct BadCursor;

/// A cursor as JSON: the version, the hash of the list, and the positions.
#[derive(Serialize, Deserialize)]
struct Written(u32, u32, Vec<WrittenPosition>);

/// A position as JSON: tag, milliseconds and sequence of the id, ordinal, history.
#[derive(Serialize, Deserialize)]
struct WrittenPosition(String, u64, u64, Option<u64>, Option<u32>);

impl Cursor {
    /// Creates a cursor for a system with these tags of partitions, with the same position in each partition.
    pub fn new(tags: &[String], position: &Position) -> Self {
        let positions = named(tags).map(|tag| (tag.to_owned(), position.clone())).collect();
        Self { list: hash_of_list(tags), positions }
    }

    /// Parses a cursor that [`Cursor::text`] has written.
    ///
    /// # Errors
    /// Fails if the text is anything else.
    pub fn parse(text: &str) -> Result<Self, BadCursor> {
        let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCursor)?;
        let Written(version, list, positions) = serde_json::from_slice(&json).map_err(|_| BadCursor)?;
        let tags: Vec<String> =
            positions.iter().map(|it| it.0.clone()).filter(|tag| !tag.is_empty()).collect();
        // The largest id has no next one, so Redis refuses to read after it.
        let are_ids = positions.iter().all(|it| it.1 < u64::MAX);
        let are_tags = tags.chunks(MOST_PARTITIONS).all(|tags| wrong_tags(tags).is_empty());
        if version != VERSION || !(1..=MOST_POSITIONS).contains(&positions.len()) || !are_tags || !are_ids {
            return Err(BadCursor);
        }
        let position = |WrittenPosition(tag, ms, seq, ordinal, history)| {
            (tag, Position { after: EntryId { ms, seq }, ordinal, history })
        };
        Ok(Self { list, positions: positions.into_iter().map(position).collect() })
    }

    /// Returns the cursor as a text that fits into a URL.
    pub fn text(&self) -> String {
        let position = |(tag, it): &(String, Position)| {
            WrittenPosition(tag.clone(), it.after.ms, it.after.seq, it.ordinal, it.history)
        };
        let written = Written(VERSION, self.list, self.positions.iter().map(position).collect());
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&written).unwrap_or_default())
    }

    /// Adapts the cursor to a list of partitions. A partition of both lists keeps its position, because a change of the
    /// list does not change its stream. A new partition begins before the newest position, because it has no result
    /// from before the change. A removed partition stays until its stream was read to its end.
    #[must_use]
    pub fn for_list(mut self, tags: &[String]) -> Self {
        let list = hash_of_list(tags);
        if list == self.list {
            return self;
        }
        let newest = self.positions.iter().map(|(_, position)| position).max_by_key(|it| it.after);
        let begin = newest.map_or(Position::OLDEST, Position::in_new_stream);
        for tag in named(tags) {
            if self.positions.iter().all(|(own, _)| own != tag) {
                self.positions.push((tag.to_owned(), begin.clone()));
            }
        }
        Self { list, ..self }
    }
}

/// The tags as cursors have them: a system without partitions has one tag, which is empty.
fn named(tags: &[String]) -> impl Iterator<Item = &str> {
    let whole = tags.is_empty().then_some("");
    tags.iter().map(String::as_str).chain(whole)
}

fn hash_of_list(tags: &[String]) -> u32 {
    let mut tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    tags.sort_unstable();
    hash(&tags.join(" "))
}

/// A hash of a text that is the same in all versions of the program (FNV-1a).
pub fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    fn position(ms: u64) -> Position {
        Position { after: EntryId { ms, seq: 1 }, ordinal: Some(7), history: Some(u32::MAX) }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_nothing_else_is_a_cursor() {
        for position in [position(1_718_000_000_000), Position::OLDEST] {
            let cursor = Cursor::new(&tags(&["a", "b-1"]), &position);
            assert_eq!(Cursor::parse(&cursor.text()), Ok(cursor));
        }
        let text = Cursor::new(&[], &position(5)).text();
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{text}");
        let other_version = URL_SAFE_NO_PAD.encode(r#"[2,1,[["",1,0,null,null]]]"#);
        let bad_tag = URL_SAFE_NO_PAD.encode(r#"[1,1,[["}",1,0,null,null]]]"#);
        let last_id = URL_SAFE_NO_PAD.encode(format!(r#"[1,1,[["",{},0,null,null]]]"#, u64::MAX));
        let no_position = URL_SAFE_NO_PAD.encode("[1,1,[]]");
        for bad in [
            "",
            "0",
            "latest",
            "!",
            &text[1..],
            &text[..text.len() - 2],
            &other_version,
            &bad_tag,
            &no_position,
            &last_id,
        ] {
            assert_eq!(Cursor::parse(bad), Err(BadCursor), "{bad}");
        }
    }

    #[test]
    fn another_list_keeps_positions_and_adds_new_partitions_before_the_newest() {
        let mut cursor = Cursor::new(&tags(&["a", "b"]), &position(500_000));
        cursor.positions[0].1 = position(100_000);
        assert_eq!(cursor.clone().for_list(&tags(&["b", "a"])), cursor);
        let changed = cursor.clone().for_list(&tags(&["b", "c"]));
        let new = Position { after: EntryId { ms: 439_999, seq: u64::MAX }, ordinal: None, history: None };
        let expected = [("a", position(100_000)), ("b", position(500_000)), ("c", new)];
        assert_eq!(changed.positions, expected.map(|(tag, position)| (tag.to_owned(), position)));
        assert_eq!(changed.clone().for_list(&tags(&["b", "c"])), changed);
        let whole = Cursor::new(&[], &Position::OLDEST);
        assert_eq!(whole.positions, [(String::new(), Position::OLDEST)]);
        assert_eq!(whole.for_list(&tags(&["a"])).positions[1], ("a".to_owned(), Position::OLDEST));
    }
}
