use std::collections::BTreeSet;

use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::event::examples::{event, order, row};

fn entry(at: usize) -> EntryId {
    EntryId { ms: at as u64, seq: 0 }
}

/// Decides events, each as an entry of its own, and returns the words of their outcomes.
fn play<const N: usize>(history: &mut History, events: [Event; N]) -> Vec<&'static str> {
    let first = history.events.len() + 1;
    let decide = |(at, event): (usize, &Event)| decide(event, entry(first + at), history).outcome.word();
    events.iter().enumerate().map(decide).collect()
}

fn kinds<const N: usize>(history: &mut History, kinds: [EventKind; N]) -> Vec<&'static str> {
    play(history, kinds.map(|kind| event(kind, None, None)))
}

use EventKind::{Cancelled, Expired, Paid, RefundFailed, Refunded, Refunding, Used};

#[test]
fn every_event_does_to_every_status_what_the_drawing_says() {
    // The outcomes for each status and slot: paid, cancelled, expired, used, refunding, refunded, refund_failed.
    let table: [(i64, bool, [&str; 7]); 8] = [
        (1, true, ["2", "4 frees", "4 frees", "not_paid", "not_paid", "not_paid", "not_paid"]),
        (2, true, ["applied", "paid", "paid", "3", "5", "6 frees", "unchanged"]),
        (3, true, ["applied", "used", "used", "unchanged", "used", "used", "used"]),
        (4, false, ["5", "unchanged", "unchanged", "cancelled", "cancelled", "cancelled", "cancelled"]),
        (5, true, ["refund_due", "refunding", "refunding", "refunding", "unchanged", "6 frees", "2"]),
        (5, false, ["refund_due", "refunding", "refunding", "refunding", "unchanged", "6", "applied"]),
        (6, false, ["refund_due", "refunded", "refunded", "refunded", "refunded", "unchanged", "refunded"]),
        // Another program changed one of the two.
        (
            4,
            true,
            [
                "refund_due",
                "changed_elsewhere",
                "changed_elsewhere",
                "changed_elsewhere",
                "changed_elsewhere",
                "changed_elsewhere",
                "changed_elsewhere",
            ],
        ),
    ];
    for (status, has_slot, expected) in table {
        for (kind, expected) in
            [Paid, Cancelled, Expired, Used, Refunding, Refunded, RefundFailed].into_iter().zip(expected)
        {
            let mut history = order(status, has_slot);
            let decided = decide(&event(kind, None, None), entry(1), &mut history);
            let found = match decided.step {
                Some(step) => format!("{}{}", step.to, if decided.released > 0 { " frees" } else { "" }),
                None => decided.outcome.word().to_owned(),
            };
            assert_eq!(found, expected, "{kind} in {status}, slot {has_slot}");
            let row = history.row.unwrap();
            assert_eq!(row.status, decided.step.map_or(status, |step| step.to));
            assert_eq!(row.has_slot, has_slot && decided.released == 0);
        }
    }
}

#[test]
fn an_entry_that_comes_again_finds_what_was_decided() {
    let mut history = order(1, true);
    let cancel = event(Cancelled, None, None);
    let first = decide(&cancel, entry(1), &mut history);
    assert_eq!((first.released, first.number), (3, 1));
    assert_eq!(decide(&cancel, entry(1), &mut history), first);
    assert_eq!(history.events.len(), 1);
    // The same in another entry releases nothing.
    let again = decide(&cancel, entry(2), &mut history);
    assert_eq!((again.outcome, again.released, again.number), (EventOutcome::Unchanged, 0, 2));
}

#[test]
fn units_and_slot_go_back_once_on_the_way_from_cancelled_over_a_late_payment_to_refunded() {
    let mut history = order(1, true);
    assert_eq!(
        kinds(&mut history, [Cancelled, Paid, RefundFailed, Refunding, Refunded]),
        ["applied", "refund_due", "applied", "unchanged", "applied"]
    );
    assert_eq!(history.row, Some(row(6, false)));
    assert_eq!(history.events.iter().map(|past| past.released).collect::<Vec<_>>(), [3, 0, 0, 0, 0]);
}

#[test]
fn the_first_payment_pays_and_every_other_one_is_due_to_be_refunded() {
    let mut history = order(1, true);
    let paid = |reference| event(Paid, Some(reference), None);
    assert_eq!(
        play(&mut history, [paid("a"), paid("b"), paid("a"), paid("b"), event(Paid, None, None)]),
        ["applied", "refund_due", "unchanged", "unchanged", "refund_due"]
    );
    let refund = |kind, payment| event(kind, None, payment);
    assert_eq!(
        play(
            &mut history,
            [
                refund(Refunding, None),
                refund(Refunding, Some("c")),
                refund(Refunded, Some("b")),
                refund(Refunded, Some("b"))
            ]
        ),
        ["payment_needed", "no_such_payment", "applied", "unchanged"]
    );
    assert_eq!(history.row, Some(row(2, true)), "the refund of a second payment moves nothing");
    assert_eq!(play(&mut history, [refund(Refunded, Some("a"))]), ["applied"]);
    assert_eq!(history.row, Some(row(6, false)));
}

#[test]
fn a_refund_covers_the_payment_that_it_was_about_and_none_that_comes_later() {
    let mut history = order(1, true);
    let refunded = |reference, payment| event(Refunded, reference, payment);
    let paid = |reference| event(Paid, Some(reference), None);
    assert_eq!(
        play(
            &mut history,
            [
                paid("a"),
                refunded(Some("r"), None),
                paid("b"),
                refunded(Some("r"), Some("b")),
                refunded(None, None),
                refunded(None, Some("b")),
                refunded(None, Some("b")),
            ]
        ),
        ["applied", "applied", "refund_due", "unchanged", "payment_needed", "applied", "unchanged"]
    );
    let payments = history.events.iter().map(|past| past.payment.as_ref().map(EventText::as_str));
    let expected = [None, Some("a"), None, Some("a"), None, Some("b"), Some("b")];
    assert_eq!(payments.collect::<Vec<_>>(), expected);
}

#[test]
fn a_payment_is_refunded_also_where_somebody_else_has_moved_its_order() {
    for reference in [Some("p"), None] {
        let mut history = order(4, false);
        assert_eq!(play(&mut history, [event(Paid, reference, None)]), ["refund_due"]);
        history.row = Some(row(6, false));
        let refunded = || event(Refunded, None, None);
        assert_eq!(play(&mut history, [refunded(), refunded()]), ["applied", "unchanged"]);
        assert!(due(&history).is_empty());
    }
}

#[test]
fn a_payment_has_a_home_also_where_there_is_no_order_and_is_refunded_by_its_reference() {
    let refused = History { refused: Some((5, 7)), ..History::default() };
    let of_another = History { is_of_another: true, ..History::default() };
    let stolen = History { row: Some(Row { user: 6, ..row(1, true) }), ..History::default() };
    let all = [
        (History::default(), "no_order"),
        (refused, "refused"),
        (of_another, "wrong_owner"),
        (stolen, "wrong_owner"),
    ];
    for (mut history, why) in all {
        let before = history.row;
        assert_eq!(kinds(&mut history, [Used, Refunded]), [why, why]);
        let refund = |kind| event(kind, None, Some("p"));
        let events = [event(Paid, Some("p"), None), refund(Refunding), refund(Refunded), refund(Refunded)];
        assert_eq!(play(&mut history, events), ["refund_due", "applied", "applied", "unchanged"]);
        assert_eq!(history.row, before);
    }
}

#[test]
fn what_somebody_else_set_to_paid_is_paid_by_the_first_payment_that_comes() {
    let mut history = order(2, true);
    let paid = |reference| event(Paid, Some(reference), None);
    assert_eq!(play(&mut history, [paid("a"), paid("b")]), ["applied", "refund_due"]);
    assert_eq!(history.row, Some(row(2, true)));
}

#[test]
fn an_order_that_is_cancelled_before_it_is_written_has_a_row_that_holds_nothing() {
    let mut history = History::default();
    assert_eq!(kinds(&mut history, [Cancelled, Cancelled, Paid]), ["applied", "unchanged", "refund_due"]);
    assert_eq!(history.events[0].step, Some(Step { from: None, to: 4 }));
    assert!(history.events.iter().all(|past| past.released == 0));
    assert_eq!(history.row, Some(Row { quantity: 1, ..row(5, false) }));
    let mut refused = History { refused: Some((5, 7)), ..History::default() };
    assert_eq!(kinds(&mut refused, [Cancelled, Expired]), ["refused", "refused"]);
}

#[test]
fn the_words_of_outcomes_are_read_back() {
    let rejected = EventRejection::ALL.map(EventOutcome::Rejected);
    let all = [EventOutcome::Applied, EventOutcome::Unchanged, EventOutcome::RefundDue];
    let words: BTreeSet<&str> = all.iter().chain(&rejected).map(|outcome| outcome.word()).collect();
    assert_eq!(words.len(), all.len() + rejected.len());
    for outcome in all.into_iter().chain(rejected) {
        assert_eq!(EventOutcome::from_word(outcome.word()), outcome);
    }
    assert!(matches!(EventOutcome::from_word("of_a_newer_version"), EventOutcome::Rejected(_)));
}

fn any_event() -> impl Strategy<Value = Event> {
    let references = || option::of(select(vec!["a", "b", "c"]));
    (select(EventKind::ALL.to_vec()), references(), references())
        .prop_map(|(kind, reference, payment)| event(kind, reference, payment.filter(|_| kind.is_refund())))
}

/// The payments that are due.
fn due(history: &History) -> BTreeSet<Option<EventText>> {
    let references = history.events.iter().filter(|past| past.kind == Some(Paid)).map(|past| &past.reference);
    references.filter(|reference| history.is_due(reference.as_ref())).cloned().collect()
}

/// The payment that a refund is about: the one that it names, or the only one that there is.
fn is_about(event: &Event, history: &History) -> Option<Option<EventText>> {
    let payments: Vec<&PastEvent> = history.events.iter().filter(|past| past.is_payment()).collect();
    match (&event.payment, payments.as_slice()) {
        (Some(payment), _) => Some(Some(payment.clone())),
        (None, [one]) => Some(one.reference.clone()),
        (None, _) => None,
    }
}

proptest! {
    /// A payment that must be refunded stays so until a refund for it, which never counts for another payment.
    #[test]
    fn a_payment_that_is_not_the_orders_stays_due_until_a_refund_that_is_about_it(
        events in vec(any_event(), 0..30),
        is_written in any::<bool>(),
    ) {
        let mut history = if is_written { order(1, true) } else { History::default() };
        for (at, event) in events.iter().enumerate() {
            let (before, meant) = (due(&history), is_about(event, &history));
            let is_told_before = history.first_with(event.kind, event.reference.as_ref()).is_some();
            let decided = decide(event, entry(at), &mut history);
            let returned: Vec<_> = before.difference(&due(&history)).cloned().collect();
            if event.kind != Refunded || is_told_before {
                prop_assert!(returned.is_empty(), "{event:?} released {returned:?}");
                continue;
            }
            prop_assert!(returned.iter().all(|payment| Some(payment) == meant.as_ref()), "{decided:?}");
            // A payment that is due can be refunded.
            if event.payment.as_ref().is_some_and(|payment| before.contains(&Some(payment.clone()))) {
                prop_assert_eq!(decided.outcome, EventOutcome::Applied);
                prop_assert_eq!(returned, [event.payment.clone()]);
            }
        }
    }

    /// For any events in any order, the status moves along the diagram, and the slot is given up once, with its units.
    /// A used or refunded order stays so, and each payment is the order's own or due to be refunded.
    #[test]
    fn no_sequence_of_events_leaves_the_drawing(
        events in vec((any_event(), 0_usize..30), 0..30),
        is_written in any::<bool>(),
    ) {
        let mut history = if is_written { order(1, true) } else { History::default() };
        for (event, at) in events {
            let (before, recorded) = (history.row, history.events.len());
            let decided = decide(&event, entry(at), &mut history);
            let (was, is) = (before.map(|row| row.status), history.row.map(|row| row.status));
            let drawing = [
                (None, Some(4)), (Some(1), Some(2)), (Some(1), Some(4)), (Some(2), Some(3)), (Some(2), Some(5)),
                (Some(2), Some(6)), (Some(4), Some(5)), (Some(5), Some(2)), (Some(5), Some(6)),
            ];
            prop_assert!(was == is || drawing.contains(&(was, is)), "{was:?} to {is:?} by {event:?}");
            let gave_up = before.is_some_and(|row| row.has_slot) && !history.row.unwrap().has_slot;
            let is_repeated = history.events.len() == recorded;
            prop_assert!(is_repeated || gave_up == (decided.released > 0));
            prop_assert!(!gave_up || matches!(is, Some(4 | 6)));
            if event.kind == Paid {
                prop_assert!(!matches!(decided.outcome, EventOutcome::Rejected(_)), "{decided:?}");
            }
        }
        let released: i64 = history.events.iter().map(|past| past.released).sum();
        let holds_none = history.row.is_some_and(|row| !row.has_slot);
        prop_assert_eq!(released, if is_written && holds_none { 3 } else { 0 });
        let own = history.events.iter().filter(|past| past.is_own_payment()).count();
        prop_assert!(own <= 1, "{own} payments pay for one order");
    }
}
