//! What is counted of each order, by what both stores say of it.

use std::collections::HashSet;

use tidegate_orders::{Order, OrderId, Quantity, Slot, records::OrderRow};
use tidegate_stream::EntryId;

use super::{
    admission::Movement,
    input::{AuditInput, AuditLetter},
    report::VoucherAudit,
};

const VOUCHER: i64 = 7;

fn order(id: i64, user: i64) -> Order {
    Order {
        id: id.try_into().unwrap(),
        user: user.try_into().unwrap(),
        voucher: VOUCHER.try_into().unwrap(),
        quantity: Quantity::ONE,
        slot: Slot::FIRST,
        uses: None,
    }
}

fn row(order: &Order) -> OrderRow {
    let Order { id, user, voucher, .. } = *order;
    let (user, voucher, slot, entry) = (user.get(), voucher.get(), Some(1), Some(entry(1)));
    OrderRow { order: id, user, voucher, quantity: 1, slot, status: 1, entry, created_ms: None }
}

/// The row of an order that was cancelled.
fn cancelled(order: &Order) -> OrderRow {
    OrderRow { slot: None, status: 4, ..row(order) }
}

fn entry(seq: u64) -> EntryId {
    EntryId { ms: 1, seq }
}

fn letter(seq: u64, order: Option<Order>) -> AuditLetter {
    AuditLetter { entry: entry(seq), followed: Vec::new(), order }
}

fn audited(input: AuditInput) -> VoucherAudit {
    input.into_report().vouchers.remove(0)
}

/// Orders 1 ..= n of users 1 ..= n in entries 1-1 ..= 1-n, all of them delivered.
fn admitted(n: i64) -> AuditInput {
    let mut input = AuditInput::default();
    for id in 1..=n {
        input.add_entry(entry(id.unsigned_abs()), &order(id, id));
    }
    input.sort();
    input
}

#[test]
fn each_fate_is_told_from_the_others() {
    let mut input = admitted(6);
    input.set_in_flight(entry(5), &HashSet::from([entry(4)]));
    input.add_letters(&[letter(3, Some(order(3, 3)))]);
    input.add_journal(
        VOUCHER.try_into().unwrap(),
        vec![(2.try_into().unwrap(), Movement::Release { second_order_units: 0 })],
    );
    input.add_row(&row(&order(1, 1)));
    let audit = audited(input);
    assert_eq!((audit.admitted, audit.written, audit.released, audit.dead, audit.in_flight), (6, 1, 1, 1, 2));
    assert_eq!((audit.lost.total, &audit.lost.first[..]), (1, &["5".to_owned()][..]));
}

#[test]
fn a_cancelled_order_that_has_a_letter_is_dead_until_it_is_given_back() {
    for is_released in [false, true] {
        let mut input = admitted(1);
        // It was put back once: its first entry is settled, its second one buried.
        input.add_entry(entry(2), &order(1, 1));
        input.sort();
        input.add_letters(&[letter(2, Some(order(1, 1)))]);
        if is_released {
            let released = vec![(1.try_into().unwrap(), Movement::Release { second_order_units: 0 })];
            input.add_journal(VOUCHER.try_into().unwrap(), released);
        }
        input.add_row(&cancelled(&order(1, 1)));
        let audit = audited(input);
        assert_eq!(audit.failures(), Vec::<String>::new());
        assert_eq!((audit.written, audit.released), (0, u64::from(is_released)));
        let expected = if is_released { (0, 0, 0) } else { (1, 1, 1) };
        assert_eq!((audit.dead, audit.dead_units, audit.half_cancelled.total), expected);
    }
}

#[test]
fn a_cancelled_order_that_the_journal_has_as_admitted_is_named_unless_it_is_open_or_of_another() {
    let mut input = admitted(4);
    input.set_in_flight(entry(4), &HashSet::from([entry(2)]));
    input.add_letters(&[letter(3, Some(order(3, 3)))]);
    // The third is another's by the journal, and the fourth was given back.
    let admit = |user: i64| Movement::Admit { user: user.try_into().ok(), quantity: 1, at_ms: 0 };
    let notes =
        [(1, admit(1)), (2, admit(2)), (3, admit(9)), (4, Movement::Release { second_order_units: 0 })];
    let notes = notes.map(|(id, note)| (id.try_into().unwrap(), note)).into();
    input.add_journal(VOUCHER.try_into().unwrap(), notes);
    for id in 1..=4 {
        input.add_row(&cancelled(&order(id, id)));
    }
    assert_eq!(input.unresolved().len(), 2, "they may have been given back by now");
    let audit = audited(input);
    assert_eq!(audit.failures(), Vec::<String>::new());
    assert_eq!((audit.written, audit.released), (2, 1));
    assert_eq!((audit.dead, audit.half_cancelled.total), (1, 0));
    assert_eq!((audit.kept.total, &audit.kept.first[..]), (1, &["1".to_owned()][..]));
}

#[test]
fn a_second_entry_of_the_same_order_is_the_same_order() {
    let mut input = admitted(1);
    input.add_entry(entry(2), &order(1, 1));
    input.sort();
    input.add_row(&row(&order(1, 1)));
    let audit = audited(input);
    assert_eq!((audit.admitted, audit.written, audit.lost.total), (1, 1, 0));
}

#[test]
fn an_order_that_was_put_back_is_where_its_latest_entry_is() {
    for is_dead_again in [true, false] {
        let mut input = admitted(1);
        input.add_entry(entry(2), &order(1, 1));
        input.sort();
        input.set_in_flight(entry(if is_dead_again { 2 } else { 1 }), &HashSet::new());
        if is_dead_again {
            input.add_letters(&[letter(2, Some(order(1, 1)))]);
        }
        let audit = audited(input);
        let expected = if is_dead_again { (1, 1, 0, 0) } else { (1, 0, 1, 0) };
        assert_eq!((audit.admitted, audit.dead, audit.in_flight, audit.lost.total), expected);
    }
    // Another user's order under the same id is not the same order.
    let mut input = admitted(1);
    input.add_entry(entry(2), &order(1, 99));
    input.sort();
    input.set_in_flight(entry(1), &HashSet::new());
    assert_eq!(audited(input).lost.total, 1);
}

#[test]
fn an_order_with_a_taken_id_may_be_put_back_and_die_again() {
    let mut input = admitted(1);
    for seq in [2, 3] {
        input.add_entry(entry(seq), &order(1, 99));
    }
    input.sort();
    input.add_letters(&[letter(3, Some(order(1, 99)))]);
    input.add_row(&row(&order(1, 1)));
    let audit = audited(input);
    assert_eq!((audit.written, audit.mismatched.total), (1, 0));
}

#[test]
fn what_is_no_order_and_was_put_back_is_where_its_latest_entry_is() {
    let mut input = AuditInput::default();
    input.add_unreadable(entry(1), &[], true);
    input.add_unreadable(entry(2), &[], true);
    input.add_unreadable(entry(3), &[entry(1)], true);
    input.set_in_flight(entry(2), &HashSet::new());
    input.add_letters(&[AuditLetter { followed: vec![entry(2)], ..letter(9, None) }]);
    assert!(!input.has_lost_unreadable());
    let unreadable = input.into_report().unreadable;
    let counts = (unreadable.total, unreadable.dead, unreadable.in_flight, unreadable.lost.total);
    assert_eq!(counts, (2, 1, 1, 0), "each is counted once");
}

#[test]
fn another_users_entry_with_a_taken_id_must_be_buried() {
    for is_buried in [true, false] {
        let mut input = admitted(1);
        input.add_entry(entry(2), &order(1, 99));
        input.sort();
        if is_buried {
            input.add_letters(&[letter(2, Some(order(1, 99)))]);
        }
        input.add_row(&row(&order(1, 1)));
        let audit = audited(input);
        assert_eq!((audit.written, audit.mismatched.total), if is_buried { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn a_trimmed_entry_is_followed_by_its_journal() {
    let mut input = AuditInput::default();
    let admit = |user: i64| Movement::Admit { user: user.try_into().ok(), quantity: 1, at_ms: 0 };
    let id = |id: i64| OrderId::try_from(id).unwrap();
    input.add_journal(
        VOUCHER.try_into().unwrap(),
        vec![(id(1), admit(1)), (id(2), admit(2)), (id(3), Movement::Release { second_order_units: 0 })],
    );
    input.sort();
    input.set_in_flight(EntryId::MIN, &HashSet::new());
    input.set_read_to(entry(9), 2);
    input.add_row(&row(&order(1, 1)));
    input.add_row(&row(&order(8, 8)));
    let came_later = EntryId { ms: 2, seq: 0 };
    input.add_row(&OrderRow { entry: Some(came_later), ..row(&order(9, 9)) });
    input.voucher(VOUCHER.try_into().unwrap());
    let audit = audited(input);
    assert_eq!((audit.admitted, audit.written, audit.released, audit.lost.total), (3, 1, 1, 1));
    assert_eq!(audit.unknown_orders, 1);
}

#[test]
fn an_unreadable_entry_must_be_buried_or_in_flight() {
    let mut input = AuditInput::default();
    for seq in 1..=3 {
        input.add_unreadable(entry(seq), &[], true);
    }
    input.set_in_flight(entry(2), &HashSet::new());
    input.add_letters(&[letter(1, None)]);
    let unreadable = input.into_report().unreadable;
    assert_eq!(
        (unreadable.total, unreadable.dead, unreadable.in_flight, unreadable.lost.total),
        (3, 1, 1, 1)
    );
}
