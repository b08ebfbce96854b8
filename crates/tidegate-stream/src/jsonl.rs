//! Entries as lines of JSON, one entry per line: `export` writes them, and `replay --file` reads them.
//!
//! ```json
//! {"entry":"1718000000000-0","fields":[["user","2001"],["item","7"],["id","693106606080001"]]}
//! ```
//!
//! Fields are pairs, because their order matters and a name may occur twice. A name or value that is not UTF-8 is
//! written as `{"base64":"//4="}`. Other members of a line are ignored, so a program that exports dead letters may add
//! their reasons.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::entry::{BadEntryId, Entry};

/// One entry as a line of JSON. Flatten this type into a struct to add more members to the line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryLine {
    entry: String,
    fields: Vec<(Text, Text)>,
}

/// A name or value: text if it is UTF-8, otherwise base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = r#"a name or a value must be text or {"base64":"..."}"#)]
enum Text {
    Utf8(String),
    Bytes { base64: String },
}

/// The reason why a line of JSON does not hold an entry.
#[derive(Debug, thiserror::Error)]
pub enum BadLine {
    /// The line is not JSON, or does not have the members of an entry.
    #[error("not of the form {{\"entry\":\"<id>\",\"fields\":[[\"name\",\"value\"],...]}}: {}", in_one_line(.0))]
    Shape(#[from] serde_json::Error),
    /// The line begins with a byte order mark, which some editors write before the first line.
    #[error("begins with a byte order mark, which JSON does not allow: save the file without this mark")]
    ByteOrderMark,
    /// The member `entry` is not an entry id.
    #[error(transparent)]
    Id(#[from] BadEntryId),
    /// A member `base64` does not hold valid base64.
    #[error("bad base64: {0}")]
    Base64(#[from] base64::DecodeError),
}

impl EntryLine {
    /// Returns the entry as a line of JSON, without the line break.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings are JSON")
    }

    /// Parses a line of JSON into an entry. The line may end with a line break.
    ///
    /// # Errors
    /// When the line does not hold an entry: see [`BadLine`].
    pub fn parse(line: &[u8]) -> Result<Entry, BadLine> {
        if line.starts_with("\u{feff}".as_bytes()) {
            return Err(BadLine::ByteOrderMark);
        }
        serde_json::from_slice::<Self>(line)?.try_into()
    }
}

/// Removes the line number from an error of serde: it is always 1, and only the caller knows the real number.
fn in_one_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

impl From<&Entry> for EntryLine {
    fn from(entry: &Entry) -> Self {
        let fields = entry.fields.iter().map(|(name, value)| (Text::from(name), Text::from(value)));
        Self { entry: entry.id.to_string(), fields: fields.collect() }
    }
}

impl TryFrom<EntryLine> for Entry {
    type Error = BadLine;

    fn try_from(line: EntryLine) -> Result<Self, BadLine> {
        let fields = line.fields.into_iter().map(|(name, value)| Ok((name.try_into()?, value.try_into()?)));
        Ok(Self { id: line.entry.parse()?, fields: fields.collect::<Result<_, BadLine>>()? })
    }
}

impl From<&Bytes> for Text {
    fn from(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Utf8(text.to_owned()),
            Err(_) => Self::Bytes { base64: BASE64.encode(bytes) },
        }
    }
}

impl TryFrom<Text> for Bytes {
    type Error = BadLine;

    fn try_from(text: Text) -> Result<Self, BadLine> {
        Ok(match text {
            Text::Utf8(text) => text.into(),
            Text::Bytes { base64 } => BASE64.decode(base64)?.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::entry::EntryId;

    #[test]
    fn a_line_is_what_the_documentation_says() {
        let field = |name: &'static str, value: &'static [u8]| (Bytes::from(name), Bytes::from_static(value));
        let fields = vec![field("userId", b"2001"), field("x", b"\xff\xfe"), field("x", b"\"\n")];
        let entry = Entry { id: EntryId { ms: 1_718_000_000_000, seq: 0 }, fields };
        let line = r#"{"entry":"1718000000000-0","fields":[["userId","2001"],["x",{"base64":"//4="}],["x","\"\n"]]}"#;
        assert_eq!(EntryLine::from(&entry).to_json(), line);
        assert_eq!(EntryLine::parse(line.as_bytes()).unwrap(), entry);
    }

    #[test]
    fn more_members_are_ignored_and_missing_ones_are_an_error() {
        assert!(EntryLine::parse(br#"{"entry":"1-0","fields":[],"dead":{"reason":"bad_value"}}"#).is_ok());
        for bad in [
            &b""[..],
            b"{}",
            br#"{"entry":"1-0"}"#,
            br#"{"entry":"x","fields":[]}"#,
            br#"{"entry":1,"fields":[]}"#,
            br#"{"entry":"1-0","fields":[["a"]]}"#,
            br#"{"entry":"1-0","fields":[["a",7]]}"#,
            br#"{"entry":"1-0","fields":[["a",{"base64":"?"}]]}"#,
            br#"{"entry":"1-0","fields":[["a","b"]]"#,
        ] {
            assert!(EntryLine::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_the_words_of_a_parser() {
        let form = r#"not of the form {"entry":"<id>","fields":[["name","value"],...]}: "#;
        for (line, said) in [
            (
                &br#"{"entry":"1-0","fields":[["a",7]]}"#[..],
                r#"a name or a value must be text or {"base64":"..."}"#,
            ),
            (b"entry", "expected value at column 1"),
            (br#"{"entry":"1-0"}"#, "missing field `fields` at column 15"),
        ] {
            let error = EntryLine::parse(line).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{form}{said}")), "{error}");
            assert!(!error.contains(" line ") && !error.contains("untagged"), "{error}");
        }
        let marked = "\u{feff}{\"entry\":\"1-0\",\"fields\":[]}";
        assert!(EntryLine::parse(marked.as_bytes()).unwrap_err().to_string().contains("byte order mark"));
    }

    proptest! {
        #[test]
        fn whatever_bytes_an_entry_holds_come_back_from_one_line(
            ids in any::<(u64, u64)>(),
            fields in prop::collection::vec(any::<(Vec<u8>, Vec<u8>)>(), 0..6),
        ) {
            let fields = fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            let entry = Entry { id: EntryId { ms: ids.0, seq: ids.1 }, fields };
            let line = EntryLine::from(&entry).to_json();
            prop_assert!(!line.contains('\n'));
            prop_assert_eq!(EntryLine::parse(line.as_bytes()).unwrap(), entry);
        }
    }
}
