//! Plays sales move by move, with the clock standing still for some moves. The snapshot is taken anywhere, and each
//! field is read at some time after it. If nothing else changes the stock, the sum holds; otherwise it shows the
//! difference.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::records::journal::{COMPLETE, PURGED, Purged, ReleasedAdmission};

#[derive(Clone, Debug)]
enum Move {
    Admit(i64),
    /// Releases one of the orders that are admitted.
    Release(usize),
    Add(i64),
    /// Writes the stock, and no note.
    Hand(i64),
    /// Compacts one of the orders that are older than the clock.
    Fold(usize),
    Tick,
}

/// The contents of Redis after each move.
#[derive(Clone, Debug, Default)]
struct Held {
    stock: i64,
    now_ms: i64,
    /// The ids that were assigned.
    ids: usize,
    notes: BTreeMap<String, JournalNote>,
    purged: Option<Purged>,
}

fn note(action: &str, (from, change, at_ms): (i64, i64, i64)) -> JournalNote {
    let note =
        json!({"action": action, "from": from, "to": from + change, "change": change, "timestamp": at_ms});
    JournalNote::parse(note.to_string().as_bytes()).unwrap()
}

impl Held {
    fn loaded() -> Self {
        let mut held = Self { stock: 50, now_ms: 2, ..Self::default() };
        held.notes.insert("#load".to_owned(), note("load", (0, 50, 1)));
        held.notes.insert(COMPLETE.to_owned(), note("complete", (0, 0, 1)));
        held
    }

    fn apply(&self, step: &Move) -> Self {
        let mut held = self.clone();
        held.ids += 1;
        let (from, next) = (held.stock, held.ids);
        let moved = |change: i64| (from, change, held.now_ms);
        match *step {
            Move::Admit(quantity) => {
                held.notes.insert(next.to_string(), note("admit", moved(-quantity)));
                held.stock -= quantity;
            }
            Move::Release(which) => {
                let admitted: Vec<_> = held.notes.iter().filter(|(_, note)| note.is_admission()).collect();
                let Some((order, was)) = admitted.get(which % admitted.len().max(1)) else { return held };
                let (order, change) = ((*order).clone(), was.change.unwrap_or(0));
                let admitted = ReleasedAdmission { user: None, change, at_ms: was.at_ms, from: was.from };
                let released = JournalNote { admitted: Some(admitted), ..note("release", moved(-change)) };
                held.notes.insert(order, released);
                held.stock -= change;
            }
            Move::Add(units) => {
                held.notes.insert(format!("#add:{next}"), note("add", moved(units)));
                held.stock += units;
            }
            Move::Hand(units) => held.stock += units,
            Move::Fold(which) => {
                let is_old = |note: &JournalNote| note.at_ms.is_some_and(|at_ms| at_ms < held.now_ms);
                let old: Vec<_> = held
                    .notes
                    .iter()
                    .filter(|(name, note)| !name.starts_with('#') && is_old(note))
                    .map(|(name, note)| (name.clone(), note.total_change()))
                    .collect();
                let Some((order, change)) = old.get(which % old.len().max(1)) else { return held };
                let purged = held.purged.get_or_insert_default();
                (purged.change, purged.used_units) = (purged.change + change, purged.used_units - change);
                purged.used_orders += 1;
                held.notes.remove(order);
                held.notes.insert(PURGED.to_owned(), note("purge", (0, 0, 1)));
            }
            Move::Tick => held.now_ms += 1,
        }
        held
    }
}

/// All states of Redis, from the beginning to the end, which is a millisecond of its own.
fn played(moves: &[Move]) -> Vec<Held> {
    let mut all = vec![Held::loaded()];
    for step in moves.iter().chain([&Move::Tick]) {
        all.push(all[all.len() - 1].apply(step));
    }
    all
}

/// The sum of a snapshot at `cut`.
fn look(all: &[Held], cut: usize, read_at: &[usize]) -> Sum {
    let (at, end) = (&all[cut], &all[all.len() - 1]);
    let over = all.iter().position(|held| held.now_ms > at.now_ms).unwrap_or(all.len() - 1);
    let mut sum = JournalSum::new(snapshot(at));
    for (nth, name) in end.notes.keys().enumerate() {
        // Each field is read some time after that millisecond; a field that came only then may be missed.
        let late = over + read_at[nth % read_at.len()] % (all.len() - over);
        if let Some(note) = all[late].notes.get(name) {
            sum.add(JournalField::parse(name), note);
        }
    }
    sum.finish(&snapshot(end))
}

fn moves(hand: impl Strategy<Value = Move> + 'static) -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        8 => (1..4_i64).prop_map(Move::Admit),
        5 => (0..9_usize).prop_map(Move::Release),
        2 => Just(Move::Tick),
        1 => hand,
    ];
    prop::collection::vec(one, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn without_a_hand_the_sum_holds_wherever_the_snapshot_is(
        moves in moves(Just(Move::Tick)),
        cut in any::<prop::sample::Index>(),
        read_at in prop::collection::vec(0..30_usize, 1..30),
    ) {
        let all = played(&moves);
        let cut = cut.index(all.len());
        let sum = look(&all, cut, &read_at);
        prop_assert!(sum == Sum::Holds || sum == Sum::Unsure && is_closed(&all[cut], &all), "{sum:?}");
    }

    #[test]
    fn a_change_of_the_whole_sale_is_at_worst_a_reason_to_look_again(
        moves in moves((1..9_i64).prop_map(Move::Add)),
        cut in any::<prop::sample::Index>(),
        read_at in prop::collection::vec(0..30_usize, 1..30),
    ) {
        let all = played(&moves);
        let at = &all[cut.index(all.len())];
        let sum = look(&all, cut.index(all.len()), &read_at);
        let is_within = |note: &JournalNote| note.action == "add" && note.at_ms == Some(at.now_ms);
        let is_near = all[all.len() - 1].notes.values().any(is_within);
        let is_near = is_near || is_closed(at, &all);
        prop_assert!(sum == Sum::Holds || is_near && sum == Sum::Unsure, "{sum:?}");
    }

    #[test]
    fn what_a_hand_did_in_an_earlier_millisecond_is_told_exactly(
        before in moves(Just(Move::Tick)),
        hand in prop_oneof![-9..0_i64, 1..9_i64],
        after in moves(Just(Move::Tick)),
        cut in any::<prop::sample::Index>(),
        read_at in prop::collection::vec(0..30_usize, 1..30),
    ) {
        let mut moves = before;
        moves.extend([Move::Tick, Move::Hand(hand), Move::Tick]);
        let since = moves.len();
        moves.extend(after);
        let all = played(&moves);
        let cut = since + cut.index(all.len() - since);
        let sum = look(&all, cut, &read_at);
        // If as many units came back as went, the beginning of the millisecond is unknown.
        prop_assert!(sum == Sum::Mismatch(hand) || sum == Sum::Unsure && is_closed(&all[cut], &all), "{sum:?}");
    }

    #[test]
    fn a_field_that_is_read_twice_makes_it_unsure(
        moves in moves(Just(Move::Tick)),
        cut in any::<prop::sample::Index>(),
        twice in any::<prop::sample::Index>(),
    ) {
        let all = played(&moves);
        let at = &all[cut.index(all.len())];
        let at = &at.apply(&Move::Tick);
        let mut sum = JournalSum::new(snapshot(at));
        for (name, note) in &at.notes {
            sum.add(JournalField::parse(name), note);
        }
        prop_assert_eq!(sum.finish(&snapshot(at)), Sum::Holds);
        let (name, note) = at.notes.iter().nth(twice.index(at.notes.len())).unwrap();
        sum.add(JournalField::parse(name), note);
        prop_assert_eq!(sum.finish(&snapshot(at)), Sum::Unsure);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_compaction_while_the_journal_is_read_makes_it_unsure_and_one_before_it_changes_no_sum(
        before in moves((0..9_usize).prop_map(Move::Fold)),
        after in moves((0..9_usize).prop_map(Move::Fold)),
        read_at in prop::collection::vec(0..30_usize, 1..30),
    ) {
        let mut moves = before;
        moves.push(Move::Tick);
        let cut = moves.len();
        moves.push(Move::Tick);
        moves.extend(after);
        let all = played(&moves);
        let is_compacted_since = all[cut].purged != all[all.len() - 1].purged;
        let expected = if is_compacted_since { Sum::Unsure } else { Sum::Holds };
        prop_assert_eq!(look(&all, cut, &read_at), expected);
    }
}

fn snapshot(at: &Held) -> JournalSnapshot {
    let journaled = at.notes.len() as u64;
    let stream_end = tidegate_stream::EntryId::MIN;
    let (stock, purged) = (Some(at.stock), at.purged);
    JournalSnapshot { stock, at_ms: at.now_ms, stream_end, is_complete: true, journaled, purged }
}

/// The stock at the end of the millisecond of the snapshot is the one of its beginning.
fn is_closed(at: &Held, all: &[Held]) -> bool {
    let mut within = all.iter().filter(|held| held.now_ms == at.now_ms).map(|held| held.stock);
    let first = within.next();
    first == within.next_back().or(first)
}

fn sum_of(snapshot: JournalSnapshot, notes: &[(&str, JournalNote)], end_ms: i64) -> Sum {
    let mut sum = JournalSum::new(snapshot);
    for (name, note) in notes {
        sum.add(JournalField::parse(name), note);
    }
    sum.finish(&JournalSnapshot { at_ms: end_ms, ..snapshot })
}

#[test]
fn what_nobody_can_tell_is_unsure() {
    let held = Held::loaded().apply(&Move::Admit(2));
    let notes: Vec<_> = held.notes.iter().map(|(name, note)| (name.as_str(), note.clone())).collect();
    let now = snapshot(&held);
    assert_eq!(sum_of(now, &notes, 2), Sum::Holds);
    assert_eq!(sum_of(now, &notes, 1), Sum::Unsure, "a movement of the future");
    assert_eq!(sum_of(JournalSnapshot { is_complete: false, ..now }, &notes, 2), Sum::Unsure);
    assert_eq!(sum_of(now, &notes[..2], 2), Sum::Unsure, "a field is missing");
    assert_eq!(
        sum_of(JournalSnapshot { stock: Some(47), ..now }, &notes, 2),
        Sum::Unsure,
        "no value of the chain"
    );
}

#[test]
fn a_hand_that_wrote_another_value_of_the_chain_is_seen_by_the_number_of_fields() {
    let mut held = Held::loaded();
    for _ in 0..9 {
        held = held.apply(&Move::Admit(1));
    }
    let held = held.apply(&Move::Hand(7));
    let notes: Vec<_> = held.notes.iter().map(|(name, note)| (name.as_str(), note.clone())).collect();
    assert_eq!(sum_of(snapshot(&held), &notes, 2), Sum::Unsure);
    let later = JournalSnapshot { at_ms: 3, ..snapshot(&held) };
    assert_eq!(sum_of(later, &notes, 3), Sum::Mismatch(7));
    assert_eq!(
        sum_of(JournalSnapshot { stock: None, ..later }, &notes, 3),
        Sum::Mismatch(-41),
        "no stock is none"
    );
}

#[test]
fn the_units_of_the_whole_sale_are_added_up_beside() {
    let mut held = Held::loaded().apply(&Move::Add(5)).apply(&Move::Admit(3));
    held.now_ms += 1;
    let mut sum = JournalSum::new(snapshot(&held));
    for (name, note) in &held.notes {
        sum.add(JournalField::parse(name), note);
    }
    assert_eq!((sum.loaded(), sum.finish(&snapshot(&held))), (55, Sum::Holds));
}

#[test]
fn a_release_that_brought_nothing_back_lowers_what_the_sale_has_and_one_of_an_older_script_says_nothing() {
    let mut held = Held { now_ms: 2, ..Held::loaded() };
    // Two units were admitted, and MySQL did not have them.
    let admitted = ReleasedAdmission { user: None, change: -2, at_ms: Some(2), from: Some(50) };
    let refused = JournalNote { admitted: Some(admitted), ..note("release", (48, 0, 3)) };
    held.notes.insert("1".to_owned(), refused);
    held.stock = 48;
    // An older script released an order of three units, and kept no admission.
    held.notes.insert("2".to_owned(), note("release", (45, 3, 4)));
    let mut sum = JournalSum::new(JournalSnapshot { at_ms: 9, ..snapshot(&held) });
    held.notes.iter().for_each(|(field, note)| sum.add(JournalField::parse(field), note));
    let end = JournalSnapshot { at_ms: 10, ..snapshot(&held) };
    assert_eq!((sum.finish(&end), sum.loaded()), (Sum::Holds, 48));
}
