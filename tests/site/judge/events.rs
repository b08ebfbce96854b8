//! What happened to orders: each event is recorded once, in its order, and moves its order along the drawing
//! of `docs/events.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Facts, Message,
    mysql::{EventRow, MysqlFacts, OrderRow},
};

/// Where an event may lead: status before and after. None: the order was not there, and is not written.
const STEPS: [(Option<i64>, i64); 9] = [
    (None, 4),
    (Some(1), 2),
    (Some(1), 4),
    (Some(2), 3),
    (Some(2), 5),
    (Some(2), 6),
    (Some(4), 5),
    (Some(5), 2),
    (Some(5), 6),
];

/// What MySQL alone shows of its events.
pub(super) fn of_mysql(mysql: &MysqlFacts) -> Vec<String> {
    let mut wrong = Vec::new();
    for (order, events) in &mysql.events {
        let row = mysql.orders.get(order);
        // Events of other vouchers are judged with these.
        let is_judged = row.is_some()
            || events.iter().any(|event| event.to.is_some() && mysql.vouchers.contains_key(&event.voucher));
        if is_judged {
            let found = [repeated(events), units(events, row), status(events, row)].concat();
            wrong.extend(found.into_iter().map(|what| format!("order {order}: {what}")));
        }
    }
    for order in &mysql.time_limits {
        let events = mysql.events.get(order).into_iter().flatten();
        if let Some(event) = events.rev().find(|event| event.to.is_some()) {
            wrong.push(format!("order {order} has to be paid in time, and {} has moved it", event.event));
        }
    }
    wrong
}

/// The same thing was done twice.
fn repeated(events: &[EventRow]) -> Vec<String> {
    let (mut done, mut entries, mut wrong) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for EventRow { step, event, entry, .. } in events {
        if !entries.insert((event, entry)) {
            wrong.push(format!("step {step} is the second {event} of entry {entry}"));
        }
    }
    for event in events.iter().filter(|event| event.is_done() && event.reference.is_some()) {
        if !done.insert((&event.event, &event.reference)) {
            let EventRow { step, event, reference, .. } = event;
            wrong.push(format!("step {step} did {event} of {reference:?} again"));
        }
    }
    wrong
}

/// Units go back when a step takes the slot away, once, and all of them.
fn units(events: &[EventRow], row: Option<&OrderRow>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut released = 0;
    for EventRow { step, event, from, to, released: units, .. } in events {
        released += i64::from(*units > 0);
        let must = matches!((from, to), (Some(1), Some(4)) | (Some(2), Some(6)));
        let may = must || (from, to) == (&Some(5), &Some(6));
        if must && *units == 0 || !may && *units > 0 {
            wrong.push(format!("step {step}, {event} from {from:?} to {to:?}, released {units} units"));
        }
    }
    if released > 1 {
        wrong.push(format!("{released} events released its units"));
    }
    let Some(row) = row else { return wrong };
    if released > 0 && row.is_live() {
        wrong.push("it is alive, and an event released its units".to_owned());
    }
    for EventRow { step, released: units, .. } in events.iter().filter(|event| event.released > 0) {
        if *units != row.quantity {
            wrong.push(format!("step {step} released {units} of its {} units", row.quantity));
        }
    }
    wrong
}

/// The order is where its last step has led.
fn status(events: &[EventRow], row: Option<&OrderRow>) -> Vec<String> {
    let mut wrong = Vec::new();
    for EventRow { step, event, from, to, .. } in events {
        if let Some(to) = to.filter(|to| !STEPS.contains(&(*from, *to))) {
            wrong.push(format!("step {step}, {event}, leads from {from:?} to {to}"));
        }
    }
    let Some(last) = events.iter().rev().find(|event| event.to.is_some()) else { return wrong };
    let EventRow { step, event, to, .. } = last;
    match row {
        None => wrong.push(format!("step {step}, {event}, has moved it to {to:?}, and it has no row")),
        Some(row) if Some(row.status) != *to => {
            wrong.push(format!("its status is {}, and step {step}, {event}, has led to {to:?}", row.status));
        }
        Some(_) => {}
    }
    wrong
}

/// Each event whose entry is settled is recorded or dead; and of an order whose own entry is in the stream or
/// a letter, all steps are there.
pub(super) fn of_both(facts: &Facts) -> Vec<String> {
    let entries = facts.redis.entries.iter().map(|entry| &entry.message);
    let messages = entries.chain(facts.redis.letters.iter().map(|letter| &letter.message));
    let named: BTreeSet<i64> = messages
        .filter_map(|message| match message {
            Message::Order(ordered) => Some(ordered.order),
            _ => None,
        })
        .collect();
    let mut wrong = without_steps(&facts.mysql.events, &named);
    for entry in facts.redis.entries.iter().filter(|entry| !entry.is_open) {
        let Message::Event(happened) = &entry.message else { continue };
        let recorded = facts.mysql.events.get(&happened.order).into_iter().flatten();
        let is_same = |event: &EventRow| {
            let has_reference = happened.reference.is_some() && event.reference == happened.reference;
            event.event == happened.event && (event.entry == entry.id || has_reference)
        };
        if !recorded.clone().any(is_same) && !facts.is_buried_or_followed(&entry.id) {
            let (event, order) = (&happened.event, happened.order);
            wrong.push(format!("order {order}: {event} of entry {} is settled and not recorded", entry.id));
        }
    }
    wrong
}

/// A purge takes events only of orders that neither the stream nor a letter names.
fn without_steps(events: &BTreeMap<i64, Vec<EventRow>>, named: &BTreeSet<i64>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (order, events) in events.iter().filter(|(order, _)| named.contains(order)) {
        let steps: Vec<i64> = events.iter().map(|event| event.step).collect();
        if steps.iter().zip(1..).any(|(step, expected)| *step != expected) {
            wrong.push(format!("order {order}: its events have the steps {steps:?}"));
        }
    }
    wrong
}
