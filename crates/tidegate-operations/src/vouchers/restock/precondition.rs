//! Whether a change of a voucher's stock may begin.

use tidegate_orders::{
    gate::{ChangeState, StockChange},
    records::vouchers::VoucherRow,
};

use super::{RestockRefusal, RestockRequest};
use crate::vouchers::MAX_STOCK;

impl RestockRequest {
    /// It is under way already.
    pub(super) fn is_begun_by(&self, last: &StockChange) -> bool {
        let is_same =
            last.units == self.units && self.initial_stock.is_none_or(|initial| initial == last.before);
        is_same && last.state == ChangeState::Open && last.moved.is_none()
    }

    /// Both sides have it already, as the last of all changes.
    pub(super) fn is_done_by(&self, last: &StockChange, initial: i64) -> bool {
        last.moved.is_none()
            && last.state == ChangeState::Done
            && last.units == self.units
            && last.after() == initial
    }

    /// The initial stock in MySQL from which to begin, or why not to begin. `last` is the note that Redis has.
    pub(super) fn check(
        &self,
        redis_stock: Option<i64>,
        row: Option<&VoucherRow>,
        last: Option<&StockChange>,
    ) -> Result<i64, RestockRefusal> {
        let Self { voucher, units, .. } = *self;
        let row = row.ok_or(RestockRefusal::NoRow)?;
        if row.delisted_ms.is_some() {
            return Err(RestockRefusal::Delisted);
        }
        let left = redis_stock.ok_or(RestockRefusal::NoStock)?;
        if let Some(open) = last.filter(|last| last.state == ChangeState::Open) {
            return Err(RestockRefusal::AnotherIsOpen { open: Box::new(open.clone()), voucher });
        }
        let initial = row.initial_stock.ok_or(RestockRefusal::NoInitialStock { voucher })?;
        let same = last.filter(|last| self.is_done_by(last, initial));
        match (self.initial_stock, same) {
            (None, Some(same)) => {
                let again = Self { initial_stock: Some(initial), ..*self };
                return Err(RestockRefusal::SameAsLast { last: Box::new(same.clone()), again });
            }
            (Some(expected), _) if expected != initial => {
                return Err(RestockRefusal::OtherInitialStock { initial, expected });
            }
            _ => {}
        }
        for (side, left) in [("Redis", left), ("MySQL", row.stock)] {
            if left.saturating_add(units) < 0 {
                return Err(RestockRefusal::TooFewLeft { side, left });
            }
        }
        if initial.saturating_add(units) > MAX_STOCK {
            return Err(RestockRefusal::TooMany);
        }
        Ok(initial)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_orders::VoucherId;

    use super::*;

    const ROW: (i64, Option<i64>) = (100, Some(200));

    fn check(
        units: i64,
        redis: Option<i64>,
        row: (i64, Option<i64>),
        last: Option<&StockChange>,
        initial_stock: Option<i64>,
    ) -> Result<i64, RestockRefusal> {
        let voucher = VoucherId::try_from(7).unwrap();
        let row = VoucherRow {
            voucher,
            stock: row.0,
            initial_stock: row.1,
            begin_ms: None,
            end_ms: None,
            pay_within_s: None,
            delisted_ms: None,
        };
        RestockRequest { voucher, units, initial_stock }.check(redis, Some(&row), last)
    }

    #[test]
    fn only_what_both_sides_have_is_changed() {
        let refused = |units, redis, row| check(units, redis, row, None, None).unwrap_err();
        let check = |units, redis, row| check(units, redis, row, None, None);
        assert_eq!(check(50, Some(100), ROW), Ok(200));
        assert_eq!(check(-100, Some(100), ROW), Ok(200), "to the last unit");
        let only = refused(-100, Some(99), ROW);
        assert_eq!(only, RestockRefusal::TooFewLeft { side: "Redis", left: 99 });
        assert_eq!(only.to_string(), "Redis has only 99 units left of it");
        assert_eq!(refused(-101, Some(110), ROW), RestockRefusal::TooFewLeft { side: "MySQL", left: 100 });
        assert_eq!(refused(1, None, ROW), RestockRefusal::NoStock);
        let unknown = refused(1, Some(1), (100, None)).to_string();
        assert!(unknown.contains("SET initial_stock = stock + "), "{unknown}");
        assert_eq!(refused(MAX_STOCK, Some(100), ROW), RestockRefusal::TooMany);
    }

    #[test]
    fn the_same_is_not_done_twice_and_nothing_else_before_an_open_change() {
        let open = StockChange::new(50, 150, "alice".to_owned());
        let other = check(40, Some(100), ROW, Some(&open), None).unwrap_err();
        let voucher = VoucherId::try_from(7).unwrap();
        assert_eq!(other, RestockRefusal::AnotherIsOpen { open: Box::new(open.clone()), voucher });
        let done = open.with_state(ChangeState::Done);
        let refused = check(50, Some(100), ROW, Some(&done), None).unwrap_err();
        assert!(refused.to_string().contains("by alice"), "{refused}");
        let RestockRefusal::SameAsLast { again, .. } = refused else { panic!("{refused}") };
        assert_eq!((again.units, again.initial_stock), (50, Some(200)));
        assert_eq!(check(50, Some(100), ROW, Some(&done), Some(200)), Ok(200), "that is meant");
        assert_eq!(check(40, Some(100), ROW, Some(&done), None), Ok(200), "another change");
        assert_eq!(
            check(50, Some(100), (100, Some(300)), Some(&done), None),
            Ok(300),
            "others came in between"
        );
        let cancelled = open.with_state(ChangeState::Cancelled);
        assert_eq!(check(50, Some(100), ROW, Some(&cancelled), None), Ok(200));
    }

    #[test]
    fn a_note_that_redis_has_lost_does_not_make_the_same_change_twice() {
        let refused = check(50, Some(100), ROW, None, Some(150)).unwrap_err();
        assert!(refused.to_string().contains("is 200 and not 150"), "{refused}");
        assert_eq!(check(50, Some(100), ROW, None, Some(200)), Ok(200));
    }
}
