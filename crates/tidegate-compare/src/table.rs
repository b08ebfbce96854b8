//! A table that finds the few differences between two sides among many millions of items, in memory that does not grow
//! with them. Pure.
//!
//! The items of one side are added to three cells of the table, and the items of the other side are taken out of the
//! same three. An item that both sides have leaves nothing. A cell with a single item left shows that item, which is
//! then taken out of its two other cells, and so on (an invertible Bloom lookup table). This works while the number of
//! remaining items is at most two thirds of the number of cells. If there are more, the table reports it, and its user
//! reads both sides again in parts. A small part is counted exactly.

use std::collections::HashMap;

/// A statement of one side about an order, or about a user of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Said {
    /// The id of the order or the user: 1 to 2^63-1.
    pub(crate) id: i64,
    /// The place of the voucher among those that are compared.
    pub(crate) voucher: u32,
    /// The hash of the statement.
    pub(crate) what: u64,
}

/// The part of all items that a table covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) index: u64,
    pub(crate) of: u64,
}

impl Part {
    pub(crate) const WHOLE: Self = Self { index: 0, of: 1 };

    /// The `nth` of `of` smaller parts of this part.
    pub(crate) const fn divided(self, nth: u64, of: u64) -> Self {
        Self { index: self.index + nth * self.of, of: self.of * of }
    }

    /// Whether an id belongs to this part. It depends only on the id, so both sides leave out the same items.
    pub(crate) fn has(self, id: i64) -> bool {
        self.of == 1 || mix(id.cast_unsigned() ^ 0x5851_f42d_4c95_7f2d) % self.of == self.index
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    ids: u64,
    whats: u64,
    hashes: u64,
    vouchers: u32,
    count: i32,
}

/// The table, with 32 bytes for each cell.
#[derive(Debug)]
pub(crate) struct Table {
    cells: Vec<Cell>,
    seed: u64,
    /// The number of times that one side has an item more often than the other, if items are counted exactly.
    counts: Option<HashMap<Said, i32>>,
}

/// The items that remain in a table.
#[derive(Debug, Default)]
pub(crate) struct Remainder {
    /// The statements of one side that the other does not make, in no order.
    pub(crate) said: Vec<Said>,
    /// Whether these are all remaining items.
    pub(crate) is_whole: bool,
}

impl Table {
    /// Creates a table for about this number of differences. With bad luck, one `seed` misses a
    /// difference, and another finds it.
    pub(crate) fn new(differences: usize, seed: u64) -> Self {
        let third = (differences / 2).max(64);
        Self { cells: vec![Cell::default(); third * 3], seed, counts: None }
    }

    /// Creates a table that counts each item exactly, for few items. Only this finds an item that one side has three
    /// times and the other once.
    pub(crate) fn exact() -> Self {
        Self { cells: Vec::new(), seed: 0, counts: Some(HashMap::new()) }
    }

    /// Adds an item of the first side.
    pub(crate) fn add(&mut self, said: &Said) {
        self.put(said, 1);
    }

    /// Takes out an item of the other side.
    pub(crate) fn take(&mut self, said: &Said) {
        self.put(said, -1);
    }

    fn put(&mut self, said: &Said, times: i32) {
        if let Some(counts) = &mut self.counts {
            let count = counts.entry(*said).or_default();
            *count = count.wrapping_add(times);
            if *count == 0 {
                counts.remove(said);
            }
            return;
        }
        let hash = self.hash(said);
        for at in self.places(hash) {
            self.cells[at].put(said, hash, times);
        }
    }

    /// Takes the remaining items out of the table, one after the other.
    pub(crate) fn left(mut self) -> Remainder {
        if let Some(counts) = self.counts {
            return Remainder { said: counts.into_keys().collect(), is_whole: true };
        }
        let mut left = Remainder::default();
        let mut open: Vec<usize> = (0..self.cells.len()).collect();
        while let Some(at) = open.pop() {
            let Some((said, times)) = self.only(at) else { continue };
            let hash = self.hash(&said);
            for at in self.places(hash) {
                self.cells[at].put(&said, hash, -times);
                open.push(at);
            }
            left.said.push(said);
        }
        left.is_whole = self.cells.iter().all(|cell| *cell == Cell::default());
        left
    }

    /// The content of a cell, if it is a single item that was added once or twice: SCAN may return a field twice.
    fn only(&self, at: usize) -> Option<(Said, i32)> {
        let cell = self.cells[at];
        let cell = if cell.count < 0 { cell.negated() } else { cell };
        let times = u32::try_from(cell.count).ok().filter(|times| (1..=2).contains(times))?;
        let said = Said {
            id: i64::try_from(cell.ids / u64::from(times)).ok()?,
            voucher: cell.vouchers / times,
            what: cell.whats / u64::from(times),
        };
        let hash = self.hash(&said);
        let is_one = cell.hashes == hash.wrapping_mul(u64::from(times))
            && cell.ids == said.id.cast_unsigned().wrapping_mul(u64::from(times))
            && self.places(hash).contains(&at);
        is_one.then_some((said, self.cells[at].count))
    }

    fn hash(&self, said: &Said) -> u64 {
        let voucher = mix(said.id.cast_unsigned() ^ self.seed) ^ u64::from(said.voucher);
        mix(mix(voucher) ^ said.what)
    }

    /// The cells of a hash, one in each third.
    fn places(&self, hash: u64) -> [usize; 3] {
        let third = self.cells.len() / 3;
        let place = |part: usize, hash: u64| {
            let within = usize::try_from(hash % third as u64).unwrap_or(0);
            part * third + within
        };
        [place(0, hash), place(1, mix(hash ^ 1)), place(2, mix(hash ^ 2))]
    }
}

impl Cell {
    fn put(&mut self, said: &Said, hash: u64, times: i32) {
        let many = i64::from(times).cast_unsigned();
        self.ids = self.ids.wrapping_add(said.id.cast_unsigned().wrapping_mul(many));
        self.whats = self.whats.wrapping_add(said.what.wrapping_mul(many));
        self.hashes = self.hashes.wrapping_add(hash.wrapping_mul(many));
        self.vouchers = self.vouchers.wrapping_add(said.voucher.wrapping_mul(times.cast_unsigned()));
        self.count = self.count.wrapping_add(times);
    }

    fn negated(self) -> Self {
        Self {
            ids: self.ids.wrapping_neg(),
            whats: self.whats.wrapping_neg(),
            hashes: self.hashes.wrapping_neg(),
            vouchers: self.vouchers.wrapping_neg(),
            count: self.count.wrapping_neg(),
        }
    }
}

/// A hash of some numbers, with 63 bits, so that twice its value fits into a cell.
pub(crate) fn hash_of(numbers: &[i64]) -> u64 {
    numbers.iter().fold(0, |hash, number| mix(hash ^ number.cast_unsigned())) >> 1
}

/// A hash of a voucher's place and an id, so that the pair takes 8 bytes.
pub(crate) fn hash_of_id(voucher: u32, id: i64) -> u64 {
    mix(mix(id.cast_unsigned()) ^ u64::from(voucher))
}

/// The finalizer of `SplitMix64`: every bit of the number changes half of the bits of the hash.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: i64, what: i64) -> Said {
        Said { id, voucher: 7, what: hash_of(&[what]) }
    }

    #[test]
    fn what_is_said_many_times_is_left_where_each_thing_is_counted() {
        let (mut table, mut exact) = (Table::new(64, 5), Table::exact());
        for table in [&mut table, &mut exact] {
            (0..4).for_each(|_| table.add(&said(1, 1)));
            table.take(&said(1, 1));
            table.add(&said(2, 1));
            table.take(&said(2, 1));
        }
        assert!(!table.left().is_whole);
        let left = exact.left();
        assert_eq!((left.said, left.is_whole), (vec![said(1, 1)], true));
    }

    #[test]
    fn what_only_one_side_says_is_left_of_many() {
        let mut table = Table::new(1_000, 5);
        for id in 1..=200_000 {
            table.add(&said(id, 1));
        }
        let mut expected: Vec<Said> = Vec::new();
        for id in (1..=200_500).rev() {
            match id {
                // Only the first side has these.
                1..=300 => expected.push(said(id, 1)),
                // Each side says something different about these.
                301..=350 => {
                    table.take(&said(id, 2));
                    expected.extend([said(id, 1), said(id, 2)]);
                }
                // Only the second side has these.
                200_001.. => {
                    table.take(&said(id, 1));
                    expected.push(said(id, 1));
                }
                _ => table.take(&said(id, 1)),
            }
        }
        let mut left = table.left();
        assert!(left.is_whole);
        left.said.sort();
        expected.sort();
        assert_eq!(left.said, expected);
    }

    #[test]
    fn what_a_side_says_twice_is_left_once() {
        for id in [1, i64::MAX] {
            let mut table = Table::new(10, 1);
            table.add(&said(id, 3));
            table.add(&said(id, 3));
            table.take(&said(id, 3));
            table.take(&said(8, 3));
            table.take(&said(8, 3));
            let mut left = table.left();
            left.said.sort();
            let mut expected = [said(id, 3), said(8, 3)];
            expected.sort();
            assert!(left.is_whole);
            assert_eq!(left.said, expected);
        }
    }

    #[test]
    fn more_than_it_was_made_for_is_said_and_found_in_parts() {
        let mut table = Table::new(1_000, 9);
        (1..=5_000).for_each(|id| table.add(&said(id, 1)));
        assert!(!table.left().is_whole);
        let mut found = Vec::new();
        for index in 0..16 {
            let (part, mut table) = (Part { index, of: 16 }, Table::new(1_000, 9));
            (1..=5_000).filter(|id| part.has(*id)).for_each(|id| table.add(&said(id, 1)));
            let left = table.left();
            assert!(left.is_whole);
            found.extend(left.said.iter().map(|said| said.id));
        }
        found.sort_unstable();
        assert!(found.into_iter().eq(1..=5_000));
    }

    #[test]
    fn a_table_is_whole_up_to_the_differences_it_was_made_for() {
        for seed in 0..50 {
            let mut table = Table::new(10_000, seed);
            (1..=10_000).for_each(|id| table.add(&said(id, 1)));
            assert!(table.left().is_whole, "seed {seed}");
        }
    }
}
