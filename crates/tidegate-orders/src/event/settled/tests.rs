use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::event::{
    Event,
    examples::{event, next, order},
};

/// Decides events of the order's own user, each as an entry of its own.
fn play(history: &mut History, events: &[(EventKind, Option<&str>)]) {
    for (kind, reference) in events {
        next(history, &event(*kind, *reference, None));
    }
}

fn prune(history: &mut History) {
    let unneeded = history.unneeded();
    history.events.retain(|past| !unneeded.contains(&past.number));
}

use EventKind::{Cancelled, Paid, RefundFailed, Refunded, Refunding, Used};

#[test]
fn only_orders_that_ended_and_owe_nothing_are_settled() {
    for (status, has_slot, is_settled) in [
        (1, true, false),
        (2, true, false),
        (3, true, true),
        (3, false, false),
        (4, false, true),
        (4, true, false),
        (5, false, false),
        (5, true, false),
        (6, false, true),
        (6, true, false),
    ] {
        let mut history = order(1, true);
        play(&mut history, &[(Paid, Some("a")), (Used, None)]);
        history.row = order(status, has_slot).row;
        assert_eq!(history.is_settled(), is_settled, "{status} {has_slot}");
    }
    let mut without_row = order(1, true);
    play(&mut without_row, &[(Paid, None), (Used, None)]);
    without_row.row = None;
    assert!(!without_row.is_settled());
    // Another program has set the order to paid, so the first payment that comes is its own.
    let mut unpaid = order(2, true);
    play(&mut unpaid, &[(Used, None)]);
    assert!(unpaid.row == order(3, true).row && !unpaid.is_settled());
    play(&mut unpaid, &[(Paid, None)]);
    assert!(unpaid.is_settled());
}

#[test]
fn a_payment_that_has_to_go_back_keeps_the_past_of_its_order() {
    for reference in [Some("b"), None] {
        let mut history = order(1, true);
        play(&mut history, &[(Paid, Some("a")), (Refunded, None), (Paid, reference)]);
        assert!(!history.is_settled(), "{reference:?} is due");
        next(&mut history, &event(Refunded, None, Some("a")));
        assert!(!history.is_settled(), "the refund of another payment");
    }
    let mut history = order(1, true);
    play(&mut history, &[(Paid, Some("a")), (Used, None), (Paid, Some("b"))]);
    assert!(!history.is_settled());
    next(&mut history, &event(Refunded, None, Some("b")));
    assert!(history.is_settled());
}

#[test]
fn payments_and_refunds_stay_and_so_do_the_last_event_and_what_gave_units_back() {
    let mut history = order(1, true);
    let failed = [(Refunding, Some("r")), (RefundFailed, Some("r")), (Refunded, Some("s"))];
    let paid = [(Used, None), (Paid, Some("a")), (Paid, Some("a")), (Cancelled, None)];
    play(&mut history, &[paid.as_slice(), failed.as_slice(), &[(Refunded, Some("s"))]].concat());
    assert_eq!(history.unneeded(), [1, 3, 4, 5, 6]);
    let mut history = order(1, true);
    play(&mut history, &[(Paid, Some("a")), (Used, None), (Used, None), (Used, None)]);
    assert_eq!(history.unneeded(), [3]);
}

fn any_event() -> impl Strategy<Value = Event> {
    let references = || option::of(select(vec!["a", "b", "c"]));
    (select(EventKind::ALL.to_vec()), references(), references(), select(vec![5, 5, 5, 6])).prop_map(
        |(kind, reference, payment, user)| {
            let event = event(kind, reference, payment.filter(|_| kind.is_refund()));
            Event { user: i64::from(user).try_into().unwrap(), ..event }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A payment and a refund have the same outcomes after events were pruned as before.
    #[test]
    fn money_is_decided_after_pruning_as_before(
        before in vec(any_event(), 0..12),
        moved in option::of((1_i64..=6, any::<bool>())),
        end in select(vec![None, Some(Used), Some(Cancelled), Some(Refunded)]),
        after in vec(any_event(), 1..8),
        is_purged_again in any::<bool>(),
    ) {
        let mut history = order(1, true);
        before.iter().for_each(|event| _ = next(&mut history, event));
        if let Some((status, has_slot)) = moved {
            history.row = order(status, has_slot).row;
        }
        end.iter().for_each(|kind| _ = next(&mut history, &event(*kind, None, None)));
        for payment in history.payments_due().filter_map(|due| due.reference.clone()).collect::<Vec<_>>() {
            next(&mut history, &event(Refunded, None, Some(payment.as_str())));
        }
        if !history.is_settled() {
            return Ok(());
        }
        let mut purged = history.clone();
        prune(&mut purged);
        prop_assert!(purged.is_settled());
        prop_assert_eq!(purged.unneeded(), Vec::<u32>::new(), "a second pruning finds nothing");
        for event in &after {
            let (would_be, is) = (next(&mut history, event), next(&mut purged, event));
            if matches!(event.kind, Paid | Refunded) {
                prop_assert_eq!((would_be.outcome, would_be.step), (is.outcome, is.step), "{:?}", event);
            }
            prop_assert_eq!((history.row, would_be.number, would_be.released), (purged.row, is.number, is.released));
            let due = |history: &History| history.payments_due().cloned().collect::<Vec<_>>();
            prop_assert_eq!(due(&history), due(&purged));
            if is_purged_again && purged.is_settled() {
                prune(&mut purged);
            }
        }
    }
}
