//! What became of one voucher.

use serde::{Serialize, Serializer};
use tidegate_compare::{OrdersAndUnits, text::counted};
use tidegate_orders::{OrderId, VoucherId, records::by_hand::set_keeps_journal};

/// How many order ids are listed.
const LISTED: usize = 20;

/// Why a voucher was left as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRebuilt {
    /// MySQL does not know it.
    #[error("MySQL has no row of it")]
    NoRow,
    /// Its sale is over for good.
    #[error("it is delisted: its sale is over for good, see docs/delist.md")]
    Delisted,
    /// Units are being added or taken.
    #[error(
        "units are being added to it or taken from it: `tidegate voucher show` says what completes that, then type this again"
    )]
    BeingAdjusted,
    /// Somebody holds its row.
    #[error("{0}; `tidegate doctor` says who. Type this again when they are done")]
    RowHeld(String),
    /// Redis lost what was filled.
    #[error("Redis lost again what was filled; type this again")]
    LostAgain,
    /// A key holds something that it should not.
    #[error("{0}")]
    KeyInTheWay(String),
}

impl Serialize for NotRebuilt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What was done with a voucher. Each order is counted once.
#[derive(Clone, Debug, Serialize)]
pub struct VoucherReport {
    /// The voucher.
    pub voucher: VoucherId,
    /// Why it was left as it was; None: it is rebuilt.
    pub not_rebuilt: Option<NotRebuilt>,
    /// Units that its keys had when they began to sell, but for what came in the very last moment.
    pub stock: i64,
    /// Its journal is complete from then on: the programs that sell it keep one, as far as MySQL knows.
    pub is_complete: bool,
    /// MySQL does not say whether the programs that sell it keep a journal, and Redis did not show it either.
    pub is_journal_guessed: bool,
    /// The counts of its orders.
    #[serde(flatten)]
    pub by_source: OrdersBySource,
    /// The first of those that are lost or only in the journal.
    pub first_unknown: Vec<OrderId>,
    /// Notes of the journal of before that nobody could read, of orders that MySQL does not know: they are gone.
    pub unreadable_notes: u64,
    /// What MySQL's stock is above what was loaded less its live orders; None where it is not known what was loaded.
    pub mysql_mismatch: Option<i64>,
    /// How long lanes had to set it aside, in milliseconds.
    pub took_ms: u64,
}

/// The counts of the orders of a voucher, by where the rebuild found them. Each order is counted once.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct OrdersBySource {
    /// Orders that MySQL has, live.
    pub live: OrdersAndUnits,
    /// Orders that MySQL has, ended, or contradictory in slot and status: they hold nothing.
    pub ended: OrdersAndUnits,
    /// Orders that MySQL has refused.
    pub refused: OrdersAndUnits,
    /// Orders that workers have still to handle.
    pub in_flight: OrdersAndUnits,
    /// Orders that the stream holds, that were acknowledged, and that MySQL does not know. They hold their units until somebody runs
    /// them again.
    pub lost: OrdersAndUnits,
    /// Orders among the dead letters.
    pub dead: OrdersAndUnits,
    /// Orders that only the journal of before knew. They hold their units: their callers were told of them.
    pub only_in_journal: OrdersAndUnits,
}

impl VoucherReport {
    /// Nothing is counted yet.
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

    /// It was left as it was.
    pub(super) fn refused_with(self, reason: NotRebuilt) -> Self {
        Self { not_rebuilt: Some(reason), ..Self::new(self.voucher) }
    }

    /// An order that MySQL does not know and nobody handles.
    pub(super) fn list(&mut self, order: OrderId) {
        if self.first_unknown.len() < LISTED {
            self.first_unknown.push(order);
        }
    }

    /// What to say of the journal.
    fn journal(&self) -> String {
        let note = |keeps: bool| {
            format!("type {} in MySQL, and rebuild it again", set_keeps_journal(self.voucher, keeps))
        };
        match (self.is_complete, self.is_journal_guessed) {
            (true, false) => String::new(),
            (false, false) => ", without a complete journal, because its producers keep none".to_owned(),
            (true, true) => {
                format!(
                    ", with a complete journal, as nobody noted otherwise; if its producers keep none, {}",
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

    /// One line for people.
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
