//! The journal of a voucher in Redis: a note for each order that was admitted or given back. The scripts write the notes, and
//! look into them by their text; this is the one place of the program that reads them.

use serde::Deserialize;
use serde_json::Value;

use crate::order::UserId;

const ADMIT: &str = "admit";
const RELEASE: &str = "release";

/// A note of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalEntry {
    /// `admit` or `release`; empty where the note does not say.
    pub action: String,
    /// Units that moved: below 0 of an admission.
    pub change: Option<i64>,
    /// The user of an admission; of a release, who gave back.
    pub by: Option<String>,
    /// When, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
}

/// Values of any type: a note that somebody else wrote is read as far as it can be.
#[derive(Deserialize)]
struct Note {
    #[serde(default)]
    action: Value,
    #[serde(default)]
    change: Value,
    #[serde(default)]
    by: Value,
    #[serde(default)]
    timestamp: Value,
}

impl JournalEntry {
    /// Reads a note. None: it is no JSON object.
    #[must_use]
    pub fn parse(note: &[u8]) -> Option<Self> {
        let Note { action, change, by, timestamp } = serde_json::from_slice(note).ok()?;
        Some(Self {
            action: text(action).unwrap_or_default(),
            change: change.as_i64(),
            by: text(by),
            at_ms: timestamp.as_i64(),
        })
    }

    /// The order was given to its user, and was not given back since.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == ADMIT
    }

    /// The order was given back.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == RELEASE
    }

    /// This user admitted it, or gave it back.
    #[must_use]
    pub fn is_by(&self, user: UserId) -> bool {
        self.by.as_ref().is_some_and(|by| *by == user.to_string())
    }
}

fn text(value: Value) -> Option<String> {
    if let Value::String(text) = value { Some(text) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_the_scripts_are_read() {
        let admit = br#"{"action":"admit","from":5,"to":3,"change":-2,"by":"77","timestamp":1718000000000}"#;
        let entry = JournalEntry::parse(admit).unwrap();
        assert!(entry.is_admission() && !entry.is_release() && entry.is_by(77.try_into().unwrap()));
        assert_eq!((entry.change, entry.at_ms), (Some(-2), Some(1_718_000_000_000)));
        let release =
            br#"{"action":"release","from":null,"to":null,"change":0,"by":"worker:x","timestamp":1}"#;
        let entry = JournalEntry::parse(release).unwrap();
        assert!(entry.is_release() && !entry.is_admission());
        assert_eq!(entry.by.as_deref(), Some("worker:x"));
    }

    #[test]
    fn a_note_that_somebody_else_wrote_is_read_as_far_as_it_can_be() {
        let entry = JournalEntry::parse(br#"{"action":"admit","by":77,"timestamp":"now"}"#).unwrap();
        assert!(entry.is_admission() && entry.by.is_none() && entry.at_ms.is_none());
        assert_eq!(JournalEntry::parse(b"{}"), Some(JournalEntry::default()));
        assert_eq!(JournalEntry::parse(b"{"), None);
    }
}
