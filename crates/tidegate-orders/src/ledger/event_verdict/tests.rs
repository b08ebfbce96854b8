use proptest::{collection::vec, option, prelude::*, sample::select};

use super::*;
use crate::event::{EventKind, Row};

/// The user who placed an order, and its voucher.
type Owner = (i64, i64);

/// The contents of MySQL, as far as events read and write them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Database {
    /// The rows, each with the entry that it names if its event came before the order.
    rows: BTreeMap<OrderId, (Row, Option<EntryId>)>,
    recorded: BTreeMap<(OrderId, u32), (Event, PastEvent)>,
    units: BTreeMap<VoucherId, i64>,
}

impl Database {
    /// Orders 1 to 3 of voucher 7: the first two of user 5, both live, and the third of user 6. The others have no row.
    fn new() -> Self {
        let row =
            |user| (Row { user, voucher: 7, quantity: 2, status: status::UNPAID, has_slot: true }, None);
        let rows = [(1, 5), (2, 5), (3, 6)].map(|(order, user)| (order.try_into().unwrap(), row(user)));
        Self { rows: rows.into(), ..Self::default() }
    }

    fn known(&self) -> KnownEvents {
        let mut known = KnownEvents::default();
        for (order, (row, _)) in &self.rows {
            known.histories.entry(*order).or_default().row = Some(*row);
            if row.has_slot {
                let key = (row.voucher.try_into().unwrap(), row.user.try_into().unwrap());
                known.live.entry(key).or_default().insert(*order);
            }
        }
        for ((order, _), (_, past)) in &self.recorded {
            known.histories.entry(*order).or_default().events.push(past.clone());
        }
        known
    }

    fn write(&mut self, changes: EventChanges<'_>) {
        for (order, (event, entry, status)) in changes.cancelled_before {
            let (user, voucher) = (event.user.get(), event.voucher.get());
            let row = Row { user, voucher, quantity: 1, status, has_slot: false };
            assert!(self.rows.insert(order, (row, Some(entry))).is_none(), "{order} has a row");
        }
        for (order, change) in changes.moved {
            let (row, _) = self.rows.get_mut(&order).expect("a row that moves");
            assert_eq!((row.status, row.has_slot), (change.from, change.had_slot));
            (row.status, row.has_slot) = (change.to, row.has_slot && !change.frees_slot);
        }
        for (event, past) in changes.recorded {
            let key = (event.order, past.number);
            assert!(self.recorded.insert(key, (event.clone(), past)).is_none(), "{key:?} twice");
        }
        for (voucher, units) in changes.units {
            *self.units.entry(voucher).or_default() += units;
        }
    }

    /// Records a batch, and returns the outcome of each event and whether its user may order again.
    fn record(
        &mut self,
        events: &[IncomingEvent],
        of_others: &HashSet<EntryId>,
    ) -> Vec<(PastEvent, UserAfter)> {
        let (orders, places) = by_order(events, of_others);
        let (mut known, mut changes) = (self.known(), EventChanges::default());
        let part: Vec<_> = orders.iter().collect();
        let recorded = decide_orders(&part, &mut known, Freshness::Current, &mut changes);
        self.write(changes);
        let verdicts = in_stream_order(recorded, &places, events.len()).into_iter();
        let of_verdict = |verdict| match verdict {
            EventVerdict::Recorded { event, user_after, .. } => (event, user_after),
            other => panic!("{other:?}"),
        };
        verdicts.map(of_verdict).collect()
    }
}

fn incoming(at: usize, kind: EventKind, order: i64, (user, voucher): Owner) -> IncomingEvent {
    let event = Event {
        kind,
        order: order.try_into().unwrap(),
        user: user.try_into().unwrap(),
        voucher: voucher.try_into().unwrap(),
        reference: None,
        payment: None,
        reason: None,
    };
    IncomingEvent { event, entry: EntryId { ms: at as u64, seq: 0 } }
}

/// The events whose user or voucher differs from the journal's.
fn of_others(events: &[IncomingEvent], journal: &BTreeMap<i64, Owner>) -> HashSet<EntryId> {
    let is_of_another = |IncomingEvent { event, .. }: &&IncomingEvent| {
        let owner = journal.get(&event.order.get());
        event.kind == EventKind::Cancelled
            && owner
                .is_some_and(|(user, voucher)| *voucher == event.voucher.get() && *user != event.user.get())
    };
    events.iter().filter(is_of_another).map(|incoming| incoming.entry).collect()
}

/// The row of order 4 that these events create in one batch.
fn cancelled_before<const N: usize>(events: [(EventKind, Owner); N]) -> (Row, Option<EntryId>) {
    let mut database = Database::new();
    let events: Vec<_> = (1..).zip(events).map(|(at, (kind, owner))| incoming(at, kind, 4, owner)).collect();
    let of_others = of_others(&events, &BTreeMap::from([(4, (5, 7))]));
    database.record(&events, &of_others);
    database.rows[&4.try_into().unwrap()]
}

#[test]
fn a_row_that_is_cancelled_before_its_order_belongs_to_whoever_cancelled_it() {
    use EventKind::{Cancelled, Paid, Used};
    let (right, wrong_user, wrong_voucher) = ((5, 7), (6, 7), (5, 8));
    for (events, status) in [
        ([(Paid, wrong_user), (Cancelled, right)], status::CANCELLED),
        ([(Paid, wrong_voucher), (Cancelled, right)], status::CANCELLED),
        ([(Used, wrong_user), (Cancelled, right)], status::CANCELLED),
        // The journal knows the order's user: an event of another user cancels nothing, and does not block one of the
        // right user.
        ([(Cancelled, wrong_user), (Cancelled, right)], status::CANCELLED),
    ] {
        let row = Row { user: 5, voucher: 7, quantity: 1, status, has_slot: false };
        assert_eq!(cancelled_before(events), (row, Some(EntryId { ms: 2, seq: 0 })), "{events:?}");
    }
    let late = cancelled_before([(Used, wrong_user), (Cancelled, right), (Paid, right), (Paid, wrong_user)]);
    let row = Row { user: 5, voucher: 7, quantity: 1, status: status::REFUNDING, has_slot: false };
    assert_eq!(late, (row, Some(EntryId { ms: 2, seq: 0 })));
}

#[test]
fn a_user_whose_orders_all_end_in_one_batch_may_order_again() {
    let mut database = Database::new();
    let events = [1, 2, 3].map(|order| {
        incoming(order as usize, EventKind::Cancelled, order, (if order == 3 { 6 } else { 5 }, 7))
    });
    let first = database.record(&events[..1], &HashSet::new());
    assert_eq!(first[0].1, UserAfter::StaysBuyer);
    let mut database = Database::new();
    let verdicts = database.record(&events, &HashSet::new());
    assert!(verdicts.iter().all(|(_, after)| *after == UserAfter::Freed), "{verdicts:?}");
    assert_eq!(database.record(&events, &HashSet::new()), verdicts, "and hears so again");
}

#[test]
fn a_node_that_is_behind_decides_only_of_orders_that_it_shows() {
    let mut database = Database::new();
    let paid = |at, order| incoming(at, EventKind::Paid, order, (5, 7));
    database.record(&[paid(1, 4)], &HashSet::new());
    let events = [paid(1, 4), paid(2, 1), paid(3, 5), paid(4, 5)];
    let (orders, places) = by_order(&events, &HashSet::new());
    let (mut known, mut changes) = (database.known(), EventChanges::default());
    let part: Vec<_> = orders.iter().collect();
    assert_eq!(part.iter().map(|order| known.lacks_row_for(order)).collect::<Vec<_>>(), [false, false, true]);
    let recorded = decide_orders(&part, &mut known, Freshness::Behind, &mut changes);
    assert_eq!(changes.recorded.len(), 1, "what was recorded before stays as it was decided");
    let verdicts = in_stream_order(recorded, &places, events.len());
    let waits = EventVerdict::Contended(Contention::NodeBehind);
    assert_eq!(
        verdicts.iter().map(|verdict| *verdict == waits).collect::<Vec<_>>(),
        [false, false, true, true]
    );
}

#[test]
fn events_wait_for_an_order_that_is_lost_and_for_none_that_is_not_there_or_was_deleted() {
    let mut database = Database::new();
    let paid = |at, order, user| incoming(at, EventKind::Paid, order, (user, 7));
    // A payment by another user is recorded for order 5; order 1 is paid, and its row is deleted.
    database.record(&[paid(1, 5, 9), paid(2, 1, 5)], &HashSet::new());
    database.rows.remove(&1.try_into().unwrap());
    let cancelled = incoming(5, EventKind::Cancelled, 6, (5, 7));
    let events = [paid(3, 5, 5), paid(4, 4, 5), cancelled, paid(6, 1, 5), paid(7, 2, 5)];
    let (orders, places) = by_order(&events, &HashSet::new());
    let (mut known, mut changes) = (database.known(), EventChanges::default());
    let part: Vec<_> = orders.iter().collect();
    let asked: Vec<i64> = known.perhaps_lost(&part).into_iter().map(|(order, ..)| order.get()).collect();
    assert_eq!(asked, [5, 4]);
    known.lost.insert(5.try_into().unwrap());
    let recorded = decide_orders(&part, &mut known, Freshness::Current, &mut changes);
    let verdicts = in_stream_order(recorded, &places, events.len());
    let waits = EventVerdict::Contended(Contention::Lost(7.try_into().unwrap()));
    let waiting: Vec<bool> = verdicts.iter().map(|verdict| *verdict == waits).collect();
    assert_eq!(waiting, [true, false, false, false, false]);
}

/// Events of orders with and without a row, some of them with a wrong user or a wrong voucher.
fn any_event() -> impl Strategy<Value = (EventKind, i64, Owner, Option<&'static str>)> {
    let kinds = select(EventKind::ALL.to_vec());
    (kinds, 1_i64..=5, (5_i64..=6, 7_i64..=8), option::of(select(vec!["a", "b"])))
}

proptest! {
    /// The outcomes of events do not depend on how they fall into batches.
    #[test]
    fn one_batch_decides_as_separate_ones_do(
        events in vec((any_event(), any::<bool>()), 1..20),
        placed_by in 5_i64..=6,
    ) {
        let journal = BTreeMap::from([(1, (5, 7)), (2, (5, 7)), (3, (6, 7)), (4, (placed_by, 7))]);
        let mut incoming_events = Vec::new();
        for (at, ((kind, order, owner, reference), _)) in events.iter().enumerate() {
            let mut incoming = incoming(at, *kind, *order, *owner);
            incoming.event.reference = reference.map(|reference| reference.parse().unwrap());
            incoming_events.push(incoming);
        }
        let incoming = incoming_events;
        let (mut whole, mut parts, mut single) = (Database::new(), Database::new(), Database::new());
        let of_others = of_others(&incoming, &journal);
        let told = |verdicts: Vec<(PastEvent, UserAfter)>| verdicts.into_iter().map(|(past, _)| past);
        let of_whole: Vec<PastEvent> = told(whole.record(&incoming, &of_others)).collect();
        let (mut of_parts, mut of_single) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (at, (_, is_last)) in events.iter().enumerate() {
            of_single.extend(told(single.record(&incoming[at..=at], &of_others)));
            if *is_last || at + 1 == events.len() {
                of_parts.extend(told(parts.record(&incoming[first..=at], &of_others)));
                first = at + 1;
            }
        }
        prop_assert_eq!(&of_whole, &of_single);
        prop_assert_eq!(&of_parts, &of_single);
        prop_assert_eq!(&whole, &single);
        prop_assert_eq!(&parts, &single);
    }
}
