//! Writes the notes of a journal that is filled from MySQL. The stock before and after these movements is no longer
//! known.

use serde_json::json;

use super::UnderLimits;
use crate::order::{Quantity, UserId};

/// The note of an admission with its facts under limits, which `lua/admit_limited.lua` puts at the end.
#[must_use]
pub fn with_limits(note: String, limited: Option<&UnderLimits>) -> String {
    match (limited, note.strip_suffix('}')) {
        (Some(UnderLimits { slot, uses }), Some(note)) => {
            format!(r#"{note},"slot":{slot},"uses":"{uses}"}}"#)
        }
        _ => note,
    }
}

/// The note that the voucher has limits since this time.
#[must_use]
pub fn limited(by: &str, since_ms: i64) -> String {
    format!(r#"{{"action":"limit","change":0,"by":"{by}","timestamp":{since_ms}}}"#)
}

/// The field of the note that [`load`] writes.
pub const LOAD: &str = "#load";

/// The note of an order that holds its units, in the form that `lua/admit.lua` finds again. A client that requests the
/// order again gets the answer that it was admitted. `at_ms`: Unix milliseconds by the clock of Redis.
#[must_use]
pub fn admission(user: UserId, quantity: Quantity, at_ms: i64) -> String {
    // The scripts search for pieces of this text, so the order of the fields is theirs.
    format!(
        r#"{{"action":"admit","from":null,"to":null,"change":-{quantity},"by":"{user}","timestamp":{at_ms}}}"#
    )
}

/// The note of an order that holds nothing any more, with the admission that was released: it changes no sum. A client
/// that requests the order again gets the answer that it was released. `user` is None if it is unknown.
#[must_use]
pub fn release(user: Option<UserId>, units: i64, by: &str, at_ms: i64) -> String {
    let admitted = json!({ "user": user.map(|user| user.to_string()), "change": -units, "timestamp": at_ms });
    format!(
        r#"{{"action":"release","from":null,"to":null,"change":{units},"by":"{by}","timestamp":{at_ms},"admitted":{admitted}}}"#
    )
}

/// The note of all units that a sale got.
#[must_use]
pub fn load(units: i64, by: &str, at_ms: i64) -> String {
    format!(r##"{{"action":"load","from":0,"to":{units},"change":{units},"by":"{by}","timestamp":{at_ms}}}"##)
}

/// The note that the journal is complete. `id` identifies the run that completed it.
#[must_use]
pub fn complete(by: &str, id: &str, at_ms: i64) -> String {
    format!(r#"{{"action":"complete","by":"{by}","timestamp":{at_ms},"id":"{id}"}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{order::Uses, records::journal::JournalNote};

    #[test]
    fn what_is_written_is_read() {
        let (user, quantity) = (UserId::try_from(77).unwrap(), Quantity::try_from(2).unwrap());
        let admitted = JournalNote::parse(admission(user, quantity, 7).as_bytes()).unwrap();
        assert!(admitted.is_admission() && admitted.is_by(user));
        assert_eq!((admitted.total_change(), admitted.at_ms, &admitted.limited), (-2, Some(7), &None));
        let uses = Uses::parse(b"3,19700,abc c5.4,640,x").unwrap();
        let limited = UnderLimits { slot: 3.try_into().unwrap(), uses };
        let note = with_limits(admission(user, quantity, 7), Some(&limited));
        let read = JournalNote::parse(note.as_bytes()).unwrap();
        assert_eq!(read, JournalNote { limited: Some(limited), ..admitted });
        for user in [Some(user), None] {
            let released = JournalNote::parse(release(user, 2, "rebuild", 7).as_bytes()).unwrap();
            assert!(released.is_release() && released.total_change() == 0 && released.change == Some(2));
            assert_eq!(released.admitted.unwrap().user, user);
        }
        assert_eq!(JournalNote::parse(load(9, "rebuild", 7).as_bytes()).unwrap().total_change(), 9);
    }
}
