//! Dead letters that hold events of orders which are dead letters themselves. A requeue appends them after their order,
//! not before it: if the order is missing, a payment would have to be refunded.

use std::collections::HashMap;

use anyhow::Context;
use tidegate_orders::{DeadLetters, OrderId, UserId, VoucherId, dead_letters::buried_order, wire::Message};
use tidegate_stream::{EntryId, Letter};

use super::selection::LetterSelection;

/// The order with its user and its voucher. A letter that has the id of another user's order is not about that order.
type Owned = (OrderId, UserId, VoucherId);

/// The events of dead orders. Each needs about 60 bytes of memory, and letters of other kinds need none.
#[derive(Debug, Default)]
pub(super) struct BuriedEvents {
    of: HashMap<Owned, OfOrder>,
}

#[derive(Debug, Default)]
struct OfOrder {
    events: Vec<BuriedEvent>,
    /// Whether the order's letter is selected; None: the letter was not found.
    order: Option<IsSelected>,
}

/// A letter that holds an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BuriedEvent {
    pub(super) letter: EntryId,
    /// The event's first entry, by which events are sorted as they were appended.
    first: EntryId,
    pub(super) is_selected: bool,
}

/// Whether a letter is among those that were selected.
type IsSelected = bool;

/// The place of a letter among the events of dead orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// The letter is no event of a dead order.
    Nowhere,
    /// The letter is such an event, and its order is selected, too.
    BehindSelected,
    /// The letter is such an event, and its order is not selected.
    BehindOther,
}

impl BuriedEvents {
    /// Reads all letters that exist now, because the letters of one order may be anywhere. If it finds events, it reads
    /// all letters again to find their orders.
    pub(super) async fn read(dead: &DeadLetters, selection: &LetterSelection) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let all = LetterSelection::ALL.up_to_now(dead).await?;
        each(dead, &all, |letter| found.add_event(dead, selection, letter)).await?;
        if !found.of.is_empty() {
            each(dead, &all, |letter| found.add_order(dead, selection, letter)).await?;
        }
        found.of.retain(|_, of| of.order.is_some());
        found.of.values_mut().for_each(|of| of.events.sort_by_key(|event| (event.first, event.letter)));
        Ok(found)
    }

    fn add_event(&mut self, dead: &DeadLetters, selection: &LetterSelection, letter: &Letter) {
        let Some(owned) = event_of(dead, letter) else { return };
        let first = letter.entries().min().unwrap_or(letter.id);
        let is_selected = selection.includes(dead.fields(), letter);
        self.of.entry(owned).or_default().events.push(BuriedEvent { letter: letter.id, first, is_selected });
    }

    fn add_order(&mut self, dead: &DeadLetters, selection: &LetterSelection, letter: &Letter) {
        let of = order_of(dead, letter).and_then(|owned| self.of.get_mut(&owned));
        if let Some(of) = of {
            let is_selected = selection.includes(dead.fields(), letter);
            of.order = Some(of.order.unwrap_or_default() || is_selected);
        }
    }

    /// Returns the events of the letter's order, as they were appended.
    pub(super) fn behind(&self, dead: &DeadLetters, letter: &Letter) -> &[BuriedEvent] {
        let of = order_of(dead, letter).and_then(|owned| self.of.get(&owned));
        of.map_or(&[], |of| &of.events)
    }

    /// Returns the place of a letter among the events of dead orders.
    pub(super) fn belongs(&self, dead: &DeadLetters, letter: &Letter) -> Belongs {
        let of = event_of(dead, letter).and_then(|owned| self.of.get(&owned));
        match of.and_then(|of| of.order) {
            None => Belongs::Nowhere,
            Some(true) => Belongs::BehindSelected,
            Some(false) => Belongs::BehindOther,
        }
    }
}

/// Reads the selected letters page by page.
async fn each(
    dead: &DeadLetters,
    selection: &LetterSelection,
    mut look_at: impl FnMut(&Letter),
) -> anyhow::Result<()> {
    let mut pages = selection.pages(dead);
    while let Some(page) = pages.next().await.context("Failed to read the dead letters")? {
        page.letters.iter().for_each(&mut look_at);
    }
    Ok(())
}

/// Returns the order of an event that a worker can record.
fn event_of(dead: &DeadLetters, letter: &Letter) -> Option<Owned> {
    match dead.fields().decode_message(&letter.entry()) {
        Ok(Message::Event(event)) if letter.burial.is_some() => {
            Some((event.order, event.user, event.voucher))
        }
        _ => None,
    }
}

fn order_of(dead: &DeadLetters, letter: &Letter) -> Option<Owned> {
    let order = buried_order(dead.fields(), letter)?;
    Some((order.id, order.user, order.voucher))
}
