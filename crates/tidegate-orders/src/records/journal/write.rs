//! Writes the notes of a journal that is filled from MySQL. The stock before and after these movements is no longer
//! known.

use serde_json::json;

use super::UnderLimits;
use crate::order::{Quantity, UserId};

/// Returns the text of a note that an order took its units, with the order's slot and its limits added at the end, as
/// `lua/admit_limited.lua` adds them.
#[must_use]
pub fn with_limits(note: String, limited: Option<&UnderLimits>) -> String {
    match (limited, note.strip_suffix('}')) {
        (Some(UnderLimits { slot, uses }), Some(note)) => {
            format!(r#"{note},"slot":{slot},"uses":"{uses}"}}"#)
        }
        _ => note,
    }
}

/// Makes the note which says since when the voucher has limits, for the voucher's journal (a Redis hash).
#[must_use]
pub fn limited(by: &str, since_ms: i64) -> String {
    format!(r#"{{"action":"limit","change":0,"by":"{by}","timestamp":{since_ms}}}"#)
}

/// The field of a journal (Redis hash) for the note that [`load`] makes.
pub const LOAD: &str = "#load";

/// Makes the note of an order that has taken its units, for the voucher's journal (a Redis hash). If a client requests
/// the order again, `lua/admit.lua` reads the note and answers that the order was admitted. `at_ms` is in Unix
/// milliseconds by the clock of Redis.
#[must_use]
pub fn admission(user: UserId, quantity: Quantity, at_ms: i64) -> String {
    // The scripts search for pieces of this text, so the order of the fields is theirs.
    format!(
        r#"{{"action":"admit","from":null,"to":null,"change":-{quantity},"by":"{user}","timestamp":{at_ms}}}"#
    )
}

/// Makes the journal note of an order that has returned its units. The note does not change the sum of the journal. If
/// a client requests the order again, the script answers that the order was released. `user` is `None` if the user is
/// unknown.
#[must_use]
pub fn release(user: Option<UserId>, units: i64, by: &str, at_ms: i64) -> String {
    let admitted = json!({ "user": user.map(|user| user.to_string()), "change": -units, "timestamp": at_ms });
    format!(
        r#"{{"action":"release","from":null,"to":null,"change":{units},"by":"{by}","timestamp":{at_ms},"admitted":{admitted}}}"#
    )
}

/// Makes the note which says how many units were loaded for a sale, for the voucher's journal (a Redis hash).
#[must_use]
pub fn load(units: i64, by: &str, at_ms: i64) -> String {
    format!(r##"{{"action":"load","from":0,"to":{units},"change":{units},"by":"{by}","timestamp":{at_ms}}}"##)
}

/// Makes the note which says that the voucher's journal (a Redis hash) has every change of the stock. `id` identifies
/// the program run that checked the journal.
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
