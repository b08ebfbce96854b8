//! Compacts journals, by `lua/compact.lua`: removes the notes of final orders and keeps their sum.

use fred::types::Value;

use crate::scripts::{Repairs, ScriptError, understood};
use crate::{
    order::{OrderId, VoucherId},
    records::journal::{JournalNote, write},
};

/// The maximum number of orders in one call that removes notes of final orders. During the call, Redis runs no other
/// command.
pub const MOST_COMPACTED: usize = 500;

/// One change that makes a journal smaller: the note about an order is removed or shortened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderCompaction {
    order: OrderId,
    /// The note that was read.
    found: String,
    /// The shorter note of the order. Empty: the note is removed.
    becomes: String,
    units: i64,
    change: i64,
}

impl OrderCompaction {
    /// Makes the change that removes the note about an order from the journal, because the order is final in both
    /// stores. `None` if the note cannot be read.
    #[must_use]
    pub fn remove(order: OrderId, found: &str) -> Option<Self> {
        let entry = JournalNote::parse(found.as_bytes())?;
        let admitted = entry.admitted.map(|admitted| admitted.change);
        let units = admitted.map_or_else(|| entry.change.map(i64::abs), i64::checked_neg)?;
        let change = entry.total_change();
        Some(Self { order, found: found.to_owned(), becomes: String::new(), units, change })
    }

    /// Makes the change that shortens the note about an order to the values that the scripts read. `None` if the note
    /// is already short, is from a repair, or says that the order was released.
    #[must_use]
    pub fn shorten(order: OrderId, found: &str) -> Option<Self> {
        let entry = JournalNote::parse(found.as_bytes()).filter(|entry| entry.is_admission())?;
        let (change, user, at_ms) = (entry.change?, entry.by?, entry.at_ms?);
        // In this order: the scripts look for pieces of the text.
        let becomes = format!(r#"{{"action":"admit","change":{change},"by":"{user}","timestamp":{at_ms}}}"#);
        let becomes = write::with_limits(becomes, entry.limited.as_ref());
        let is_plain = entry.repaired.is_none() && user.bytes().all(|byte| byte.is_ascii_digit());
        let found = found.to_owned();
        (is_plain && becomes.len() < found.len()).then_some(Self {
            order,
            found,
            becomes,
            units: 0,
            change: 0,
        })
    }
}

/// The reply to a call that removes or shortens notes in a journal (the Redis hash with notes about orders).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactReply {
    /// The numbers of orders whose notes were unchanged and are now compacted.
    Compacted {
        /// Released orders that were removed from the journal.
        released: u64,
        /// Used orders that were removed from the journal.
        used: u64,
        /// Orders that now have a shorter note.
        shortened: u64,
    },
    /// Refused: the journal does not hold every movement.
    NotComplete,
}

impl Repairs {
    /// Removes or shortens the notes about at most [`MOST_COMPACTED`] orders that are older than `before_ms`. A note
    /// that has changed since the caller read it stays as it is.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated: no order is compacted twice.
    pub async fn compact(
        &self,
        voucher: VoucherId,
        before_ms: i64,
        orders: &[OrderCompaction],
    ) -> Result<CompactReply, ScriptError> {
        let mut args: Vec<Value> = Vec::with_capacity(1 + 5 * orders.len());
        args.push(before_ms.to_string().into());
        for OrderCompaction { order, found, becomes, units, change } in orders {
            args.extend([order.to_string().into(), found.as_str().into(), becomes.as_str().into()]);
            args.extend([units.to_string().into(), change.to_string().into()]);
        }
        let reply =
            self.compact.call(&self.access.pool, vec![self.access.keys.journal(voucher)], args).await?;
        if let Value::Array(counts) = &reply
            && let [released, used, shortened] = counts.as_slice()
            && let (Some(released), Some(used), Some(shortened)) =
                (released.as_u64(), used.as_u64(), shortened.as_u64())
        {
            return Ok(CompactReply::Compacted { released, used, shortened });
        }
        understood("compact.lua", &reply, |code| (code == 1).then_some(CompactReply::NotComplete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> OrderId {
        OrderId::try_from(42).unwrap()
    }

    #[test]
    fn a_shorter_note_says_what_the_long_one_did() {
        let long = r#"{"action":"admit","from":100,"to":98,"change":-2,"by":"77","timestamp":7}"#;
        let compacted = OrderCompaction::shorten(order(), long).unwrap();
        let (before, after) =
            (JournalNote::parse(long.as_bytes()), JournalNote::parse(compacted.becomes.as_bytes()));
        assert_eq!(Some(JournalNote { from: None, to: None, ..before.unwrap() }), after);
        assert_eq!(OrderCompaction::shorten(order(), &compacted.becomes), None, "it is short already");
        for other in [
            r#"{"action":"admit","from":100,"to":98,"change":-2,"by":"77","timestamp":7,"mended":"repair:x"}"#,
            r#"{"action":"release","from":100,"to":98,"change":2,"by":"77","timestamp":7}"#,
            r#"{"action":"admit","from":100,"to":98,"change":-2,"by":"7\"7","timestamp":7}"#,
            "{",
        ] {
            assert_eq!(OrderCompaction::shorten(order(), other), None, "{other}");
        }
    }

    #[test]
    fn what_is_compacted_adds_to_the_sum_what_its_note_did() {
        let of = |note: &str| OrderCompaction::remove(order(), note).map(|it| (it.units, it.change));
        assert_eq!(of(r#"{"action":"admit","change":-2,"by":"77","timestamp":7}"#), Some((2, -2)));
        let released = |change| {
            format!(
                r#"{{"action":"release","change":{change},"by":"x","timestamp":9,"admitted":{{"user":"7","change":-2}}}}"#
            )
        };
        assert_eq!((of(&released(2)), of(&released(0))), (Some((2, 0)), Some((2, -2))));
        assert_eq!(of(r#"{"action":"release","change":3,"by":"x","timestamp":9}"#), Some((3, 0)));
        assert_eq!(of("{"), None);
    }
}
