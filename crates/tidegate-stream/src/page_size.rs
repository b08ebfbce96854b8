//! The number of entries to read in one page, so that a page has about the wanted bytes: one entry may be a megabyte,
//! and Redis only counts entries.

use bytes::Bytes;

use crate::entry::weight;

/// The number of entries in the first page, when their size is unknown.
const FIRST: u16 = 100;
/// The number of bytes that a page should have.
pub(crate) const PAGE_BYTES: usize = 4 << 20;

/// A page size for reads: the number of entries that are about 4 MiB together, learned from earlier pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    most: u16,
    next: u16,
}

impl PageSize {
    /// Creates a page size that never exceeds `most` entries.
    #[must_use]
    pub fn new(most: u16) -> Self {
        Self { most, next: FIRST.min(most) }
    }

    /// Returns the number of entries to read in the next page: at least one, and no more than `left`.
    #[must_use]
    pub fn count(self, left: u64) -> u16 {
        u16::try_from(left).map_or(self.next, |left| self.next.min(left)).max(1)
    }

    /// Adjusts the page size to the fields of the entries in the last page.
    pub fn learn<'a>(&mut self, page: impl IntoIterator<Item = &'a Vec<(Bytes, Bytes)>>) {
        let sizes = page.into_iter().map(|fields| weight(fields).max(1));
        let (entries, bytes) = sizes.fold((0, 0), |(entries, bytes), size| (entries + 1, bytes + size));
        if let Some(fitting) = (PAGE_BYTES * entries).checked_div(bytes) {
            self.next = u16::try_from(fitting).unwrap_or(u16::MAX).clamp(1, self.most.max(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::FIELD_BYTES;

    fn page(entries: usize, bytes: usize) -> Vec<Vec<(Bytes, Bytes)>> {
        let value = Bytes::from(vec![0; bytes - FIELD_BYTES]);
        vec![vec![(Bytes::new(), value)]; entries]
    }

    #[test]
    fn the_larger_the_entries_the_fewer_are_read_at_once() {
        let mut size = PageSize::new(1_000);
        assert_eq!(size.count(u64::MAX), 100, "nothing is known of them");
        size.learn(&page(100, 124));
        assert_eq!((size.count(u64::MAX), size.count(7), size.count(0)), (1_000, 7, 1));
        size.learn(&page(2, 1 << 20));
        assert_eq!(size.count(u64::MAX), 4);
        size.learn(&page(1, 8 << 20));
        assert_eq!(size.count(u64::MAX), 1);
        size.learn(&[]);
        assert_eq!(size.count(u64::MAX), 1, "an empty page tells nothing");
        size.learn(&page(1, 124));
        assert_eq!(size.count(u64::MAX), 1_000);
        assert_eq!(PageSize::new(50).count(u64::MAX), 50);
    }
}
