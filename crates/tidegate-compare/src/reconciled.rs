//! The result of the last comparison, stored in Redis for metrics, `doctor` and operators.

use std::collections::BTreeMap;

use fred::interfaces::KeysInterface;
use serde::{Deserialize, Serialize};
use tidegate_orders::{RedisStore, VoucherId};
use tidegate_stream::StreamError;

use crate::text::counted;

/// The largest number of removals that are kept.
const MOST_REMOVED: usize = 5;

/// The kind of a difference. Its word is the same in JSON, in metrics and in the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// An order was admitted and is nowhere else: neither in flight nor dead nor in MySQL, as a row or a refusal.
    LostOrder,
    /// An event of an order that is not lost itself was acknowledged, and MySQL has not recorded it.
    LostEvent,
    /// Redis released an order, and MySQL knows neither a row nor a refusal of it.
    ReleaseUnknownToMysql,
    /// MySQL has a live order that a complete journal does not hold.
    NotAdmitted,
    /// MySQL cancelled or refused an order, and the journal still holds it as admitted.
    NotReleased,
    /// MySQL has a live order that was released in Redis: its units can be sold twice.
    ReleasedAndLive,
    /// The row with the id of an admitted order belongs to another user or voucher, or has another quantity.
    Mismatched,
    /// The units of an order were released more than once, by MySQL's record of its events.
    ReleasedTwice,
    /// The status of a row is not the one that its events lead to: another program set it. No failure.
    StatusSetByOthers,
    /// A user without an order is in the set of buyers.
    BarredWithoutOrder,
    /// A user with a live order is not in the set of buyers.
    NotBarred,
    /// The stock in Redis is not the sum of its journal.
    RedisStockMismatch,
    /// The units loaded by the journal differ from those loaded by MySQL.
    LoadedMismatch,
    /// The stock in MySQL is not the loaded units less the units of live orders.
    MysqlStockMismatch,
    /// The used orders in MySQL differ from those that were compacted out of the journal, by number or by units.
    CompactedMismatch,
    /// A limit counter differs from the uses that orders hold.
    LimitUsesMismatch,
    /// The slots of a user are not those of the orders that the user holds.
    SlotsMismatch,
    /// Orders hold more than a limit allows, and the limit was not lowered since they were made.
    LimitPassed,
    /// Redis has lost the sale, so that no user can buy: the sale is on and has orders and units left in MySQL, but no
    /// stock in Redis.
    SaleForgotten,
}

impl DifferenceKind {
    /// All kinds of differences, in their order.
    pub const ALL: [Self; 19] = [
        Self::LostOrder,
        Self::LostEvent,
        Self::ReleaseUnknownToMysql,
        Self::NotAdmitted,
        Self::NotReleased,
        Self::ReleasedAndLive,
        Self::Mismatched,
        Self::ReleasedTwice,
        Self::StatusSetByOthers,
        Self::BarredWithoutOrder,
        Self::NotBarred,
        Self::RedisStockMismatch,
        Self::LoadedMismatch,
        Self::MysqlStockMismatch,
        Self::CompactedMismatch,
        Self::LimitUsesMismatch,
        Self::SlotsMismatch,
        Self::LimitPassed,
        Self::SaleForgotten,
    ];

    /// The word for it in JSON, in metrics and in tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::LostOrder => "lost_order",
            Self::LostEvent => "lost_event",
            Self::ReleaseUnknownToMysql => "release_unknown_to_mysql",
            Self::NotAdmitted => "not_admitted",
            Self::NotReleased => "not_released",
            Self::ReleasedAndLive => "released_and_live",
            Self::Mismatched => "mismatched",
            Self::ReleasedTwice => "released_twice",
            Self::StatusSetByOthers => "status_set_by_others",
            Self::BarredWithoutOrder => "barred_without_order",
            Self::NotBarred => "not_barred",
            Self::RedisStockMismatch => "redis_stock_mismatch",
            Self::LoadedMismatch => "loaded_mismatch",
            Self::MysqlStockMismatch => "mysql_stock_mismatch",
            Self::CompactedMismatch => "compacted_mismatch",
            Self::LimitUsesMismatch => "limit_uses_mismatch",
            Self::SlotsMismatch => "slots_mismatch",
            Self::LimitPassed => "limit_passed",
            Self::SaleForgotten => "sale_forgotten",
        }
    }

    /// Whether the difference is a failure: no program may cause it.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::StatusSetByOthers)
    }
}

/// The result of the last comparison of all vouchers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// The time when it ended, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The duration of the comparison, in milliseconds.
    pub took_ms: u64,
    /// The time when the last comparison without differences ended; None: there was none.
    pub clean_at_ms: Option<i64>,
    /// The number of differences, by the word of their kind.
    pub counts: BTreeMap<String, u64>,
    /// The number of vouchers with keys of a wrong type or content, or with an unknown sum.
    pub unread: u64,
    /// The standing differences: the lower number of this comparison and the one before it, by kind.
    pub standing: BTreeMap<String, u64>,
    /// The units that are still to be deducted from MySQL's stocks: in flight and dead.
    pub units_to_deduct: i64,
    /// The last delisted vouchers whose keys were removed, the latest at the end. The next comparison keeps them.
    #[serde(default)]
    pub removed: Vec<RemovedSale>,
    /// The time before which final orders were compacted out of the journals, in Unix milliseconds; 0: none were yet.
    #[serde(default)]
    pub compacted_before_ms: i64,
    /// The approximate bytes that Redis uses for each voucher: for those with the highest ids.
    #[serde(default)]
    pub voucher_bytes: BTreeMap<String, u64>,
}

/// A delisted voucher whose keys were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSale {
    /// The voucher whose keys were removed.
    pub voucher: VoucherId,
    /// The time of the removal, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The number of keys that the voucher had.
    pub keys: u64,
    /// The approximate memory of the keys in Redis, in bytes.
    pub bytes: u64,
}

impl Reconciled {
    /// Reads the stored result. None: there was none, or another version wrote it.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn read(redis: &RedisStore) -> Result<Option<Self>, StreamError> {
        let text: Option<String> = redis.pool().get(redis.keys().fleet().reconciled()).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Stores the result in the place of the previous one.
    ///
    /// # Errors
    /// Fails if Redis does not answer, or accepts no writes.
    pub async fn write(&self, redis: &RedisStore) -> Result<(), StreamError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        Ok(redis.pool().set::<(), _, _>(redis.keys().fleet().reconciled(), text, None, None, false).await?)
    }

    /// Adds a voucher whose keys were removed.
    pub fn note_removed(&mut self, removed: RemovedSale) {
        self.removed.push(removed);
        self.removed.drain(..self.removed.len().saturating_sub(MOST_REMOVED));
    }

    /// The number of differences of this kind.
    #[must_use]
    pub fn count(&self, kind: DifferenceKind) -> u64 {
        self.counts.get(kind.word()).copied().unwrap_or(0)
    }

    /// The kinds of failures that the comparison found, each with its number.
    #[must_use]
    pub fn failures(&self) -> Vec<(DifferenceKind, u64)> {
        let failing = DifferenceKind::ALL.into_iter().filter(|kind| kind.is_failure());
        let counted = failing.map(|kind| (kind, self.count(kind)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// The usual cause of all the differences; None: there is no usual cause.
    #[must_use]
    pub fn usual_cause(&self) -> Option<&'static str> {
        let is_all = self.failures().iter().all(|(kind, _)| *kind == DifferenceKind::NotAdmitted);
        (is_all && self.count(DifferenceKind::NotAdmitted) > 0).then_some(
            "usually a producer appends orders by XADD alone; tidegate reconcile --repair admits them",
        )
    }

    /// The result in a sentence without its full stop, for an operator; None: both sides agreed.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let kinds: Vec<String> =
            self.failures().iter().map(|(kind, count)| format!("{}: {count}", kind.word())).collect();
        match (kinds.is_empty(), self.unread) {
            (false, _) => Some(format!(
                "Redis and MySQL differ ({}), by the last comparison{}: tidegate reconcile says which orders",
                kinds.join(", "),
                self.usual_cause().map_or_else(String::new, |cause| format!("; {cause}"))
            )),
            (true, 0) => None,
            (true, unread) => Some(format!(
                "the totals of {} could not be compared: tidegate reconcile says why",
                counted(unread, "voucher")
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_must_not_be_is_worth_a_sentence() {
        let found = |counts: &[(&str, u64)], unread| Reconciled {
            counts: counts.iter().map(|(word, count)| ((*word).to_owned(), *count)).collect(),
            unread,
            ..Reconciled::default()
        };
        assert_eq!(found(&[], 0).sentence(), None);
        assert_eq!(found(&[("status_set_by_others", 3)], 0).sentence(), None);
        let both = found(&[("lost_order", 2), ("not_barred", 1)], 1).sentence().unwrap();
        assert!(both.contains("(lost_order: 2, not_barred: 1)"), "{both}");
        let xadd = found(&[("not_admitted", 2)], 0).sentence().unwrap();
        assert!(xadd.contains("usually a producer appends orders by XADD alone"), "{xadd}");
        assert!(!both.contains("XADD"), "{both}");
        let unread = found(&[], 1).sentence().unwrap();
        assert!(unread.starts_with("the totals of 1 voucher could not"), "{unread}");
    }

    #[test]
    fn its_word_is_that_of_its_json() {
        for kind in DifferenceKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.word());
        }
    }
}
