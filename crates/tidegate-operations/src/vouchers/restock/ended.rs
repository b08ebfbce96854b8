//! What others have made of a change that was noted, of one stock or of two. Pure.

use tidegate_orders::gate::{ChangeState, StockChange};

use super::described;

/// By the note that stands there now. None: it is still open. Ok: both sides have it, and what has begun since. Err: why it is not
/// known to be made.
pub(crate) fn ended_by_others(
    change: &StockChange,
    note: &StockChange,
) -> Option<Result<Option<String>, String>> {
    if note.id != change.id {
        let since = format!("since then: {}", described(note));
        // Nothing else begins while a change is open, so what began with what this one left shows that it was made.
        return Some(if note.before == change.after() {
            Ok(Some(since))
        } else {
            Err(format!("others have ended it, so that both sides have it or neither; {since}"))
        });
    }
    match note.state {
        ChangeState::Open => None,
        ChangeState::Done => Some(Ok(None)),
        ChangeState::Cancelled => Some(Err("neither side has it: others have withdrawn it".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_others_have_ended_is_not_gone_on_with() {
        let change = StockChange::new(50, 150, "alice".to_owned());
        let ended = |note: &StockChange| ended_by_others(&change, note);
        assert_eq!(ended(&change), None, "it is open");
        assert_eq!(ended(&change.with_state(ChangeState::Done)), Some(Ok(None)));
        assert!(ended(&change.with_state(ChangeState::Cancelled)).unwrap().is_err());
        for state in [ChangeState::Open, ChangeState::Done] {
            let next = StockChange::new(-50, 200, "bob".to_owned()).with_state(state);
            let since = ended(&next).unwrap().expect("it began with what the change left");
            assert!(since.unwrap().contains("by bob"));
            let later = StockChange::new(-50, 300, "bob".to_owned()).with_state(state);
            assert!(ended(&later).unwrap().is_err(), "nobody knows");
        }
    }
}
