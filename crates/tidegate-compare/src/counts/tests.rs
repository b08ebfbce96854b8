//! The tests of the counts of orders in no complete journal, by the facts of both stores.

use std::collections::HashSet;

use tidegate_orders::{JournalNote, VoucherId, records::OrderRow};
use tidegate_stream::EntryId;

use crate::in_flight::InFlight;

use super::{Followed, OrderCounter, OrderKey, RowSeen, Rows};

fn voucher() -> VoucherId {
    7.try_into().unwrap()
}

fn order(id: i64) -> OrderKey {
    (voucher(), id.try_into().unwrap())
}

fn row(id: i64) -> OrderRow {
    let (order, entry) = (id.try_into().unwrap(), Some(entry(1)));
    OrderRow { order, user: id, voucher: 7, quantity: 1, slot: Some(1), status: 1, entry, created_ms: None }
}

/// The row of an order that was cancelled.
fn cancelled(id: i64) -> OrderRow {
    OrderRow { slot: None, status: 4, ..row(id) }
}

fn entry(seq: u64) -> EntryId {
    EntryId { ms: 1, seq }
}

fn admit(user: i64) -> JournalNote {
    let note = format!(r#"{{"action":"admit","change":-1,"by":"{user}","timestamp":5}}"#);
    JournalNote::parse(note.as_bytes()).unwrap()
}

fn release(by: &str) -> JournalNote {
    let note = format!(r#"{{"action":"release","change":2,"by":"{by}","timestamp":9}}"#);
    JournalNote::parse(note.as_bytes()).unwrap()
}

impl OrderCounter {
    fn enter(&mut self, seq: u64, id: i64, user: i64) {
        self.add_entry(entry(seq), order(id), (user.try_into().unwrap(), 1), false);
        self.sort();
    }

    fn letter(&mut self, seq: u64, id: i64, user: i64) {
        self.add_letter(entry(seq), order(id), user.try_into().unwrap(), 1);
        self.sort();
    }

    fn note(&mut self, id: i64, note: &JournalNote) {
        self.add_movement(voucher(), order(id).1, note);
        self.sort();
    }

    fn row(&mut self, row: &OrderRow) {
        self.add_row(voucher(), row, RowSeen { is_own: true, is_in_flight: false, is_known: false });
    }

    /// Finishes the count with these orders in flight. Returns the counts and the orders that have to be checked.
    fn finish(mut self, in_flight: &[i64]) -> (Followed, Rows, Vec<i64>) {
        self.set_in_flight(|(_, order)| in_flight.contains(&order.get()));
        let unresolved = self.follow(|_| EntryId::MAX, |_, _| false, &InFlight::default());
        let (_, rows, followed) = self.take(voucher());
        (followed, rows, unresolved.into_iter().map(|(_, order)| order.get()).collect())
    }
}

/// Orders 1 ..= n of users 1 ..= n in entries 1-1 ..= 1-n, all of them delivered.
fn admitted(n: i64) -> OrderCounter {
    let mut counts = OrderCounter::default();
    for id in 1..=n {
        counts.enter(id.unsigned_abs(), id, id);
    }
    counts
}

#[test]
fn each_fate_is_told_from_the_others() {
    let mut counts = admitted(6);
    counts.note(2, &release("worker:x"));
    counts.letter(3, 3, 3);
    counts.row(&row(1));
    let (it, _, unresolved) = counts.finish(&[4, 6]);
    assert_eq!((it.written, it.released, it.dead.orders, it.in_flight.orders), (1, 1, 1, 2));
    assert_eq!((it.unresolved.orders, unresolved), (1, vec![5]));
}

#[test]
fn a_cancelled_order_that_has_a_letter_is_dead_until_it_is_released() {
    for is_released in [false, true] {
        // The order was put back once: its first entry is settled, and its second one is a dead letter.
        let mut counts = admitted(1);
        counts.enter(2, 1, 1);
        if is_released {
            counts.note(1, &release("operator:x"));
        }
        counts.letter(2, 1, 1);
        counts.row(&cancelled(1));
        let (it, _, unresolved) = counts.finish(&[]);
        assert_eq!((it.written, it.released, unresolved.len()), (0, u64::from(is_released), 0));
        let expected = if is_released { (0, 0, 0) } else { (1, 1, 1) };
        assert_eq!((it.dead.orders, it.dead.units, it.half_cancelled.total), expected);
    }
}

#[test]
fn a_cancelled_order_with_a_letter_and_the_note_of_another_cannot_be_released_by_it() {
    let mut counts = admitted(1);
    counts.note(1, &admit(9));
    counts.letter(1, 1, 1);
    counts.row(&cancelled(1));
    let (it, ..) = counts.finish(&[]);
    assert_eq!((it.dead.orders, it.half_cancelled.total), (1, 0));
}

#[test]
fn a_second_entry_of_the_same_order_is_the_same_order() {
    let mut counts = admitted(1);
    counts.enter(2, 1, 1);
    counts.row(&row(1));
    let (it, _, unresolved) = counts.finish(&[]);
    assert_eq!((it.written, unresolved.len()), (1, 0));
}

#[test]
fn an_order_that_was_put_back_is_where_its_latest_entry_is() {
    for is_dead_again in [true, false] {
        let mut counts = admitted(1);
        counts.enter(2, 1, 1);
        if is_dead_again {
            counts.letter(2, 1, 1);
        }
        let (it, _, unresolved) = counts.finish(if is_dead_again { &[] } else { &[1] });
        let expected = if is_dead_again { (1, 0, 0) } else { (0, 1, 0) };
        assert_eq!((it.dead.orders, it.in_flight.orders, unresolved.len()), expected);
    }
}

#[test]
fn an_order_with_a_taken_id_may_be_put_back_and_die_again() {
    let mut counts = admitted(1);
    for seq in [2, 3] {
        counts.enter(seq, 1, 99);
    }
    counts.letter(3, 1, 99);
    counts.row(&row(1));
    let (it, _, unresolved) = counts.finish(&[]);
    assert_eq!((it.written, unresolved.len()), (1, 0));
}

#[test]
fn another_users_entry_with_a_taken_id_must_be_buried() {
    for is_buried in [true, false] {
        let mut counts = admitted(1);
        counts.enter(2, 1, 99);
        if is_buried {
            counts.letter(2, 1, 99);
        }
        counts.row(&row(1));
        let (it, _, unresolved) = counts.finish(&[]);
        assert_eq!((it.written, unresolved.len()), if is_buried { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn an_order_that_mysql_has_ended_and_redis_keeps_is_named_unless_it_is_on_its_way() {
    for (in_flight, expected) in [(&[][..], vec![(1, false), (2, true)]), (&[1, 2], vec![])] {
        let mut counts = admitted(3);
        for id in 1..=3 {
            counts.note(id, &admit(id));
        }
        counts.row(&cancelled(1));
        counts.add_refusal(voucher(), order(2).1, 2);
        // The refusal belongs to another user.
        counts.add_refusal(voucher(), order(3).1, 9);
        counts.set_in_flight(|(_, order)| in_flight.contains(&order.get()));
        let unresolved = counts.follow(|_| EntryId::MAX, |_, _| false, &InFlight::default());
        assert_eq!(unresolved, [order(3)]);
        let kept = counts.kept().flat_map(|(_, orders)| orders).copied();
        let mut kept: Vec<(i64, bool)> = kept.map(|it| (it.order, it.is_refused)).collect();
        kept.sort_unstable();
        assert_eq!(kept, expected);
    }
}

#[test]
fn a_trimmed_entry_is_followed_by_its_journal() {
    let mut counts = OrderCounter::default();
    for (id, note) in [(1, admit(1)), (2, admit(2)), (3, release("worker:x"))] {
        counts.note(id, &note);
    }
    counts.row(&row(1));
    counts.row(&row(8));
    // The row came during the comparison.
    counts.add_row(voucher(), &row(9), RowSeen { is_own: true, is_in_flight: false, is_known: true });
    let (it, rows, unresolved) = counts.finish(&[]);
    assert_eq!((it.written, it.released, unresolved), (1, 1, vec![2]));
    assert_eq!((rows.unknown, rows.forgotten), (1, 1));
}

#[test]
fn what_is_on_its_way_is_no_oversell_risk_and_what_nobody_knows_of_makes_it_smaller() {
    let mut counts = admitted(3);
    for id in 1..=3 {
        counts.note(id, &admit(id));
    }
    counts.row(&row(1));
    counts.set_redis_stock(voucher(), Some(97));
    let (it, ..) = counts.finish(&[2, 3]);
    assert_eq!((it.risk(99), it.risk(90), it.risk(100)), (Some(0), Some(9), Some(0)));
    let mut counts = admitted(1);
    counts.note(1, &admit(1));
    counts.row(&row(1));
    counts.row(&row(8));
    counts.set_redis_stock(voucher(), Some(99));
    assert_eq!(counts.finish(&[]).0.risk(98), Some(0), "Redis does not know order 8");
    let mut counts = admitted(1);
    counts.note(1, &release("worker:user_has_order"));
    counts.set_redis_stock(voucher(), Some(102));
    assert_eq!(counts.finish(&[]).0.risk(100), Some(0), "the producer had taken no unit");
    let mut counts = admitted(1);
    counts.row(&row(1));
    counts.set_redis_stock(voucher(), Some(100));
    assert_eq!(counts.finish(&[]).0.risk(50), None, "no script of Tidegate sells the voucher");
}

fn unreadable() -> tidegate_orders::wire::WireError {
    let entry = tidegate_stream::Entry { id: entry(1), fields: Vec::new() };
    tidegate_orders::wire::FieldNames::default().decode(&entry).unwrap_err()
}

#[test]
fn what_is_no_order_and_was_put_back_is_where_its_latest_entry_is() {
    let mut counts = OrderCounter::default();
    counts.add_unreadable(entry(1), &[], true, &unreadable());
    counts.add_unreadable(entry(2), &[], true, &unreadable());
    counts.add_unreadable(entry(3), &[entry(1)], true, &unreadable());
    counts.unreadable.set_in_flight(&HashSet::from([entry(3)]));
    counts.unreadable.add_dead(&[entry(2), entry(9)]);
    assert!(!counts.unreadable.has_lost());
    let unreadable = counts.unreadable.report();
    let counts = (unreadable.total, unreadable.dead, unreadable.in_flight, unreadable.lost.total);
    assert_eq!(counts, (2, 1, 1, 0), "each is counted once");
}

#[test]
fn an_unreadable_entry_must_be_buried_or_in_flight() {
    let mut counts = OrderCounter::default();
    for seq in 1..=3 {
        counts.add_unreadable(entry(seq), &[], true, &unreadable());
    }
    counts.unreadable.set_in_flight(&HashSet::from([entry(3)]));
    counts.unreadable.add_dead(&[entry(1)]);
    assert!(counts.unreadable.has_lost());
    let unreadable = counts.unreadable.report();
    assert_eq!(
        (unreadable.total, unreadable.dead, unreadable.in_flight, unreadable.lost.total),
        (3, 1, 1, 1)
    );
}

#[test]
fn a_note_says_what_it_can() {
    use super::{Movement, movement};
    let user = 77.try_into().ok();
    assert_eq!(movement(&admit(77)), Movement::Admit { user, quantity: 1, at_ms: 5 });
    assert_eq!(movement(&release("worker:x")), Movement::Release { second_order_units: 0 });
    assert_eq!(movement(&release("worker:user_has_order")), Movement::Release { second_order_units: 2 });
    let unreadable = Movement::Admit { user: None, quantity: 0, at_ms: 0 };
    assert_eq!(movement(&JournalNote::default()), unreadable);
}
