//! The journal of a voucher in Redis: the last movement of each order that was admitted or released, and the movements
//! of the whole sale. The Lua scripts write the notes and search them as text; in the program, only this module reads
//! them.
//!
//! A journal with a field `#complete` holds every movement of the stock: the sum of all changes is the stock. A release
//! keeps the admission that it released, so it counts with both changes.

mod purged;
mod snapshot;
mod sum;
pub mod write;

use serde::Deserialize;
use serde_json::Value;

pub use self::{
    purged::{PURGED, Purged},
    snapshot::JournalSnapshot,
    sum::{JournalSum, Sum},
};
use crate::order::{Order, OrderId, Slot, UserId, Uses};

const ADMIT: &str = "admit";
const RELEASE: &str = "release";

/// The field that marks a complete journal, which holds every movement. Its value is a note like the others, without a
/// change.
pub const COMPLETE: &str = "#complete";

/// The field that marks a voucher with limits. Its value is a note like the others, without a change.
pub const LIMITED: &str = "#limited";

/// The subject of a field of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalField<'a> {
    /// The last movement of an order.
    Order(OrderId),
    /// The mark of a complete journal.
    Complete,
    /// A movement of the whole sale, without the `#`: `load`, `add:<id>`, `take:<id>`, `repair:<id>`, `purged`,
    /// `limited`.
    Sale(&'a str),
    /// A field of another program: it is neither an order id nor begins with `#`.
    Other,
}

impl<'a> JournalField<'a> {
    /// Reads the name of a field.
    #[must_use]
    pub fn parse(name: &'a str) -> Self {
        match name.strip_prefix('#') {
            Some(_) if name == COMPLETE => Self::Complete,
            Some(movement) => Self::Sale(movement),
            None => name.parse().map_or(Self::Other, Self::Order),
        }
    }
}

/// A note of the journal about one movement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalNote {
    /// The action, `admit` or `release`; empty if the note names none.
    pub action: String,
    /// The units that moved, below 0 for an admission.
    pub change: Option<i64>,
    /// The user of an admission; for a release, the program or user that released.
    pub by: Option<String>,
    /// The time of the movement, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The units left before the movement; None if no stock was loaded.
    pub from: Option<i64>,
    /// The units left after the movement.
    pub to: Option<i64>,
    /// For a release, the admission that it released. None: the journal did not hold one, or an older script wrote the
    /// note.
    pub admitted: Option<ReleasedAdmission>,
    /// For an admission under limits, its slot and its uses of limits.
    pub limited: Option<UnderLimits>,
    /// For an admission that a repair restored, the repair, as `repair:<id>`. For a release, [`JournalNote::by`] names
    /// the repair.
    pub repaired: Option<String>,
}

/// The additional facts of an admission under limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLimits {
    /// The slot of the order among the user's orders.
    pub slot: Slot,
    /// The uses of limits by the order.
    pub uses: Uses,
}

/// An admission that a release has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedAdmission {
    /// The user of the order.
    pub user: Option<UserId>,
    /// The units that moved, below 0.
    pub change: i64,
    /// The time of the admission, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The units left before the admission. None: the writer of the release did not keep this.
    pub from: Option<i64>,
}

/// A note with values of any type: a note of another program is read as far as possible.
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
    #[serde(default)]
    from: Value,
    #[serde(default)]
    to: Value,
    #[serde(default)]
    admitted: Value,
    /// The member has the name that it had in the first version.
    #[serde(default, rename = "mended")]
    repaired: Value,
    #[serde(default)]
    slot: Value,
    #[serde(default)]
    uses: Value,
}

impl JournalNote {
    /// Parses the journal's note of an order. None: the text is no JSON object.
    #[must_use]
    pub fn parse(note: &[u8]) -> Option<Self> {
        let Note { action, change, by, timestamp, from, to, admitted, repaired, slot, uses } =
            serde_json::from_slice(note).ok()?;
        Some(Self {
            action: text(action).unwrap_or_default(),
            change: change.as_i64(),
            by: text(by),
            at_ms: timestamp.as_i64(),
            from: from.as_i64(),
            to: to.as_i64(),
            admitted: ReleasedAdmission::read(&admitted),
            limited: UnderLimits::read(&slot, &uses),
            repaired: text(repaired),
        })
    }

    /// The change of the stock by this note, together with the admission that it released. The sum over a complete
    /// journal is the stock. A release of an older script does not keep its admission, and counts as 0.
    #[must_use]
    pub fn total_change(&self) -> i64 {
        if self.is_release() && self.admitted.is_none() {
            return 0;
        }
        self.change.unwrap_or(0) + self.admitted.map_or(0, |admitted| admitted.change)
    }

    /// Whether the order is admitted and was not released since.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == ADMIT
    }

    /// Whether the order was released.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == RELEASE
    }

    /// The user of the admitted order. None: the order was released, or the note names no valid user.
    #[must_use]
    pub fn buyer(&self) -> Option<UserId> {
        self.by.as_ref().filter(|_| self.is_admission())?.parse().ok()
    }

    /// Whether the note names this user.
    #[must_use]
    pub fn is_by(&self, user: UserId) -> bool {
        self.by.as_ref().is_some_and(|by| *by == user.to_string())
    }
}

impl UnderLimits {
    fn read(slot: &Value, uses: &Value) -> Option<Self> {
        let uses = Uses::parse(uses.as_str()?.as_bytes())?;
        let slot = slot.as_i64().map_or(Ok(Slot::FIRST), Slot::try_from).ok()?;
        Some(Self { slot, uses })
    }

    /// The facts in an order, if it was admitted under limits.
    #[must_use]
    pub fn of(order: &Order) -> Option<Self> {
        order.uses.clone().map(|uses| Self { slot: order.slot, uses })
    }
}

impl ReleasedAdmission {
    fn read(note: &Value) -> Option<Self> {
        let user = note.get("user").and_then(Value::as_str).and_then(|user| user.parse().ok());
        let at_ms = note.get("timestamp").and_then(Value::as_i64);
        let from = note.get("from").and_then(Value::as_i64);
        Some(Self { user, change: note.get("change")?.as_i64()?, at_ms, from })
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
        let entry = JournalNote::parse(admit).unwrap();
        assert!(entry.is_admission() && !entry.is_release() && entry.is_by(77.try_into().unwrap()));
        assert_eq!((entry.change, entry.at_ms), (Some(-2), Some(1_718_000_000_000)));
        let release =
            br#"{"action":"release","from":null,"to":null,"change":0,"by":"worker:x","timestamp":1}"#;
        let entry = JournalNote::parse(release).unwrap();
        assert!(entry.is_release() && !entry.is_admission());
        assert_eq!(entry.by.as_deref(), Some("worker:x"));
    }

    #[test]
    fn a_release_keeps_what_it_released() {
        let release =
            br#"{"action":"release","from":3,"to":5,"change":2,"by":"worker:out_of_stock","timestamp":9,
            "admitted":{"user":"77","change":-2,"timestamp":7,"from":5}}"#;
        let entry = JournalNote::parse(release).unwrap();
        let admitted = ReleasedAdmission {
            user: Some(77.try_into().unwrap()),
            change: -2,
            at_ms: Some(7),
            from: Some(5),
        };
        assert_eq!((entry.admitted, entry.total_change()), (Some(admitted), 0));
        assert_eq!((entry.from, entry.to), (Some(3), Some(5)));
    }

    #[test]
    fn fields_are_orders_or_movements_of_the_sale() {
        assert_eq!(JournalField::parse("42"), JournalField::Order(42.try_into().unwrap()));
        assert_eq!(JournalField::parse("#complete"), JournalField::Complete);
        assert_eq!(JournalField::parse("#add:ab"), JournalField::Sale("add:ab"));
        assert_eq!(JournalField::parse("1a"), JournalField::Other);
    }

    #[test]
    fn a_note_that_somebody_else_wrote_is_read_as_far_as_it_can_be() {
        let entry = JournalNote::parse(br#"{"action":"admit","by":77,"timestamp":"now"}"#).unwrap();
        assert!(entry.is_admission() && entry.by.is_none() && entry.at_ms.is_none());
        assert_eq!(JournalNote::parse(b"{}"), Some(JournalNote::default()));
        assert_eq!(JournalNote::parse(b"{"), None);
    }
}
