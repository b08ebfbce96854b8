use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::event::{
    Event, EventRejection,
    examples::{event, next, order},
};

/// The outcome that the sender is told, the outcome for an operator, and the number of the event that is published.
fn said(history: &History, past: &PastEvent) -> (EventOutcome, EventOutcome, u32) {
    let published = history.published_for(past).map_or(past.number, |published| published.number);
    (history.outcome_of_reference(past), history.outcome_of_entry(past), published)
}

use EventKind::{Paid, Refunded, Refunding, Used};
use EventOutcome::{Applied, RefundDue, Rejected, Unchanged};

#[test]
fn in_every_state_an_event_that_comes_again_is_told_and_published_as_the_first_one() {
    let statuses = [1, 2, 3, 4, 5, 6].map(|status| [(status, true), (status, false)]);
    for ((status, has_slot), kind) in
        statuses.into_iter().flatten().flat_map(|state| EventKind::ALL.map(|kind| (state, kind)))
    {
        let mut history = order(status, has_slot);
        let sent = event(kind, Some("x"), None);
        let first = next(&mut history, &sent);
        let again = next(&mut history, &sent);
        let expected = match first.outcome {
            // A rejected event is decided again, and each rejection is a separate fact.
            Rejected(_) => (first.outcome, first.outcome, 2),
            RefundDue => (RefundDue, RefundDue, 1),
            Applied | Unchanged => (first.outcome, Unchanged, 1),
        };
        assert_eq!(
            said(&history, &first),
            (first.outcome, first.outcome, 1),
            "{kind} in {status} {has_slot}"
        );
        assert_eq!(said(&history, &again), expected, "{kind} again in {status} {has_slot}");
        // The same, after the order has gone on.
        for kind in [Used, Refunding, Refunded] {
            next(&mut history, &event(kind, Some("later"), Some("y")));
        }
        let late = next(&mut history, &sent);
        if !matches!(first.outcome, Rejected(_)) {
            assert_eq!(said(&history, &late), expected, "{kind} late in {status} {has_slot}");
        }
    }
}

#[test]
fn a_payment_is_due_until_its_refund_and_is_published_as_refunded_after_it() {
    for ((status, has_slot), refunded_by) in [((2, true), 4), ((4, false), 4), ((6, false), 4)] {
        let mut history = order(status, has_slot);
        next(&mut history, &event(Paid, Some("own"), None));
        let due = event(Paid, Some("b"), None);
        let first = next(&mut history, &due);
        assert_eq!(said(&history, &first), (RefundDue, RefundDue, 2));
        let again = next(&mut history, &due);
        assert_eq!(said(&history, &again), (RefundDue, RefundDue, 2));
        assert_eq!(next(&mut history, &event(Refunded, Some("r"), Some("b"))).outcome, Applied);
        let late = next(&mut history, &due);
        for repeated in [&again, &late] {
            assert_eq!(said(&history, repeated), (Unchanged, Unchanged, refunded_by), "{status}");
        }
        // If the first entry comes again after a crash, its own result is published: it may not have been before.
        assert_eq!(said(&history, &first), (Unchanged, Unchanged, 2));
    }
}

#[test]
fn a_refund_that_comes_again_is_published_as_the_refund_of_its_payment() {
    let mut history = order(1, true);
    let refund = |reference, payment| event(Refunded, reference, Some(payment));
    for reference in ["a", "b"] {
        next(&mut history, &event(Paid, Some(reference), None));
    }
    for payment in ["b", "a"] {
        assert_eq!(next(&mut history, &refund(None, payment)).outcome, Applied);
    }
    for (reference, payment, published) in
        [(None, "b", 3), (None, "a", 4), (Some("new"), "b", 3), (Some("new"), "a", 3)]
    {
        let again = next(&mut history, &refund(reference, payment));
        assert_eq!(said(&history, &again), (Unchanged, Unchanged, published), "{reference:?} {payment}");
    }
}

#[test]
fn without_a_reference_the_event_that_moved_the_order_is_published() {
    let mut history = order(2, true);
    let [first, again] = [0, 1].map(|_| next(&mut history, &event(Used, None, None)));
    assert_eq!(
        [said(&history, &first), said(&history, &again)],
        [(Applied, Applied, 1), (Unchanged, Unchanged, 1)]
    );
    // Another program has cancelled the order, without an event.
    let mut history = order(4, false);
    for number in [1, 2] {
        let cancelled = next(&mut history, &event(EventKind::Cancelled, None, None));
        assert_eq!(said(&history, &cancelled), (Unchanged, Unchanged, number));
    }
    let rejected = next(&mut history, &event(Used, None, None));
    let cancelled = Rejected(EventRejection::Cancelled);
    assert_eq!(said(&history, &rejected), (cancelled, cancelled, 3));
}

fn any_event() -> impl Strategy<Value = Event> {
    let references = || option::of(select(vec!["a", "b", "c"]));
    (select(EventKind::ALL.to_vec()), references(), references())
        .prop_map(|(kind, reference, payment)| event(kind, reference, payment.filter(|_| kind.is_refund())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// For any events in any order: a worker publishes `refund_due` exactly if the sender is answered `refund_due`. An
    /// event that comes again is never published as a new one.
    #[test]
    fn what_is_published_for_a_repeated_event_agrees_with_what_its_sender_is_told(
        events in vec(any_event(), 0..30),
        (status, has_slot) in (1_i64..=6, any::<bool>()),
        is_written in any::<bool>(),
    ) {
        let mut history = if is_written { order(status, has_slot) } else { History::default() };
        for event in &events {
            let past = next(&mut history, event);
            let published = history.published_for(&past).unwrap_or(&past).clone();
            let (told, of_entry, _) = said(&history, &past);
            prop_assert!(of_entry == told || (told, of_entry) == (Applied, Unchanged));
            if past.outcome != Unchanged {
                prop_assert_eq!(&published, &past);
                continue;
            }
            prop_assert_eq!(published.outcome == RefundDue, told == RefundDue, "{:?} as {:?}", past, published);
            let is_repeated = past.reference.is_some()
                && history.events.iter().any(|other| {
                    other.number < past.number && (other.kind, &other.reference) == (past.kind, &past.reference)
                        && !matches!(other.outcome, Rejected(_))
                });
            prop_assert_eq!(is_repeated, history.repeated_by(&past).is_some());
            prop_assert!(!is_repeated || published.number < past.number, "{:?} as {:?}", past, published);
        }
    }
}
