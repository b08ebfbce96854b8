//! Checks whether the stock of a voucher is the sum of its journal, also while the sale continues. Pure.
//!
//! Stock, time and number of fields are read in one step ([`JournalSnapshot`]); the journal is read in pieces
//! afterwards. So each movement after that time is reversed: a later admission does not count, and a later release
//! counts as an admission.
//!
//! Movements within the millisecond of the snapshot may have come before it or after it. But each movement states the
//! stock before and after it: together they form a chain. The chain begins with the stock at the beginning of that
//! millisecond. The sum of everything earlier must be that stock, and the stock that was read must be one of the values
//! of the chain.
//!
//! So the journal is read only when that millisecond is over (`Journals::snapshot` ensures it), and no link is missing.
//!
//! The number of fields shows whether the counted fields are those of the snapshot. A field that was read twice or
//! overwritten since, and a clock that was set back, make the sum unsure, never wrong. A compaction does the same: it
//! moves fields out of the journal and into [`Purged`], which must be the same before and after.

use std::collections::{BTreeMap, BTreeSet};

use super::{JournalField, JournalNote, JournalSnapshot, PURGED};
use crate::order::OrderId;

/// The most movements of one millisecond that are kept: far more than Redis makes in one.
const MOST_LINKS: usize = 10_000;

/// The result of the comparison of a stock with its journal, the Redis hash that notes the changes of the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// The stock is the sum of the journal.
    Holds,
    /// The stock differs: it has this many units more than the journal, below 0 fewer. A missing stock counts as 0.
    Mismatch(i64),
    /// This reading does not decide it: read again. A journal that is not complete always gives this.
    Unsure,
}

/// The sum of the notes in a journal (Redis hash), built note by note. It takes a fixed amount of memory, whatever the
/// size of the journal.
#[derive(Clone, Debug)]
pub struct JournalSum {
    snapshot: JournalSnapshot,
    /// The sum of changes before the millisecond of the snapshot.
    earlier: i64,
    /// The number of fields from before that millisecond.
    earlier_fields: u64,
    /// The number of fields that came within that millisecond.
    new_fields: u64,
    /// The movements within that millisecond.
    links: Vec<Link>,
    /// The orders that moved within that millisecond.
    moved: BTreeSet<OrderId>,
    /// The sum of changes of the whole sale.
    loaded: i64,
    latest_ms: i64,
    is_unsure: bool,
}

/// A movement within the millisecond of the snapshot.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: i64,
    to: i64,
    /// Whether its field came into the journal with it.
    is_new: bool,
}

/// The time of a movement, relative to the snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Earlier,
    /// Within the same millisecond.
    Within,
    Later,
}

/// A movement of the stock, by one note.
struct Movement {
    change: i64,
    from: Option<i64>,
    to: Option<i64>,
    /// Whether its field came into the journal with it.
    is_new: bool,
}

impl JournalSum {
    /// Begins the sum of a journal (a Redis hash that notes stock changes) with the values in `snapshot`. The caller
    /// then adds the notes of the journal.
    #[must_use]
    pub const fn new(snapshot: JournalSnapshot) -> Self {
        Self {
            snapshot,
            earlier: 0,
            earlier_fields: 0,
            new_fields: 0,
            links: Vec::new(),
            moved: BTreeSet::new(),
            loaded: 0,
            latest_ms: i64::MIN,
            is_unsure: false,
        }
    }

    /// Adds a field of the journal (a Redis hash that notes stock changes) to the sum. Call this method once for each
    /// field. A note that cannot be read does not change the sum.
    pub fn add(&mut self, field: JournalField<'_>, note: &JournalNote) {
        if field == JournalField::parse(PURGED) {
            return self.add_purged();
        }
        let when = self.when(note.at_ms);
        let is_new = note.admitted.is_none();
        // A release of an older script does not keep its admission, so the released units are unknown. It changes the
        // sum by nothing.
        let change = if note.is_release() && is_new { 0 } else { note.change.unwrap_or(0) };
        let moved = Movement { change, from: note.from, to: note.to, is_new };
        let of_sale = match (field, &note.admitted) {
            (JournalField::Sale(_), _) => Some(moved.change),
            // Units that an order gave up and that did not come back, because MySQL did not have them.
            (JournalField::Order(_), Some(_)) => Some(note.total_change()).filter(|units| *units != 0),
            _ => None,
        };
        if let Some(units) = of_sale {
            match when {
                When::Earlier => self.loaded = self.loaded.saturating_add(units),
                // It is unknown whether the movement was before the snapshot, and what a load had loaded before.
                When::Within => self.is_unsure = true,
                When::Later => {}
            }
        }
        let mut came = when;
        if let Some(admitted) = &note.admitted {
            came = self.when(admitted.at_ms);
            let to = admitted.from.and_then(|from| from.checked_add(admitted.change));
            self.count(came, &Movement { change: admitted.change, from: admitted.from, to, is_new: true });
        }
        self.count(when, &moved);
        if let (JournalField::Order(order), true) = (field, when == When::Within || came == When::Within) {
            // A second movement of the order: it could be any number of links.
            self.is_unsure |= !self.moved.insert(order);
        }
        match came {
            When::Earlier => self.earlier_fields += 1,
            When::Within => self.new_fields += 1,
            When::Later => {}
        }
    }

    /// Counts the compacted orders, which are older than any snapshot.
    fn add_purged(&mut self) {
        self.earlier_fields += 1;
        match self.snapshot.purged {
            Some(purged) => {
                self.earlier = self.earlier.saturating_add(purged.change);
                self.loaded = self.loaded.saturating_add(purged.kept_by_nobody());
            }
            // The compaction came after the snapshot.
            None => self.is_unsure = true,
        }
    }

    /// The number of units that the sale had in total until the snapshot: loaded and repaired units, and units that
    /// operators added or took. Units of refused orders that MySQL did not have are subtracted. The number has no
    /// meaning if [`JournalSum::finish`] cannot decide.
    #[must_use]
    pub const fn loaded(&self) -> i64 {
        self.loaded
    }

    /// Decides whether the stock in the snapshot, with which the sum began, equals the sum of the journal (the notes of
    /// stock changes). `end` is a second snapshot, made after the journal was read. If a note has a later time than
    /// `end`, the clock of Redis was set back, and the result is unsure.
    #[must_use]
    pub fn finish(&self, end: &JournalSnapshot) -> Sum {
        let fields = self.earlier_fields..=self.earlier_fields + self.new_fields;
        let is_unsure = self.is_unsure
            || !self.snapshot.is_complete
            || self.latest_ms > end.at_ms
            || self.snapshot.purged != end.purged
            || !fields.contains(&self.snapshot.journaled);
        let stock = self.snapshot.stock.unwrap_or(0);
        if is_unsure {
            return Sum::Unsure;
        }
        let begun = if self.links.is_empty() { Some(stock) } else { self.beginning(stock) };
        match begun.map(|begun| begun.saturating_sub(self.earlier)) {
            None => Sum::Unsure,
            Some(0) => Sum::Holds,
            Some(mismatch) => Sum::Mismatch(mismatch),
        }
    }

    fn when(&mut self, at_ms: Option<i64>) -> When {
        // A note without a time is from no script: it counts as earlier.
        let Some(at_ms) = at_ms else { return When::Earlier };
        self.latest_ms = self.latest_ms.max(at_ms);
        match at_ms.cmp(&self.snapshot.at_ms) {
            std::cmp::Ordering::Less => When::Earlier,
            std::cmp::Ordering::Equal => When::Within,
            std::cmp::Ordering::Greater => When::Later,
        }
    }

    fn count(&mut self, when: When, moved: &Movement) {
        match (when, moved) {
            (When::Later, _) | (_, Movement { change: 0, .. }) => {}
            (When::Earlier, Movement { change, .. }) => self.earlier = self.earlier.saturating_add(*change),
            (When::Within, Movement { change, from: Some(from), to: Some(to), is_new })
                if from.checked_add(*change) == Some(*to) && self.links.len() < MOST_LINKS =>
            {
                self.links.push(Link { from: *from, to: *to, is_new: *is_new });
            }
            // The movement does not state its place in the chain, or a repair moved the stock by more or less than it
            // states, or there are too many.
            (When::Within, _) => self.is_unsure = true,
        }
    }

    /// The stock at the beginning of the snapshot's millisecond. `None` if the movements are no chain with a beginning,
    /// or the snapshot's stock is not one of the values that the chain allows. Then another program set the stock
    /// within that millisecond.
    fn beginning(&self, stock: i64) -> Option<i64> {
        let mut balance: BTreeMap<i64, i64> = BTreeMap::new();
        for link in &self.links {
            *balance.entry(link.from).or_default() += 1;
            *balance.entry(link.to).or_default() -= 1;
        }
        if !balance.contains_key(&stock) || !self.is_connected(stock, balance.len()) {
            return None;
        }
        let mut begins = balance.iter().filter(|(_, balance)| **balance > 0);
        match (begins.next(), begins.next()) {
            (Some((begin, 1)), None) => self.can_be_between(*begin, stock).then_some(*begin),
            // A gap, or as many units came back as went: then the beginning may be any of the values.
            _ => None,
        }
    }

    /// Whether the movements lead from this stock to all other `values`, forwards or backwards.
    fn is_connected(&self, stock: i64, values: usize) -> bool {
        let mut beside: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for link in &self.links {
            beside.entry(link.from).or_default().push(link.to);
            beside.entry(link.to).or_default().push(link.from);
        }
        let (mut reached, mut next) = (BTreeSet::from([stock]), vec![stock]);
        while let Some(value) = next.pop() {
            let beside = beside.get(&value).map_or(&[][..], Vec::as_slice);
            next.extend(beside.iter().copied().filter(|value| reached.insert(*value)));
        }
        reached.len() == values
    }

    /// Whether the chain has this stock at a point where as many fields had come as the journal held at the snapshot.
    /// If the chain passes a value twice, its order is unknown, and every value is possible.
    fn can_be_between(&self, begin: i64, stock: i64) -> bool {
        let onwards: BTreeMap<i64, &Link> = self.links.iter().map(|link| (link.from, link)).collect();
        if onwards.len() < self.links.len() {
            return true;
        }
        let linked = self.links.iter().filter(|link| link.is_new).count() as u64;
        let came = self.snapshot.journaled.saturating_sub(self.earlier_fields);
        // Fields that moved no unit may have come: they are not in the chain.
        let came = came.saturating_sub(self.new_fields.saturating_sub(linked))..=came;
        let (mut at, mut passed) = (begin, 0);
        for _ in 0..=self.links.len() {
            if at == stock && came.contains(&passed) {
                return true;
            }
            let Some(link) = onwards.get(&at) else { break };
            (at, passed) = (link.to, passed + u64::from(link.is_new));
        }
        false
    }
}

#[cfg(test)]
mod tests;
