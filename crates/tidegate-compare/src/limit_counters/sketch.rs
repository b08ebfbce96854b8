//! A sketch that finds the fields with different counts on two sides, in memory that does not grow with them. Pure.
//!
//! Each field belongs to a cell. The uses of orders are added to the cell, with weights of the field and its window.
//! The counts are subtracted with the same weights. So a cell on which both sides agree is 0, in whatever order the
//! values came. The fields of every other cell are checked one by one.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::table::hash_of;

/// The number of cells: 2 MB. If one of ten million fields differs, about forty fields share its cell.
const CELLS: usize = 1 << 18;

/// A field of the hash of uses of an owner.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Field<'a> {
    pub(super) owner: usize,
    pub(super) name: &'a str,
}

/// The cells of a sketch.
#[derive(Debug)]
pub(super) struct Sketch(Vec<u64>);

impl Sketch {
    pub(super) fn new() -> Self {
        Self(vec![0; CELLS])
    }

    /// Adds the values of one side for a window; the other side's are added with a minus sign.
    pub(super) fn add(&mut self, field: Field<'_>, window: u64, (orders, units): (i64, i64)) {
        let hash = hash_of_field(field);
        let weight = |salt| hash_of(&[hash.cast_signed(), window.cast_signed(), salt]) | 1;
        let sum = weight(1).wrapping_mul(orders.cast_unsigned());
        let sum = sum.wrapping_add(weight(2).wrapping_mul(units.cast_unsigned()));
        let cell = &mut self.0[cell_of(hash)];
        *cell = cell.wrapping_add(sum);
    }

    /// Whether both sides agree on all fields.
    pub(super) fn is_even(&self) -> bool {
        self.0.iter().all(|cell| *cell == 0)
    }

    /// Whether the two sides may differ on this field.
    pub(super) fn may_differ(&self, field: Field<'_>) -> bool {
        self.0[cell_of(hash_of_field(field))] != 0
    }
}

fn cell_of(hash: u64) -> usize {
    usize::try_from(hash % CELLS as u64).unwrap_or(0)
}

fn hash_of_field(field: Field<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    field.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_sides_count_leaves_nothing_and_what_one_counts_differently_leaves_its_field() {
        let names: Vec<String> = (0..10_000).map(|nth| format!("3:{nth}")).collect();
        let fields = || (0..2).flat_map(|owner| names.iter().map(move |name| Field { owner, name }));
        let mut sketch = Sketch::new();
        for field in fields() {
            (0..3).for_each(|_| sketch.add(field, 19_700, (1, 2)));
            sketch.add(field, 19_700, (-3, -6));
        }
        assert!(sketch.is_even());
        let apart = Field { owner: 1, name: "3:7" };
        for (window, counts) in [(19_700, (1, 0)), (19_700, (0, -1)), (19_701, (1, -1))] {
            sketch.add(apart, window, counts);
            let named = fields().filter(|field| sketch.may_differ(*field)).count();
            assert!(sketch.may_differ(apart) && (1..10).contains(&named), "{named}");
            sketch.add(apart, window, (-counts.0, -counts.1));
        }
        // The same counts in another window, or of another owner, are different.
        sketch.add(apart, 1, (1, 1));
        sketch.add(apart, 2, (-1, -1));
        assert!(sketch.may_differ(apart));
    }
}
