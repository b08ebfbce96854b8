//! The result of the rebuild of one voucher.

use serde::{Serialize, Serializer};
use tidegate_compare::{OrdersAndUnits, text::counted};
use tidegate_orders::{OrderId, VoucherId, records::manual_sql::set_keeps_journal, scripts::SaleWindow};

/// The largest number of order ids in the list.
const LISTED: usize = 20;

/// The reason why a voucher was not rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRebuilt {
    /// MySQL has no row of the voucher.
    #[error("MySQL has no row of this voucher")]
    NoRow,
    /// The voucher is delisted: its sale is over permanently.
    #[error("the voucher is delisted: its sale is over permanently; see docs/delist.md")]
    Delisted,
    /// Redis sells the voucher without an end, but its end in MySQL has passed: the rebuild would end the sale.
    #[error(
        "Redis sells the voucher without an end, but MySQL has: {0}. The rebuild would end the sale: first set the end in \
         both stores with tidegate voucher schedule"
    )]
    OverInMysql(SaleWindow),
    /// Units are being added or taken.
    #[error(
        "the stock is being changed: first type the command that `tidegate voucher show` names, then this command again"
    )]
    BeingAdjusted,
    /// Another session holds the voucher's row.
    #[error("{0}; `tidegate doctor` names the session. Type the command again when this session has ended")]
    RowHeld(String),
    /// Redis lost the new keys during the rebuild.
    #[error("Redis lost the keys that the rebuild had written; type the command again")]
    LostAgain,
    /// A key in Redis has a wrong type or content.
    #[error("{0}")]
    KeyInTheWay(String),
}

impl Serialize for NotRebuilt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The result of rebuilding one voucher in Redis. Each order counts once.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherReport {
    /// The voucher that was rebuilt.
    pub voucher: VoucherId,
    /// The reason why the voucher was not rebuilt; None: it was rebuilt.
    pub not_rebuilt: Option<NotRebuilt>,
    /// The units in Redis when the new keys went on sale, without a deduction for entries that arrived at the last
    /// moment.
    pub stock: i64,
    /// Whether the new journal (the Redis hash of orders) counts as complete. It is complete if the programs that sell
    /// the voucher write a journal, as far as MySQL knows.
    pub is_complete: bool,
    /// Whether `is_complete` is a guess, because neither MySQL nor Redis shows whether the programs that sell the
    /// voucher write a journal.
    pub is_journal_guessed: bool,
    /// The counts of the voucher's orders, by the source where the rebuild found each order.
    #[serde(flatten)]
    pub by_source: OrdersBySource,
    /// The first orders that MySQL does not know, and whose entries no worker will handle.
    pub first_unknown: Vec<OrderId>,
    /// The number of unreadable notes whose orders MySQL does not know, in the previous journal (the Redis hash of
    /// orders). The new journal lacks these notes.
    pub unreadable_notes: u64,
    /// The stock in MySQL minus the correct stock: all units ever loaded, minus the units of orders that are not
    /// cancelled. None: the number of loaded units is unknown.
    pub mysql_mismatch: Option<i64>,
    /// The time for which workers could not write orders of the voucher, in milliseconds.
    pub took_ms: u64,
}

/// The counts of a voucher's orders, by the source where the rebuild found each order. Each order is counted once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OrdersBySource {
    /// The number and units of orders in MySQL that are not cancelled or refunded.
    pub live: OrdersAndUnits,
    /// The orders in MySQL that are cancelled or refunded, or whose row contradicts itself. Such orders take no units.
    pub ended: OrdersAndUnits,
    /// The orders that MySQL has refused.
    pub refused: OrdersAndUnits,
    /// The orders that workers still have to write.
    pub in_flight: OrdersAndUnits,
    /// The orders that MySQL does not know, although their stream entries were acknowledged. They take units from the
    /// stock until an operator replays their entries.
    pub lost: OrdersAndUnits,
    /// The orders that are dead letters.
    pub dead: OrdersAndUnits,
    /// The orders that only the previous journal (the Redis hash of orders) contained. They take units from the stock,
    /// because Redis has replied to their callers that the orders are admitted.
    pub only_in_journal: OrdersAndUnits,
}

impl VoucherReport {
    /// Creates a report without counts.
    pub(super) fn new(voucher: VoucherId) -> Self {
        Self {
            voucher,
            not_rebuilt: None,
            stock: 0,
            is_complete: true,
            is_journal_guessed: false,
            by_source: OrdersBySource::default(),
            first_unknown: Vec::new(),
            unreadable_notes: 0,
            mysql_mismatch: None,
            took_ms: 0,
        }
    }

    /// Creates the report that the voucher was not rebuilt for `reason`.
    pub(super) fn refused_with(self, reason: NotRebuilt) -> Self {
        Self { not_rebuilt: Some(reason), ..Self::new(self.voucher) }
    }

    /// Lists an order that MySQL does not know and no worker handles.
    pub(super) fn list(&mut self, order: OrderId) {
        if self.first_unknown.len() < LISTED {
            self.first_unknown.push(order);
        }
    }

    /// The part of the line about the journal.
    fn journal(&self) -> String {
        let note = |keeps: bool| {
            format!("type {} in MySQL, and rebuild the voucher again", set_keeps_journal(self.voucher, keeps))
        };
        match (self.is_complete, self.is_journal_guessed) {
            (true, false) => String::new(),
            (false, false) => ", without a complete journal, because producers keep no journal".to_owned(),
            (true, true) => {
                format!(
                    ", with a complete journal, because MySQL does not say if producers keep one; if they do not, {}",
                    note(false)
                )
            }
            (false, true) => {
                format!(
                    ", without a complete journal, because the old one was incomplete; if producers keep one, {}",
                    note(true)
                )
            }
        }
    }

    /// The result of the voucher in one line for an operator.
    #[must_use]
    pub fn line(&self) -> String {
        let voucher = self.voucher;
        if let Some(reason) = &self.not_rebuilt {
            return format!("voucher {voucher}: not rebuilt, {reason}");
        }
        let kinds = [
            (self.by_source.in_flight, "in flight"),
            (self.by_source.dead, "dead"),
            (self.by_source.lost, "acknowledged and not written"),
            (self.by_source.only_in_journal, "found only in the old journal"),
        ];
        let kinds = kinds.iter().filter(|(count, _)| count.orders > 0);
        let kinds: String = kinds
            .map(|(count, what)| {
                format!(", {} {what} ({})", counted(count.orders, "order"), counted(count.units, "unit"))
            })
            .collect();
        let (units, live) = (counted(self.stock, "unit"), counted(self.by_source.live.orders, "live order"));
        let journal = self.journal();
        format!("voucher {voucher}: rebuilt with {units} left, {live}{kinds}{journal}")
    }
}
