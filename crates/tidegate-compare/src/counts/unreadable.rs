//! The stream entries that cannot be read as orders, and their states.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use tidegate_stream::EntryId;

use super::Offenders;

/// The number of stream entries that cannot be read as orders, by what became of the entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// The number of all unreadable entries.
    pub total: u64,
    /// The number of unreadable entries that are among the dead letters, as they should be.
    pub dead: u64,
    /// The number of unreadable entries that no worker has handled completely yet.
    pub in_flight: u64,
    /// The number of handled entries that have too few fields for an order. For example, a tutorial creates the stream
    /// by `XADD stream.orders * init 1`. The audit does not fail because of such entries.
    pub no_orders: u64,
    /// The unreadable entries that were acknowledged and are not among the dead letters.
    pub lost: Offenders,
}

/// The state of an entry. Later states are worse: an entry that was put back has the state of its best entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Dead,
    InFlight,
    /// The entry has too few fields to be an order.
    NoOrder,
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct UnreadableEntries {
    states: BTreeMap<EntryId, State>,
    /// The entries that were put back from the dead letters, each with its latest known entry.
    followed: BTreeMap<EntryId, EntryId>,
}

impl UnreadableEntries {
    /// Adds an entry, with its earlier entries if it was put back.
    pub(super) fn add(&mut self, entry: EntryId, followed: &[EntryId], could_be_order: bool) {
        self.states.insert(entry, if could_be_order { State::Lost } else { State::NoOrder });
        self.followed.extend(followed.iter().map(|old| (*old, entry)));
    }

    /// Adds a dead letter that has no order, under the id of each entry that it came from.
    pub(crate) fn add_dead(&mut self, entries: &[EntryId]) {
        let Some((entry, followed)) = entries.split_last() else { return };
        self.states.insert(*entry, State::Dead);
        self.followed.extend(followed.iter().map(|old| (*old, *entry)));
    }

    /// Notes which entries are still in flight.
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

    /// The state of an entry, or that of the entry with which it was put back.
    fn state(&self, entry: EntryId) -> State {
        let state = |entry: &EntryId| self.states.get(entry).copied().unwrap_or(State::Lost);
        let later = self.followed.get(&entry).map_or(State::Lost, state);
        state(&entry).min(later)
    }

    /// Counts the entries, each once: an entry that was put back counts as its latest entry.
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
