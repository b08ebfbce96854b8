//! Whether the stock of a voucher is the sum of its journal, also while the sale goes on. Pure.
//!
//! Stock, time and number of fields are read in one step ([`JournalSnapshot`]); the journal is read in pieces afterwards. So each
//! movement after that time is counted as it was before: an admission was not there, a release was still an admission.
//!
//! What moved within the very millisecond of the snapshot may have come before it or after it. But each movement says what
//! the stock was before and after: together they are a chain. Its beginning is the stock at the beginning of that
//! millisecond, which the sum of everything earlier must be, and the stock that was read must be one of its values.
//!
//! For that the journal is read only when that millisecond is over (`Journals::snapshot` sees to it), so that no link is missing.
//!
//! The number of fields tells whether what was counted is what was there: a field that was read twice, or written over
//! since, and a clock that was set back make the sum unsure, never wrong. So does a compaction: it takes fields out of the journal and
//! into [`Purged`], which must be the same before and after.

use std::collections::{BTreeMap, BTreeSet};

use super::{JournalField, JournalNote, JournalSnapshot, PURGED};
use crate::order::OrderId;

/// Movements of one millisecond that are kept, at most: far more than Redis makes in one.
const MOST_LINKS: usize = 10_000;

/// Whether the stock is what the journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// It is.
    Holds,
    /// It is not: this many units are there more than the journal says, below 0 fewer. A stock that is missing is none.
    Mismatch(i64),
    /// Nobody can tell from this look: look again. So it is of a journal that is not complete.
    Unsure,
}

/// Adds up a journal. Takes a few words of memory, however many fields there are.
#[derive(Clone, Debug)]
pub struct JournalSum {
    snapshot: JournalSnapshot,
    /// Changes before the millisecond of the snapshot.
    earlier: i64,
    /// Fields that were there before that millisecond.
    earlier_fields: u64,
    /// Fields that came within it.
    new_fields: u64,
    /// Movements within it.
    links: Vec<Link>,
    /// The orders that moved within it.
    moved: BTreeSet<OrderId>,
    /// Changes of the whole sale.
    loaded: i64,
    latest_ms: i64,
    is_unsure: bool,
}

/// A movement within the millisecond of the snapshot.
#[derive(Clone, Copy, Debug)]
struct Link {
    from: i64,
    to: i64,
    /// With it, its field came into the journal.
    is_new: bool,
}

/// When a movement was, seen from the snapshot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Earlier,
    /// In its very millisecond.
    Within,
    Later,
}

/// A movement of the stock.
struct Movement {
    change: i64,
    from: Option<i64>,
    to: Option<i64>,
    /// With it, its field came into the journal.
    is_new: bool,
}

impl JournalSum {
    /// Begins with the snapshot, before the journal is read.
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

    /// Counts a field of the journal, each once. A note that cannot be read is the default one.
    pub fn add(&mut self, field: JournalField<'_>, note: &JournalNote) {
        if field == JournalField::parse(PURGED) {
            return self.add_purged();
        }
        let when = self.when(note.at_ms);
        let is_new = note.admitted.is_none();
        // Of a release that keeps nothing, nobody knows what it released: an older script wrote it. It changes the sum by nothing.
        let change = if note.is_release() && is_new { 0 } else { note.change.unwrap_or(0) };
        let moved = Movement { change, from: note.from, to: note.to, is_new };
        let of_sale = match (field, &note.admitted) {
            (JournalField::Sale(_), _) => Some(moved.change),
            // Units that an order gave up and that did not come back: MySQL did not have them.
            (JournalField::Order(_), Some(_)) => Some(note.total_change()).filter(|units| *units != 0),
            _ => None,
        };
        if let Some(units) = of_sale {
            match when {
                When::Earlier => self.loaded = self.loaded.saturating_add(units),
                // Whether it was before the snapshot or after it, and what a load had loaded before.
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
            // Twice: it could be any number of links.
            self.is_unsure |= !self.moved.insert(order);
        }
        match came {
            When::Earlier => self.earlier_fields += 1,
            When::Within => self.new_fields += 1,
            When::Later => {}
        }
    }

    /// What was compacted is older than any snapshot.
    fn add_purged(&mut self) {
        self.earlier_fields += 1;
        match self.snapshot.purged {
            Some(purged) => {
                self.earlier = self.earlier.saturating_add(purged.change);
                self.loaded = self.loaded.saturating_add(purged.kept_by_nobody());
            }
            // It came since.
            None => self.is_unsure = true,
        }
    }

    /// The units of the whole sale: what was loaded, added, taken and repaired until the snapshot, less those of refused orders
    /// that did not come back because MySQL did not have them; as far as the journal was added up. It says nothing where the sum is unsure.
    #[must_use]
    pub const fn loaded(&self) -> i64 {
        self.loaded
    }

    /// Whether the stock of the snapshot is the sum. `end` is a snapshot after the journal was read: a movement that is later than it
    /// is from before the clock of Redis was set back.
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
        // A note without a time is no script's: it is taken as it is.
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
            // It does not say where it stands in the chain, or it repaired the stock beside what it says, or there are too many.
            (When::Within, _) => self.is_unsure = true,
        }
    }

    /// The stock with which the millisecond of the snapshot began. None: the movements are no chain with a beginning, or the stock
    /// is not one of its values that it can have had at the snapshot, because somebody wrote it by hand within that millisecond.
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
            // A gap; or as many units came back as went, and the beginning may be any of its values.
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

    /// Whether the stock was this one when as many fields had come as the journal held at the snapshot. Where the chain passes a
    /// value twice, its order is not known, and every value may be the one.
    fn can_be_between(&self, begin: i64, stock: i64) -> bool {
        let onwards: BTreeMap<i64, &Link> = self.links.iter().map(|link| (link.from, link)).collect();
        if onwards.len() < self.links.len() {
            return true;
        }
        let linked = self.links.iter().filter(|link| link.is_new).count() as u64;
        let came = self.snapshot.journaled.saturating_sub(self.earlier_fields);
        // Fields may have come that moved no unit: they stand nowhere in the chain.
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
