//! What Redis offers beyond what MySQL will have, measured from below: see [`super`].

use std::collections::BTreeMap;

use tidegate_orders::{
    OrderId, VoucherId,
    order_status::{JournalFact, RowFact},
    records::StockRow,
};
use tidegate_stream::EntryId;

use super::{
    admission::{Admission, Column, Movement},
    report::VoucherAudit,
};

#[derive(Debug, Default)]
pub(super) struct SurplusCheck {
    /// MySQL's stocks, read before all else, of vouchers whose sale is not over.
    before: BTreeMap<VoucherId, StockRow>,
    /// Where the stream ended before the stocks in Redis were read.
    end: EntryId,
    redis: BTreeMap<VoucherId, RedisUnits>,
}

/// Units of a voucher that Redis has taken from its stock and MySQL has not yet, and others of which nobody knows.
#[derive(Clone, Copy, Debug, Default)]
struct RedisUnits {
    /// Units that Redis offered.
    stock: Option<i64>,
    /// Our scripts admit orders of it.
    has_journal: bool,
    /// Of orders that the journal holds as admitted, and that are in flight or dead and have no row.
    open: i64,
    /// Of orders that the journal does not hold: their producers may have taken them from the stock in Redis or not. And of
    /// orders with an event that was not done when the audit began: it may have given them back.
    doubtful: i64,
}

impl SurplusCheck {
    /// MySQL's stocks, before anything else is read.
    pub(super) fn set_before(&mut self, rows: Vec<StockRow>) {
        let rows = rows.into_iter().filter(|row| !row.is_over);
        self.before = rows.map(|row| (row.voucher, row)).collect();
    }

    /// The vouchers of which a surplus is measured.
    pub(super) fn vouchers(&self) -> Vec<VoucherId> {
        self.before.keys().copied().collect()
    }

    /// What Redis offered when the stream had ended there.
    pub(super) fn set_redis(&mut self, end: EntryId, stocks: impl Iterator<Item = (VoucherId, Option<i64>)>) {
        self.end = end;
        for (voucher, stock) in stocks {
            self.redis.entry(voucher).or_default().stock = stock;
        }
    }

    /// Movements of a voucher's journal.
    pub(super) fn add_journal(&mut self, voucher: VoucherId, movements: &[(OrderId, Movement)]) {
        let units = self.redis.entry(voucher).or_default();
        units.has_journal |= !movements.is_empty();
        for (_, movement) in movements {
            if let Movement::Release { second_order_units } = movement {
                units.doubtful += i64::from(*second_order_units);
            }
        }
    }

    /// A live row that Redis does not know.
    pub(super) fn add_unknown_row(&mut self, voucher: VoucherId, units: i64) {
        self.redis.entry(voucher).or_default().doubtful += units;
    }

    /// Counts what an order says about the stock in Redis. One whose entry is not known may have been admitted after that stock
    /// was read.
    pub(super) fn count(&mut self, column: Column, group: &[Admission], has_open_event: bool) {
        let [first, ..] = group else { return };
        let quantity = i64::from(first.quantity);
        let is_journaled =
            group.iter().any(|it| matches!(it.journal, JournalFact::Admitted | JournalFact::Released));
        let is_open = matches!(column, Column::Dead | Column::InFlight)
            && group.iter().all(|it| it.row == RowFact::None)
            && group.iter().any(|it| it.has_entry && it.entry <= self.end);
        let units = self.redis.entry(first.voucher).or_default();
        match column {
            _ if is_open && is_journaled => units.open += quantity,
            Column::Written if !is_journaled => units.doubtful += quantity,
            _ => {}
        }
        // Its units may have come back to both stocks between the two readings.
        if has_open_event {
            units.doubtful += quantity;
        }
    }

    /// What Redis offers too much, at least. Not of a voucher that was restocked meanwhile, nor of one whose orders our
    /// scripts do not admit: nobody can tell then what Redis' stock is for.
    pub(super) fn report(&self, vouchers: &mut BTreeMap<VoucherId, VoucherAudit>) {
        for (id, before) in &self.before {
            let (Some(audit), Some(units)) = (vouchers.get_mut(id), self.redis.get(id)) else { continue };
            let is_same = before.initial_stock == audit.initial_stock;
            if let (Some(redis), Some(mysql), true) =
                (units.stock, before.stock, is_same && units.has_journal)
            {
                let surplus = redis + units.open - units.doubtful - mysql;
                audit.surplus_at_least = Some(surplus.max(0));
            }
        }
    }
}
