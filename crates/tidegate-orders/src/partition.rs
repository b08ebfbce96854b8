//! Partitions of a system. Each is a complete system with its own vouchers, stream and locks. All of its names share a
//! tag, and so a slot of a Redis Cluster.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, sync::Arc};

use tidegate_stream::DeadLetterReason;

use crate::order::{OrderId, VoucherId};

/// The maximum number of partitions: an order id tells them apart by the lowest six bits of its sequence.
pub const MOST_PARTITIONS: usize = 1 << BITS;
/// The bits of an order id's sequence that hold the index of the partition.
const BITS: u32 = 6;
/// The longest tag, in bytes. A tag comes before every key, so it should be short.
const TAG_MAX: usize = 32;
/// The reason of a dead letter whose entry was in the stream of another partition than its voucher's.
pub const WRONG_PARTITION: &str = "wrong_partition";

/// Checks the tags of partitions, and returns what is wrong with them. An empty list of tags is right: the system has
/// no partitions.
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

/// A partition of a system, or the whole of a system without partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// The tags of all partitions, in their order; empty: the system has no partitions.
    tags: Arc<[String]>,
    index: usize,
}

impl Partition {
    /// All partitions of a system with these tags. Without tags, the one partition is the whole system.
    #[must_use]
    pub fn all(tags: &[String]) -> Vec<Self> {
        let tags: Arc<[String]> = tags.into();
        (0..tags.len().max(1)).map(|index| Self { tags: Arc::clone(&tags), index }).collect()
    }

    /// The tag between the braces of its names. None: the system has no partitions.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tags.get(self.index).map(String::as_str)
    }

    /// The tags of all partitions, in their order.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        &self.tags
    }

    /// The index of this partition in the list of tags, from 0 on.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The prefix of all of its names: `{TAG}:`, or nothing.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.tag().map_or_else(String::new, |tag| format!("{{{tag}}}:"))
    }

    /// Whether a voucher belongs to this partition: it belongs to `tags[voucherId mod P]`.
    #[must_use]
    pub fn owns(&self, voucher: VoucherId) -> bool {
        Self::index_of(voucher, self.tags.len()) == self.index
    }

    /// The index of the partition that a voucher belongs to, among `partitions` partitions.
    #[must_use]
    pub fn index_of(voucher: VoucherId, partitions: usize) -> usize {
        let partitions = i64::try_from(partitions.max(1)).unwrap_or(i64::MAX);
        usize::try_from(voucher.get() % partitions).unwrap_or(0)
    }

    /// SQL that follows other conditions of a WHERE: it selects the rows whose vouchers belong to this partition. Empty
    /// in a system without partitions. `column` holds the voucher.
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

    /// The code of the vouchers that belong to this partition.
    #[must_use]
    pub fn code(&self) -> i64 {
        self.first_code().saturating_add(self.low_bits())
    }

    /// The codes of all partitions in this list.
    #[must_use]
    pub fn codes(&self) -> RangeInclusive<i64> {
        self.first_code()..=self.first_code() + self.partitions() - 1
    }

    /// SQL for the code of the voucher in `column`.
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

    /// The reason why this partition must not handle an entry of a voucher. None: the voucher belongs to this
    /// partition.
    #[must_use]
    pub fn refuses(&self, voucher: VoucherId) -> Option<DeadLetterReason> {
        if self.owns(voucher) {
            return None;
        }
        let own = &self.tags[Self::index_of(voucher, self.tags.len())];
        let error = format!("voucher {voucher} belongs to the partition {{{own}}}, and this is {self}");
        Some(DeadLetterReason { reason: WRONG_PARTITION, error })
    }

    /// The sequence of an order id, made of the number that the day's counter of this partition has given: `64 n +
    /// index`. So no two partitions make the same id. In a system without partitions, it is the number itself.
    #[must_use]
    pub fn sequence(&self, number: i64) -> i64 {
        match self.tag() {
            None => number,
            Some(_) => number.saturating_mul(1 << BITS).saturating_add(self.low_bits()),
        }
    }

    /// The number of the day's counter that makes this sequence. None: another partition made it.
    #[must_use]
    pub fn number(&self, sequence: i64) -> Option<i64> {
        match self.tag() {
            None => Some(sequence),
            Some(_) => (sequence & ((1 << BITS) - 1) == self.low_bits()).then_some(sequence >> BITS),
        }
    }

    /// The index of the partition that an order id names. It is only a hint, because a producer may make its ids in
    /// another way.
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
        assert_eq!(why.error, "voucher 1 belongs to the partition {1}, and this is {3}");
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
