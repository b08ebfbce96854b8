//! Decides each event of a batch, and what must be written for it: pure decisions over what the database holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tidegate_stream::EntryId;

use super::{
    verdict::{Contention, Freshness},
    work_list::Item,
};
use crate::{
    event::{Event, EventKind, History, PastEvent, decide},
    order::{OrderId, OrderIdentity, UserId, VoucherId},
    row_state::status,
    scripts::UserAfter,
};

/// An event, and the id of the stream entry that brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingEvent {
    /// The event that the entry holds.
    pub event: Event,
    /// The id of the stream entry that holds the event.
    pub entry: EntryId,
}

/// The decision on an event when it is recorded in MySQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventVerdict {
    /// The event is recorded, now or by an earlier call, with all changes that it makes.
    Recorded {
        /// The event with its outcome.
        event: PastEvent,
        /// Whether the user may order again, if the event took the order's slot away.
        user_after: UserAfter,
        /// The earlier event whose result is published instead of this event's, if this event changed nothing.
        published: Option<Box<PastEvent>>,
    },
    /// The database refuses the event, with this message.
    Rejected(String),
    /// Another session or node delays the write. Nothing was written, and the entry is not at fault: try again later.
    Contended(Contention),
}

/// An order that an event has ended: the event cancelled the order, refunded it, or let it expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedOrder {
    /// Whether the user of the order may order again.
    pub user_after: UserAfter,
    /// Whether the order was written to MySQL before it ended. If not, the order was cancelled before its entry came.
    pub was_written: bool,
}

/// Ended orders, which hold no units any more, in two maps: orders that an event ended, and orders whose rows another
/// program wrote as already ended. If Tidegate wrote the row and another program ended the order later, the order is in
/// neither map: Tidegate cannot know whether that program also returned the units in Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedOrders {
    /// The orders that an event ended. If Redis still counts the units of such an order as taken, the units must return
    /// to the stock.
    pub by_events: HashMap<OrderId, EndedOrder>,
    /// The orders whose rows another program wrote as already ended. For each order: whether its user may order again,
    /// and the time of the row in Unix milliseconds.
    pub by_another_program: HashMap<OrderId, (UserAfter, i64)>,
}

/// The events of one order, in stream order. They are recorded together or not at all.
#[derive(Clone, Debug)]
pub(super) struct OrderEvents<'a> {
    pub events: Vec<&'a IncomingEvent>,
    /// The entries among these events whose user or voucher differs from the journal's.
    of_others: HashSet<EntryId>,
}

impl OrderEvents<'_> {
    fn first(&self) -> &Event {
        &self.events[0].event
    }
}

impl Item for OrderEvents<'_> {
    fn voucher(&self) -> VoucherId {
        self.first().voucher
    }

    fn order(&self) -> OrderId {
        self.first().order
    }
}

/// The outcome of one event, as in [`EventVerdict::Recorded`].
#[derive(Clone, Debug)]
pub(super) struct DecidedEvent {
    event: PastEvent,
    user_after: UserAfter,
    published: Option<Box<PastEvent>>,
}

/// The outcome of the events of one order.
#[derive(Clone, Debug)]
pub(super) enum Recorded {
    All(Vec<DecidedEvent>),
    Rejected(String),
    Contended(Contention),
}

impl From<Contention> for Recorded {
    fn from(contention: Contention) -> Self {
        Self::Contended(contention)
    }
}

/// The change of an order's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OrderChange {
    pub from: i64,
    pub to: i64,
    pub had_slot: bool,
    pub frees_slot: bool,
}

/// The changes that must be written for some events.
#[derive(Debug, Default)]
pub(super) struct EventChanges<'a> {
    /// The orders without a row that an event cancels. For each order: the event with its user and voucher, the id of
    /// the event's entry, and the status of the row to write.
    pub cancelled_before: BTreeMap<OrderId, (&'a Event, EntryId, i64)>,
    pub moved: BTreeMap<OrderId, OrderChange>,
    pub recorded: Vec<(&'a Event, PastEvent)>,
    /// For each voucher, the number of units that the events return to its stock.
    pub units: BTreeMap<VoucherId, i64>,
    /// The orders whose time limit for the payment has ended or was removed, because of an event.
    pub time_limits_over: BTreeSet<OrderId>,
}

impl EventChanges<'_> {
    pub fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.time_limits_over.is_empty()
    }
}

/// The contents of the database that matter to the events of some orders.
#[derive(Debug, Default)]
pub(super) struct KnownEvents {
    pub histories: HashMap<OrderId, History>,
    /// The live orders in MySQL of each pair of voucher and user whose order may end.
    pub live: HashMap<(VoucherId, UserId), HashSet<OrderId>>,
    /// The orders that must be paid in time, each with the user and the voucher of its row.
    pub with_time_limit: HashMap<OrderId, (i64, i64)>,
    /// The orders that MySQL has lost and that a repair can restore.
    pub lost: HashSet<OrderId>,
}

impl KnownEvents {
    /// Whether the order had a time limit for its payment and is no longer that unpaid order: these events moved it, or
    /// another program changed its row.
    fn is_time_limit_over(&self, order: OrderId, after: &History) -> bool {
        let is_unpaid = |owner: &(i64, i64)| {
            after.row.is_some_and(|row| {
                (row.status, row.has_slot, (row.user, row.voucher)) == (status::UNPAID, true, *owner)
            })
        };
        self.with_time_limit.get(&order).is_some_and(|owner| !is_unpaid(owner))
    }

    /// Whether neither a row nor a refusal of the order is known.
    pub(super) fn is_unknown(&self, order: OrderId) -> bool {
        let history = self.histories.get(&order);
        history.is_none_or(|history| history.row.is_none() && history.refused.is_none())
    }

    /// Whether the verdict on these events depends on an unknown order, without a row and without a refusal.
    pub(super) fn lacks_row_for(&self, order: &OrderEvents<'_>) -> bool {
        let id = order.first().order;
        let past = self.histories.get(&id).map_or(&[][..], |history| &history.events);
        let is_recorded = |incoming: &&IncomingEvent| {
            past.iter().any(|past| past.is_of(incoming.event.kind, incoming.entry))
        };
        self.is_unknown(id) && !order.events.iter().all(is_recorded)
    }

    /// Orders that MySQL may have lost, with the user and voucher of each event that needs its order. A cancellation
    /// needs none: it may come before its order. An order with a time limit, or one that an event has moved, had a row
    /// that was deleted manually, so it is not lost. The comparison decides the same, and reports a manual change.
    pub(super) fn perhaps_lost(&self, part: &[&OrderEvents<'_>]) -> Vec<OrderIdentity> {
        let had_row = |order: OrderId| {
            let history = self.histories.get(&order);
            let was_moved =
                history.is_some_and(|history| history.events.iter().any(|past| past.step.is_some()));
            was_moved || self.with_time_limit.contains_key(&order)
        };
        let lacking = part.iter().filter(|order| self.lacks_row_for(order) && !had_row(order.order()));
        let events = lacking.flat_map(|order| &order.events).map(|incoming| &incoming.event);
        events.filter(|event| event.kind != EventKind::Cancelled).map(Event::subject).collect()
    }

    /// Notes that this event took the order's slot away.
    fn has_ended(&mut self, order: OrderId, event: &Event) {
        if let Some(live) = self.live.get_mut(&(event.voucher, event.user)) {
            live.remove(&order);
        }
    }

    /// Whether the user stays a buyer, because another order of this user for the voucher is live. Valid only for
    /// orders that may end: the live orders of other users are not read.
    pub(super) fn user_after(&self, order: OrderId, user: UserId, voucher: VoucherId) -> UserAfter {
        let live = self.live.get(&(voucher, user));
        match live.is_some_and(|orders| orders.iter().any(|other| *other != order)) {
            true => UserAfter::StaysBuyer,
            false => UserAfter::Freed,
        }
    }
}

/// Groups the events by order. The orders are in the order of their first events; the second list holds the places of
/// each order's events.
pub(super) fn by_order<'a>(
    events: &'a [IncomingEvent],
    of_others: &HashSet<EntryId>,
) -> (Vec<OrderEvents<'a>>, Vec<Vec<usize>>) {
    let mut at_order: HashMap<OrderId, usize> = HashMap::new();
    let (mut orders, mut places): (Vec<OrderEvents<'a>>, Vec<Vec<usize>>) = (Vec::new(), Vec::new());
    for (place, incoming) in events.iter().enumerate() {
        let id = incoming.event.order;
        let at = *at_order.entry(id).or_insert(orders.len());
        if at == orders.len() {
            orders.push(OrderEvents { events: Vec::new(), of_others: HashSet::new() });
            places.push(Vec::new());
        }
        orders[at].events.push(incoming);
        orders[at].of_others.extend(of_others.get(&incoming.entry));
        places[at].push(place);
    }
    (orders, places)
}

pub(super) fn in_stream_order(
    recorded: Vec<Recorded>,
    places: &[Vec<usize>],
    count: usize,
) -> Vec<EventVerdict> {
    let mut verdicts = vec![EventVerdict::Contended(Contention::Batch); count];
    for (recorded, places) in recorded.into_iter().zip(places) {
        match recorded {
            Recorded::All(all) => {
                for (place, DecidedEvent { event, user_after, published }) in places.iter().zip(all) {
                    verdicts[*place] = EventVerdict::Recorded { event, user_after, published };
                }
            }
            Recorded::Rejected(error) => {
                places.iter().for_each(|place| verdicts[*place] = EventVerdict::Rejected(error.clone()));
            }
            Recorded::Contended(contention) => {
                places.iter().for_each(|place| verdicts[*place] = EventVerdict::Contended(contention));
            }
        }
    }
    verdicts
}

/// Decides the events of some orders, and adds to `changes` what must be written.
///
/// Two orders of one user may end in one batch, so all of them decide together whether the user may order again. If
/// the node is behind the others, events of an order that it does not show wait, as do events of a lost order.
pub(super) fn decide_orders<'a>(
    part: &[&OrderEvents<'a>],
    known: &mut KnownEvents,
    freshness: Freshness,
    changes: &mut EventChanges<'a>,
) -> Vec<Recorded> {
    let decide = |order: &&OrderEvents<'a>| {
        if freshness == Freshness::Behind && known.lacks_row_for(order) {
            return Err(Contention::NodeBehind);
        }
        if known.lost.contains(&order.order()) {
            return Err(Contention::Lost(order.voucher()));
        }
        Ok(decide_order(order, known, changes))
    };
    let decided: Vec<_> = part.iter().map(decide).collect();
    let with_user = |(order, decided): (&&OrderEvents<'a>, Result<Vec<Told>, Contention>)| {
        let decided = match decided {
            Ok(decided) => decided,
            Err(contention) => return contention.into(),
        };
        let events = order.events.iter().zip(decided);
        let with_user =
            events.map(|(IncomingEvent { event: Event { order, user, voucher, .. }, .. }, told)| {
                let user_after = known.user_after(*order, *user, *voucher);
                DecidedEvent { event: told.0, user_after, published: told.1 }
            });
        Recorded::All(with_user.collect())
    };
    part.iter().zip(decided).map(with_user).collect()
}

/// The event with its outcome, and the earlier event whose result is published instead.
type Told = (PastEvent, Option<Box<PastEvent>>);

/// Decides the events of an order one after the other, each by its own user and voucher.
fn decide_order<'a>(
    order: &OrderEvents<'a>,
    known: &mut KnownEvents,
    changes: &mut EventChanges<'a>,
) -> Vec<Told> {
    let id = order.first().order;
    let mut history = known.histories.remove(&id).unwrap_or_default();
    let before = history.clone();
    let mut decided = Vec::with_capacity(order.events.len());
    for IncomingEvent { event, entry } in order.events.iter().copied() {
        let recorded = history.events.len();
        history.is_of_another = order.of_others.contains(entry);
        let past = decide(event, *entry, &mut history);
        if history.events.len() > recorded {
            if past.came_before_order() {
                changes.cancelled_before.insert(id, (event, *entry, status::CANCELLED));
            }
            if past.released > 0 {
                *changes.units.entry(event.voucher).or_default() += past.released;
                known.has_ended(id, event);
            }
            changes.recorded.push((event, past.clone()));
        }
        let published = history.published_for(&past).cloned().map(Box::new);
        decided.push((past, published));
    }
    note_row(id, &before, &history, changes);
    if known.is_time_limit_over(id, &history) {
        changes.time_limits_over.insert(id);
    }
    decided
}

fn note_row(id: OrderId, before: &History, after: &History, changes: &mut EventChanges<'_>) {
    match (before.row, after.row) {
        // A later event of the batch may have moved the row that the first one creates.
        (None, Some(row)) => {
            if let Some((.., status)) = changes.cancelled_before.get_mut(&id) {
                *status = row.status;
            }
        }
        (Some(was), Some(is)) if was != is => {
            let frees_slot = was.has_slot && !is.has_slot;
            let change = OrderChange { from: was.status, to: is.status, had_slot: was.has_slot, frees_slot };
            changes.moved.insert(id, change);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
