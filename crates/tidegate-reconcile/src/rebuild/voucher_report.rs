//! The result of the rebuild of one voucher.

use serde::{Serialize, Serializer};
use tidegate_compare::{OrdersAndUnits, text::counted};
use tidegate_orders::{OrderId, VoucherId, records::manual_sql::set_keeps_journal};

/// The largest number of order ids in the list.
const LISTED: usize = 20;

/// The reason why a voucher was not rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRebuilt {
    /// MySQL has no row of the voucher.
    #[error("MySQL has no row of it")]
    NoRow,
    /// The sale of the voucher is over for good.
    #[error("it is delisted: its sale is over for good, see docs/delist.md")]
    Delisted,
    /// Units are being added or taken.
    #[error(
        "units are being added to it or taken from it: `tidegate voucher show` says what completes that, then type this again"
    )]
    BeingAdjusted,
    /// Another session holds the voucher's row.
    #[error("{0}; `tidegate doctor` names the session. Type this again when it has ended")]
    RowHeld(String),
    /// Redis lost the keys that were filled.
    #[error("Redis lost the new keys; type this again")]
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

/// The result of the rebuild of a voucher. Each order is counted once.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherReport {
    /// The voucher that was rebuilt.
    pub voucher: VoucherId,
    /// The reason why the voucher was not rebuilt; None: it was rebuilt.
    pub not_rebuilt: Option<NotRebuilt>,
    /// The units that the new keys had when they began to sell, without entries of the last moment.
    pub stock: i64,
    /// Whether the new journal is complete: the programs that sell the voucher keep one, as far as MySQL knows.
    pub is_complete: bool,
    /// Whether the state of the journal is a guess: neither MySQL nor Redis shows whether the programs that sell the
    /// voucher keep a journal.
    pub is_journal_guessed: bool,
    /// The counts of the voucher's orders.
    #[serde(flatten)]
    pub by_source: OrdersBySource,
    /// The first orders that are lost or only in the journal.
    pub first_unknown: Vec<OrderId>,
    /// The number of notes of the previous journal that cannot be read, of orders that MySQL does not know. They are
    /// gone.
    pub unreadable_notes: u64,
    /// The units of MySQL's stock above the loaded units less the live orders. None: the loaded units are unknown.
    pub mysql_mismatch: Option<i64>,
    /// The time for which lanes had to set the voucher's orders aside, in milliseconds.
    pub took_ms: u64,
}

/// The counts of a voucher's orders, by the place where the rebuild found them. Each order is counted once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OrdersBySource {
    /// Live orders that MySQL has.
    pub live: OrdersAndUnits,
    /// Orders in MySQL that have ended, or whose slot and status contradict each other: they hold no units.
    pub ended: OrdersAndUnits,
    /// Orders that MySQL has refused.
    pub refused: OrdersAndUnits,
    /// Orders that workers still have to handle.
    pub in_flight: OrdersAndUnits,
    /// Orders in the stream that were acknowledged and that MySQL does not know. They hold their units until an
    /// operator runs them again.
    pub lost: OrdersAndUnits,
    /// Orders among the dead letters.
    pub dead: OrdersAndUnits,
    /// Orders that only the previous journal knew. They hold their units, because their callers got the answer that
    /// they are admitted.
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
            format!("type {} in MySQL, and rebuild it again", set_keeps_journal(self.voucher, keeps))
        };
        match (self.is_complete, self.is_journal_guessed) {
            (true, false) => String::new(),
            (false, false) => ", without a complete journal, because its producers keep none".to_owned(),
            (true, true) => {
                format!(
                    ", with a complete journal, because MySQL has no note about it; if its producers keep none, {}",
                    note(false)
                )
            }
            (false, true) => {
                format!(
                    ", without a complete journal, as it was before; if its producers keep one, {}",
                    note(true)
                )
            }
        }
    }

    /// The result in one line for an operator.
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
            (self.by_source.only_in_journal, "known by the old journal only"),
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
