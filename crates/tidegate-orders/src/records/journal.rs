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

/// The field of a journal (Redis hash) which says that the journal is complete: it notes every change of the voucher's
/// stock. The value of this field is a note without a change of the stock.
pub const COMPLETE: &str = "#complete";

/// The field of a journal (Redis hash) which says that the voucher has limits. The value of this field is a note
/// without a change of the stock.
pub const LIMITED: &str = "#limited";

/// The kind of a field in a journal, the Redis hash that notes changes of a stock: about an order, or about the whole
/// sale.
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
    /// Parses the name of a field in a journal, the Redis hash that notes changes of a stock.
    #[must_use]
    pub fn parse(name: &'a str) -> Self {
        match name.strip_prefix('#') {
            Some(_) if name == COMPLETE => Self::Complete,
            Some(movement) => Self::Sale(movement),
            None => name.parse().map_or(Self::Other, Self::Order),
        }
    }
}

/// A note in a journal (Redis hash) about one change of a voucher's stock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalNote {
    /// The action that changed the stock: `admit` or `release`. The text is empty if the note names no action.
    pub action: String,
    /// The number of units that the action added to the stock. The number is below 0 if the action took units for an
    /// order.
    pub change: Option<i64>,
    /// The user of the order if the order took units, or the program or operator that released the order if the order
    /// returned its units.
    pub by: Option<String>,
    /// The time of the change, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The number of units that were left before the change. `None` if no stock was loaded.
    pub from: Option<i64>,
    /// The number of units that were left after the change.
    pub to: Option<i64>,
    /// The earlier change in which the order took its units, if the note says that the order returned them. `None` if
    /// the journal did not have that change, or if an older script wrote the note.
    pub admitted: Option<ReleasedAdmission>,
    /// For an order of a voucher with limits, the order's slot (its number among the user's orders) and the limits that
    /// it counts against.
    pub limited: Option<UnderLimits>,
    /// The id of the repair that restored an order's note, as `repair:<id>`. If a repair released the order (returned
    /// its units), [`JournalNote::by`] names the repair instead.
    pub repaired: Option<String>,
}

/// The part of an order's note in the journal in Redis that only orders of vouchers with limits have: the order's slot,
/// and the limits that the order counts against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderLimits {
    /// The slot of the order: its number, from 1, among the user's orders of the voucher.
    pub slot: Slot,
    /// The limits that the order counts against.
    pub uses: Uses,
}

/// The change in which an order took units of the stock, for an order that has returned them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleasedAdmission {
    /// The user of the order.
    pub user: Option<UserId>,
    /// The number of units that the order added to the stock: a number below 0, because the order took units.
    pub change: i64,
    /// The time at which the order took its units, in Unix milliseconds by the clock of Redis.
    pub at_ms: Option<i64>,
    /// The number of units that were left before the order took its units. `None` if the note does not contain this
    /// number.
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
    /// Parses the note about an order in a journal (Redis hash). `None` if the text is not a JSON object.
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

    /// The total change of the stock by the note's order: the units that it took, plus the units that it returned. The
    /// sum over a complete journal is the stock. A release in the form of an older script counts as 0.
    #[must_use]
    pub fn total_change(&self) -> i64 {
        if self.is_release() && self.admitted.is_none() {
            return 0;
        }
        self.change.unwrap_or(0) + self.admitted.map_or(0, |admitted| admitted.change)
    }

    /// Whether the note says that the order took its units and has not returned them.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        self.action == ADMIT
    }

    /// Whether the note says that the order has returned its units.
    #[must_use]
    pub fn is_release(&self) -> bool {
        self.action == RELEASE
    }

    /// The user of the order. `None` if the order has returned its units, or the note names no valid user.
    #[must_use]
    pub fn buyer(&self) -> Option<UserId> {
        self.by.as_ref().filter(|_| self.is_admission())?.parse().ok()
    }

    /// Whether the note says that the order belongs to the given user.
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

    /// The order's slot (its number among the user's orders) and the limits that it counts against. `None` if the
    /// voucher had no limits when the order was placed.
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
