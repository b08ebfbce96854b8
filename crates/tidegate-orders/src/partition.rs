//! Partitions of a system. Each is a complete system with its own vouchers, stream and locks. All of its names share a
//! tag, and so a slot of a Redis Cluster.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, sync::Arc};

use tidegate_stream::DeadLetterReason;

use crate::order::{OrderId, VoucherId};

/// The maximum number of partitions. The lowest six bits of an order id's sequence are the index of the partition.
pub const MOST_PARTITIONS: usize = 1 << BITS;
/// The bits of an order id's sequence that hold the index of the partition.
const BITS: u32 = 6;
/// The longest tag, in bytes. A tag comes before every key, so it should be short.
const TAG_MAX: usize = 32;
/// The reason of a dead letter whose entry was in the stream of the wrong partition: its voucher belongs to another
/// partition.
pub const WRONG_PARTITION: &str = "wrong_partition";

/// Checks the tags (names) of partitions, and returns an error text if the tags are invalid. An empty list is valid:
/// the system has no partitions.
#[must_use]
pub fn wrong_tags(tags: &[String]) -> Vec<String> {
    let is_tag = |tag: &String| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        (1..=TAG_MAX).contains(&tag.len()) && tag.chars().all(fits)
    };
    let are_tags = tags.iter().all(is_tag);
    let is_repeated = tags.iter().collect::<BTreeSet<_>>().len() < tags.len();
    let wrong = [
        (!are_tags, format!("must hold tags of 1 to {TAG_MAX} characters of A-Z a-z 0-9 _ . -")),
        (is_repeated, "must not hold a tag twice".to_owned()),
        (
            tags.len() > MOST_PARTITIONS,
            format!("must hold at most {MOST_PARTITIONS} tags: order ids have no room for more partitions"),
        ),
    ];
    wrong.into_iter().filter_map(|(is_wrong, why)| is_wrong.then_some(why)).collect()
}

/// A part of the vouchers of a system, with its own stream of orders. A system without partitions counts as one
/// partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// The tags of all partitions, in their order; empty: the system has no partitions.
    tags: Arc<[String]>,
    index: usize,
}

impl Partition {
    /// All partitions of a system with the given tags (names). Without tags, the only partition is the whole system.
    #[must_use]
    pub fn all(tags: &[String]) -> Vec<Self> {
        let tags: Arc<[String]> = tags.into();
        (0..tags.len().max(1)).map(|index| Self { tags: Arc::clone(&tags), index }).collect()
    }

    /// The tag (name) of the partition. The partition's keys contain this tag in braces. `None` if the system has no
    /// partitions.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tags.get(self.index).map(String::as_str)
    }

    /// The tags (names) of all partitions, in the order of the list.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// The index of the partition in the list of all partitions, from 0.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The prefix of all keys of the partition: `{TAG}:`, or an empty text in a system without partitions.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.tag().map_or_else(String::new, |tag| format!("{{{tag}}}:"))
    }

    /// Whether a voucher belongs to this partition. A voucher belongs to the partition `tags[voucherId mod P]`, where P
    /// is the number of partitions.
    #[must_use]
    pub fn owns(&self, voucher: VoucherId) -> bool {
        Self::index_of(voucher, self.tags.len()) == self.index
    }

    /// The index of the partition that a voucher belongs to, in a list of `partitions` partitions.
    #[must_use]
    pub fn index_of(voucher: VoucherId, partitions: usize) -> usize {
        let partitions = i64::try_from(partitions.max(1)).unwrap_or(i64::MAX);
        usize::try_from(voucher.get() % partitions).unwrap_or(0)
    }

    /// An SQL condition that selects the rows whose vouchers belong to this partition. The condition begins with AND,
    /// for the end of a WHERE. In a system without partitions, the condition is empty. `column` is the column with the
    /// voucher.
    #[must_use]
    pub fn condition(&self, column: &str) -> String {
        match self.tags.len() {
            0 => String::new(),
            partitions => format!(" AND {column} % {partitions} = {}", self.index),
        }
    }

    /// The number by which a row keeps the partition of its voucher: `64 P + i`, with 64 for a system without
    /// partitions. Because P is part of the number, rows that were written under another list can be found. 0 says that
    /// no program has set it.
    #[must_use]
    pub(crate) fn code_of(&self, voucher: VoucherId) -> i64 {
        let place = Self::index_of(voucher, self.tags.len());
        self.first_code().saturating_add(i64::try_from(place).unwrap_or(0))
    }

    /// The number that marks rows of this partition in MySQL, in the column `partition_code`.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.first_code().saturating_add(self.low_bits())
    }

    /// The numbers that mark the rows of each partition of the system in MySQL.
    #[must_use]
    pub fn codes(&self) -> RangeInclusive<i64> {
        self.first_code()..=self.first_code() + self.partitions() - 1
    }

    /// The SQL expression for the number of the partition that owns the voucher in `column`.
    #[must_use]
    pub fn code_in_sql(&self, column: &str) -> String {
        format!("{} + {column} % {}", self.first_code(), self.partitions())
    }

    fn first_code(&self) -> i64 {
        self.partitions() << BITS
    }

    /// The number of partitions; 1 for a system without partitions.
    fn partitions(&self) -> i64 {
        i64::try_from(self.tags.len().max(1)).unwrap_or(1)
    }

    /// The reason why this partition must not handle an entry of the given voucher. `None` if the voucher belongs to
    /// this partition.
    #[must_use]
    pub fn refuses(&self, voucher: VoucherId) -> Option<DeadLetterReason> {
        if self.owns(voucher) {
            return None;
        }
        let own = &self.tags[Self::index_of(voucher, self.tags.len())];
        let error = format!("voucher {voucher} belongs to partition {{{own}}}, but this partition is {self}");
        Some(DeadLetterReason { reason: WRONG_PARTITION, error })
    }

    /// The sequence number in an order id, made from `n`, a number from this partition's counter of the day: `64 n +
    /// index`. The index of the partition keeps two partitions from making the same id. In a system without partitions,
    /// the result is `n`.
    #[must_use]
    pub fn sequence(&self, number: i64) -> i64 {
        match self.tag() {
            None => number,
            Some(_) => number.saturating_mul(1 << BITS).saturating_add(self.low_bits()),
        }
    }

    /// The number of the day's counter from which the sequence number in an order id was made. `None` if another
    /// partition made it.
    #[must_use]
    pub fn number(&self, sequence: i64) -> Option<i64> {
        match self.tag() {
            None => Some(sequence),
            Some(_) => (sequence & ((1 << BITS) - 1) == self.low_bits()).then_some(sequence >> BITS),
        }
    }

    /// The index of the partition that an order id names. The index is only a hint, because a producer may make its ids
    /// in another way.
    #[must_use]
    pub fn index_in(order: OrderId) -> usize {
        usize::try_from(order.get() & ((1 << BITS) - 1)).unwrap_or(0)
    }

    fn low_bits(&self) -> i64 {
        i64::try_from(self.index).unwrap_or(0)
    }
}

impl fmt::Display for Partition {
    /// `{TAG}`; `the whole` in a system without partitions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tag() {
            Some(tag) => write!(f, "{{{tag}}}"),
            None => f.write_str("the whole"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voucher(id: i64) -> VoucherId {
        id.try_into().unwrap()
    }

    fn three() -> Vec<Partition> {
        Partition::all(&["3", "1", "0"].map(str::to_owned))
    }

    #[test]
    fn every_voucher_belongs_to_one_partition() {
        let partitions = three();
        for (id, index) in [(1, 1), (2, 2), (3, 0), (i64::MAX, 1)] {
            let owners: Vec<usize> =
                partitions.iter().filter(|p| p.owns(voucher(id))).map(Partition::index).collect();
            assert_eq!(owners, [index], "voucher {id}");
        }
        let why = partitions[0].refuses(voucher(1)).unwrap();
        assert_eq!(why.reason, WRONG_PARTITION);
        assert_eq!(why.error, "voucher 1 belongs to partition {1}, but this partition is {3}");
        assert!(partitions[1].refuses(voucher(1)).is_none());
    }

    #[test]
    fn a_system_without_partitions_owns_all_and_has_the_names_and_ids_of_before() {
        let [whole] = &Partition::all(&[])[..] else { panic!("one") };
        assert_eq!(whole, &Partition::default());
        assert_eq!((whole.tag(), whole.prefix().as_str(), whole.sequence(7)), (None, "", 7));
        assert_eq!(whole.number(77), Some(77));
        assert!((1..100).all(|id| whole.owns(voucher(id))));
    }

    #[test]
    fn no_two_lists_of_partitions_give_rows_the_same_code() {
        let mut codes = BTreeSet::new();
        for count in 1..=MOST_PARTITIONS {
            let tags: Vec<String> = (0..count).map(|tag| tag.to_string()).collect();
            for partition in Partition::all(&tags) {
                assert!(partition.codes().contains(&partition.code()));
                assert!(codes.insert(partition.code()), "{count}: {}", partition.code());
            }
        }
        assert!(codes.iter().all(|code| (64..1 << 16).contains(code)), "they fit into SMALLINT UNSIGNED");
        assert_eq!(Partition::default().codes(), 64..=64);
        let three = three();
        assert_eq!([3, 4, 5].map(|id| three[0].code_of(voucher(id))), [192, 193, 194]);
        assert_eq!(three.iter().map(Partition::code).collect::<Vec<_>>(), [192, 193, 194]);
        assert_eq!(three[1].code_in_sql("voucher_id"), "192 + voucher_id % 3");
    }

    #[test]
    fn no_two_partitions_make_one_sequence() {
        let partitions = three();
        let mut made: Vec<i64> =
            (1..50).flat_map(|number| partitions.iter().map(move |p| p.sequence(number))).collect();
        assert_eq!(made[..4], [64, 65, 66, 128]);
        made.sort_unstable();
        made.dedup();
        assert_eq!(made.len(), 49 * 3);
        assert_eq!((partitions[2].number(66), partitions[2].number(65)), (Some(1), None));
        assert_eq!(partitions[0].prefix(), "{3}:");
    }
}
