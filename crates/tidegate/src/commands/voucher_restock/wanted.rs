//! Whether a change of a voucher's stock may begin.

use tidegate_orders::{
    VoucherId,
    gate::{ChangeState, StockChange},
    row_state::LIVE,
    vouchers::VoucherRow,
};

use super::words::{command, told};
use crate::{commands::voucher_load::MAX_STOCK, output::counted};

/// A change that somebody wants.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub voucher: VoucherId,
    /// Added; below 0: taken.
    pub units: i64,
    /// What the initial stock has to be.
    pub initial: Option<i64>,
}

impl Wanted {
    /// It is under way already.
    pub fn is_begun_by(&self, last: &StockChange) -> bool {
        let is_same = last.units == self.units && self.initial.is_none_or(|initial| initial == last.before);
        is_same && last.state == ChangeState::Open
    }

    /// Both sides have it already, as the last of all changes.
    pub fn is_done_by(&self, last: &StockChange, initial: i64) -> bool {
        last.state == ChangeState::Done && last.units == self.units && last.after() == initial
    }

    /// The initial stock in MySQL from which to begin, or why not to begin.
    ///
    /// # Errors
    /// In the words of a refusal.
    pub fn check(
        &self,
        redis_stock: Option<i64>,
        row: Option<&VoucherRow>,
        last: Option<&StockChange>,
    ) -> Result<i64, String> {
        let Self { voucher, units, .. } = *self;
        let Some(row) = row else {
            return Err("MySQL has no row of it: it is not on sale".to_owned());
        };
        let Some(left) = redis_stock else {
            let why = "it is not on sale, or Redis lost data (see docs/runbook/redis-lost-data.md)";
            return Err(format!("Redis has no stock of it: {why}"));
        };
        if let Some(open) = last.filter(|last| last.state == ChangeState::Open) {
            return Err(format!(
                "another change of it is unfinished ({}); complete that first: {}",
                told(open),
                command(voucher, open.units, open.before)
            ));
        }
        let Some(initial) = row.initial_stock else {
            return Err(format!(
                "nobody knows what it began with (initial_stock is NULL); write that down first: UPDATE \
                 tb_seckill_voucher SET initial_stock = stock + (SELECT COALESCE(SUM(quantity), 0) FROM \
                 tb_voucher_order WHERE voucher_id = {voucher} AND {LIVE}) WHERE voucher_id = {voucher}"
            ));
        };
        let same = last.filter(|last| self.is_done_by(last, initial));
        match (self.initial, same) {
            (None, Some(same)) => {
                return Err(format!(
                    "the last change of it was the same, and both sides have it ({}); once more: {}",
                    told(same),
                    command(voucher, units, initial)
                ));
            }
            (Some(wanted), _) if wanted != initial => {
                return Err(format!(
                    "its initial stock in MySQL is {initial} and not {wanted}, so somebody has changed it since, \
                     or Redis has lost the note of this very change: compare the stocks"
                ));
            }
            _ => {}
        }
        for (side, stock) in [("Redis", left), ("MySQL", row.stock)] {
            if stock.saturating_add(units) < 0 {
                return Err(format!("{side} has only {} left of it", counted(stock, "unit")));
            }
        }
        if initial.saturating_add(units) > MAX_STOCK {
            return Err(format!("it would have more than {}", counted(MAX_STOCK, "unit")));
        }
        Ok(initial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: (i64, Option<i64>) = (100, Some(200));

    fn check(
        units: i64,
        redis: Option<i64>,
        row: (i64, Option<i64>),
        last: Option<&StockChange>,
        initial: Option<i64>,
    ) -> Result<i64, String> {
        let voucher = VoucherId::try_from(7).unwrap();
        let row = VoucherRow { voucher, stock: row.0, initial_stock: row.1, begin_ms: None, end_ms: None };
        Wanted { voucher, units, initial }.check(redis, Some(&row), last)
    }

    #[test]
    fn only_what_both_sides_have_is_changed() {
        let check = |units, redis, row| check(units, redis, row, None, None);
        assert_eq!(check(50, Some(100), ROW), Ok(200));
        assert_eq!(check(-100, Some(100), ROW), Ok(200), "to the last unit");
        assert!(check(-100, Some(99), ROW).unwrap_err().contains("Redis has only 99 units left"));
        assert!(check(-101, Some(110), ROW).unwrap_err().contains("MySQL has only 100 units left"));
        assert!(check(1, None, ROW).unwrap_err().contains("Redis has no stock"));
        assert!(check(1, Some(1), (100, None)).unwrap_err().contains("SET initial_stock = stock + "));
        assert!(check(MAX_STOCK, Some(100), ROW).unwrap_err().contains("more than"));
    }

    #[test]
    fn the_same_is_not_done_twice_and_nothing_else_before_an_open_change() {
        let open = StockChange::new(50, 150, "alice".to_owned());
        let refused = check(40, Some(100), ROW, Some(&open), None).unwrap_err();
        assert!(refused.contains("add --voucher 7 --units 50 --initial-stock 150"), "{refused}");
        let done = open.as_now(ChangeState::Done);
        let refused = check(50, Some(100), ROW, Some(&done), None).unwrap_err();
        assert!(refused.contains("by alice") && refused.contains("--initial-stock 200"), "{refused}");
        assert_eq!(check(50, Some(100), ROW, Some(&done), Some(200)), Ok(200), "that is meant");
        assert_eq!(check(40, Some(100), ROW, Some(&done), None), Ok(200), "another change");
        assert_eq!(
            check(50, Some(100), (100, Some(300)), Some(&done), None),
            Ok(300),
            "others came in between"
        );
        let withdrawn = open.as_now(ChangeState::Withdrawn);
        assert_eq!(check(50, Some(100), ROW, Some(&withdrawn), None), Ok(200));
    }

    #[test]
    fn a_note_that_redis_has_lost_does_not_make_the_same_change_twice() {
        let refused = check(50, Some(100), ROW, None, Some(150)).unwrap_err();
        assert!(refused.contains("is 200 and not 150"), "{refused}");
        assert_eq!(check(50, Some(100), ROW, None, Some(200)), Ok(200));
    }
}
