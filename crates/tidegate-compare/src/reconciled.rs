//! The result of the last comparison, stored in Redis for metrics, `doctor` and operators.

use std::collections::BTreeMap;

use fred::interfaces::KeysInterface;
use serde::{Deserialize, Serialize};
use tidegate_orders::{RedisStore, VoucherId};
use tidegate_stream::StreamError;

use crate::text::counted;

/// The largest number of removals that are kept.
const MOST_REMOVED: usize = 5;

/// The kind of a difference between Redis and MySQL. JSON, metrics and documents use the same word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// An order was admitted, and is neither in flight nor a dead letter, and MySQL has neither a row nor a refusal.
    LostOrder,
    /// An event was acknowledged, and MySQL has not recorded it. The order of the event is not lost.
    LostEvent,
    /// Redis released an order, and MySQL has neither a row nor a refusal of this order.
    ReleaseUnknownToMysql,
    /// MySQL has a live order that is missing in a complete journal.
    NotAdmitted,
    /// MySQL cancelled or refused an order that is still admitted in the journal.
    NotReleased,
    /// MySQL has a live order that was released in Redis: its units can be sold twice.
    ReleasedAndLive,
    /// The row with the id of an admitted order belongs to another user or voucher, or has another quantity.
    Mismatched,
    /// The units of an order were released more than once, by MySQL's record of its events.
    ReleasedTwice,
    /// The status of a row does not follow from its events, because another program set the status. This is no failure.
    StatusSetByOthers,
    /// A user without an order is in the set of buyers.
    BarredWithoutOrder,
    /// A user with a live order is not in the set of buyers.
    NotBarred,
    /// The stock in Redis is not the sum of its journal.
    RedisStockMismatch,
    /// The loaded units in the journal differ from the loaded units in MySQL.
    LoadedMismatch,
    /// The stock in MySQL is not the loaded units minus the units of live orders.
    MysqlStockMismatch,
    /// The used orders in MySQL differ from the used orders removed from the journal, by number or by units.
    CompactedMismatch,
    /// A limit counter differs from the value that the orders add up to.
    LimitUsesMismatch,
    /// The slots that Redis counts for a user differ from the slots of the user's orders.
    SlotsMismatch,
    /// Orders exceed a limit that was not lowered since these orders were made.
    LimitPassed,
    /// Redis has lost the sale, so that no user can buy. In MySQL the sale is on and has orders and units left, but
    /// Redis has no stock.
    SaleForgotten,
    /// Redis begins or ends the sale at other times than MySQL says.
    Window,
}

impl DifferenceKind {
    /// All kinds of differences, in the order of the reports.
    pub const ALL: [Self; 20] = [
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
        Self::Window,
    ];

    /// The word for the kind in JSON, in metrics and in tables.
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
            Self::Window => "window",
        }
    }

    /// Whether a difference of this kind is a failure. Differences of other kinds may come from changes that other
    /// programs are allowed to make.
    #[must_use]
    pub const fn is_failure(self) -> bool {
        !matches!(self, Self::StatusSetByOthers)
    }
}

/// The stored result of the last comparison of all vouchers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// The time when the last comparison ended, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The duration of the last comparison, in milliseconds.
    pub took_ms: u64,
    /// The time when a comparison last ended without differences, in Unix milliseconds. None: each comparison found
    /// differences.
    pub clean_at_ms: Option<i64>,
    /// The number of differences in the last comparison, by the word of their kind.
    pub counts: BTreeMap<String, u64>,
    /// The number of vouchers that could not be compared. One of their Redis keys has a wrong type or content, or the
    /// sum of their journal is unknown.
    pub unread: u64,
    /// The number of differences that both of the last two comparisons found, by kind: the lower of the two numbers.
    pub standing: BTreeMap<String, u64>,
    /// The units of unfinished orders and dead letters, which the stocks in MySQL still include.
    pub units_to_deduct: i64,
    /// The vouchers whose keys workers removed last, because their sales were ended permanently. The latest voucher is
    /// at the end. Later results keep this list.
    #[serde(default)]
    pub removed: Vec<RemovedSale>,
    /// The time before which notes of finished orders were removed from the journals (Redis hashes of orders), in Unix
    /// milliseconds. 0: no note was removed.
    #[serde(default)]
    pub compacted_before_ms: i64,
    /// The approximate bytes that Redis uses for each of the vouchers with the highest ids.
    #[serde(default)]
    pub voucher_bytes: BTreeMap<String, u64>,
}

/// A voucher whose keys were removed from Redis, because its sale was ended permanently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSale {
    /// The id of the voucher whose sale was ended.
    pub voucher: VoucherId,
    /// The time when the keys were removed, in Unix milliseconds by the clock of Redis.
    pub at_ms: i64,
    /// The number of removed keys.
    pub keys: u64,
    /// The approximate memory of the removed keys in Redis, in bytes.
    pub bytes: u64,
}

impl Reconciled {
    /// Reads the stored result of the last comparison. None: no result is stored, or another version wrote it.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn read(redis: &RedisStore) -> Result<Option<Self>, StreamError> {
        let text: Option<String> = redis.pool().get(redis.keys().fleet().reconciled()).await?;
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Stores this result, and replaces the previous result.
    ///
    /// # Errors
    /// Fails if Redis does not answer, or accepts no writes.
    pub async fn write(&self, redis: &RedisStore) -> Result<(), StreamError> {
        let text = serde_json::to_string(self).unwrap_or_default();
        Ok(redis.pool().set::<(), _, _>(redis.keys().fleet().reconciled(), text, None, None, false).await?)
    }

    /// Adds a voucher to the list of vouchers whose keys were removed from Redis.
    pub fn note_removed(&mut self, removed: RemovedSale) {
        self.removed.push(removed);
        self.removed.drain(..self.removed.len().saturating_sub(MOST_REMOVED));
    }

    /// The number of differences of the given kind.
    #[must_use]
    pub fn count(&self, kind: DifferenceKind) -> u64 {
        self.counts.get(kind.word()).copied().unwrap_or(0)
    }

    /// The kinds of differences that count as failures, each with its number.
    #[must_use]
    pub fn failures(&self) -> Vec<(DifferenceKind, u64)> {
        let failing = DifferenceKind::ALL.into_iter().filter(|kind| kind.is_failure());
        let counted = failing.map(|kind| (kind, self.count(kind)));
        counted.filter(|(_, count)| *count > 0).collect()
    }

    /// The usual cause of the differences if all have the same usual cause. None: no common cause is known.
    #[must_use]
    pub fn usual_cause(&self) -> Option<&'static str> {
        let is_all = self.failures().iter().all(|(kind, _)| *kind == DifferenceKind::NotAdmitted);
        (is_all && self.count(DifferenceKind::NotAdmitted) > 0).then_some(
            "usually a producer appends orders by XADD alone; tidegate reconcile --repair admits the orders",
        )
    }

    /// The result of the comparison as a sentence for an operator, without a full stop. None: Redis and MySQL agreed.
    #[must_use]
    pub fn sentence(&self) -> Option<String> {
        let kinds: Vec<String> =
            self.failures().iter().map(|(kind, count)| format!("{}: {count}", kind.word())).collect();
        match (kinds.is_empty(), self.unread) {
            (false, _) => Some(format!(
                "Redis and MySQL differ ({}) in the last comparison{}: for details, type tidegate reconcile",
                kinds.join(", "),
                self.usual_cause().map_or_else(String::new, |cause| format!("; {cause}"))
            )),
            (true, 0) => None,
            (true, unread) => Some(format!(
                "the totals of {} could not be compared: tidegate reconcile shows the reason",
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
