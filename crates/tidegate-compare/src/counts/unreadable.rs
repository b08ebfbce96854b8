//! Entries of the stream without a readable order: what became of each.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use tidegate_stream::EntryId;

use super::Offenders;

/// Entries without a readable order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// All of them.
    pub total: u64,
    /// Buried, as they should be.
    pub dead: u64,
    /// Not delivered or not settled yet.
    pub in_flight: u64,
    /// Too few fields for an order, and neither dead nor in flight: of a tutorial's `XADD stream.orders * init 1`, from before
    /// the group. No failure.
    pub no_orders: u64,
    /// None of these: acknowledged and gone.
    pub lost: Offenders,
}

/// What became of an entry. Later ones are worse: one that was put back is where its best entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Dead,
    InFlight,
    /// It has too few fields to be an order.
    NoOrder,
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct UnreadableEntries {
    states: BTreeMap<EntryId, State>,
    /// Of these, the ones that were put back out of the dead letters, with the latest entry that is known.
    followed: BTreeMap<EntryId, EntryId>,
}

impl UnreadableEntries {
    /// An entry, and what it was before, if it was put back.
    pub(super) fn add(&mut self, entry: EntryId, followed: &[EntryId], could_be_order: bool) {
        self.states.insert(entry, if could_be_order { State::Lost } else { State::NoOrder });
        self.followed.extend(followed.iter().map(|old| (*old, entry)));
    }

    /// A letter that holds no order, by all entries that it once was.
    pub(crate) fn add_dead(&mut self, entries: &[EntryId]) {
        let Some((entry, followed)) = entries.split_last() else { return };
        self.states.insert(*entry, State::Dead);
        self.followed.extend(followed.iter().map(|old| (*old, *entry)));
    }

    /// Says which of them the group has still to handle.
    pub(crate) fn set_in_flight(&mut self, in_flight: &HashSet<EntryId>) {
        for (entry, state) in &mut self.states {
            if in_flight.contains(entry) {
                *state = (*state).min(State::InFlight);
            }
        }
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.states.keys().any(|entry| self.state(*entry) == State::Lost)
    }

    /// Its own state, or that of the entry as which it was put back.
    fn state(&self, entry: EntryId) -> State {
        let state = |entry: &EntryId| self.states.get(entry).copied().unwrap_or(State::Lost);
        let later = self.followed.get(&entry).map_or(State::Lost, state);
        state(&entry).min(later)
    }

    /// Counts them, each once: one that was put back is counted as its latest entry.
    pub(crate) fn report(&self) -> Unreadable {
        let mut report = Unreadable::default();
        let is_counted_later =
            |entry: &EntryId| self.followed.get(entry).is_some_and(|later| self.states.contains_key(later));
        for entry in self.states.keys().filter(|entry| !is_counted_later(entry)) {
            report.total += 1;
            match self.state(*entry) {
                State::Dead => report.dead += 1,
                State::InFlight => report.in_flight += 1,
                State::NoOrder => report.no_orders += 1,
                State::Lost => report.lost.add(*entry),
            }
        }
        report
    }
}
