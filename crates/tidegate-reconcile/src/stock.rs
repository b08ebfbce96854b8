//! The right stock of a voucher in Redis, computed from the totals in Redis and MySQL. Pure.

/// The stocks and the sums of a voucher's units, which show the right stock in Redis if the voucher's journal (the
/// Redis hash of orders) is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockTotals {
    /// The stock in Redis minus the sum of the voucher's journal, the Redis hash of orders.
    pub redis_drift: i64,
    /// The units that were ever loaded, added, taken or repaired for the sale, by the voucher's journal in Redis.
    pub loaded: i64,
    /// The units left in MySQL.
    pub mysql_stock: i64,
    /// The units that were ever loaded for the sale, according to MySQL. None: MySQL does not know this number.
    pub initial: Option<i64>,
    /// The units of orders in MySQL that are not cancelled or refunded.
    pub live_units: i64,
    /// Whether an operator's change of the stock is in progress, or was made during the comparison.
    pub is_change_open: bool,
}

/// The correction that a repair makes to the stock of a voucher in Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockMove {
    /// The units that the repair adds to the journal's sum of loaded units, so that the sum matches MySQL. Negative:
    /// the repair deducts units.
    pub loaded: i64,
    /// The stock in Redis minus the sum of the voucher's journal (the Redis hash of orders). The repair deducts this
    /// number from the stock.
    pub drift: i64,
}

impl StockMove {
    /// The units that the correction adds to the stock in Redis. Negative: the correction deducts units. Units of
    /// repaired orders are not included.
    #[must_use]
    pub const fn units(self) -> i64 {
        self.loaded.saturating_sub(self.drift)
    }

    /// Whether the stock in Redis is right, so that it needs no correction.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl StockTotals {
    /// The stock in MySQL minus the correct stock: the units ever loaded, minus the units of orders that are not
    /// cancelled. None: the loaded units are unknown.
    #[must_use]
    pub fn mysql_drift(&self) -> Option<i64> {
        self.initial.map(|initial| self.mysql_stock - (initial - self.live_units))
    }

    /// Calculates the correction of the stock in Redis. None: an operator is changing the stock now.
    ///
    /// The result never puts more units on sale than MySQL has. Units that an operator manually added to both stocks
    /// stay on sale; units that were added to only one stock do not. A correct stock stays as it is, so a second call
    /// moves nothing.
    #[must_use]
    pub fn stock_move(&self) -> Option<StockMove> {
        let target = match (self.initial, self.mysql_drift()) {
            (Some(initial), Some(drift)) if drift >= 0 => {
                (self.loaded + self.redis_drift.max(0)).clamp(initial, initial + drift)
            }
            (Some(initial), Some(drift)) => initial + drift,
            // Perhaps not all units were meant to be sold through Redis, so the stock is not raised.
            _ => self.loaded.min(self.mysql_stock + self.live_units),
        };
        (!self.is_change_open).then(|| StockMove { loaded: target - self.loaded, drift: self.redis_drift })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals() -> StockTotals {
        StockTotals {
            redis_drift: 0,
            loaded: 100,
            mysql_stock: 70,
            initial: Some(100),
            live_units: 30,
            is_change_open: false,
        }
    }

    /// The totals after their own move was made.
    fn after(totals: StockTotals) -> StockTotals {
        let moved = totals.stock_move().unwrap();
        StockTotals { loaded: totals.loaded + moved.loaded, redis_drift: 0, ..totals }
    }

    #[test]
    fn the_stock_moves_by_what_is_apart_and_never_above_what_mysql_has() {
        for (case, totals, loaded, units) in [
            ("all agree", totals(), 0, 0),
            ("a hand raised the stock in Redis", StockTotals { redis_drift: 7, ..totals() }, 0, -7),
            ("a hand lowered it", StockTotals { redis_drift: -7, ..totals() }, 0, 7),
            ("a hand raised both", StockTotals { redis_drift: 7, mysql_stock: 77, ..totals() }, 7, 0),
            ("a hand raised MySQL more", StockTotals { redis_drift: 7, mysql_stock: 80, ..totals() }, 7, 0),
            ("a hand raised MySQL less", StockTotals { redis_drift: 7, mysql_stock: 75, ..totals() }, 5, -2),
            ("a hand raised MySQL only", StockTotals { mysql_stock: 75, ..totals() }, 0, 0),
            ("a hand lowered MySQL", StockTotals { mysql_stock: 60, ..totals() }, -10, -10),
            ("a hand lowered both", StockTotals { redis_drift: -10, mysql_stock: 60, ..totals() }, -10, 0),
            ("Redis lost an addition", StockTotals { loaded: 90, ..totals() }, 10, 10),
            ("it had been made by hand", StockTotals { loaded: 90, redis_drift: 10, ..totals() }, 10, 0),
            ("nobody knows what was loaded", StockTotals { initial: None, loaded: 95, ..totals() }, 0, 0),
        ] {
            let moved = totals.stock_move().unwrap();
            assert_eq!((moved.loaded, moved.units()), (loaded, units), "{case}");
            assert!(after(totals).stock_move().unwrap().is_nothing(), "{case}: the same again");
        }
    }

    #[test]
    fn nothing_moves_while_an_operator_changes_the_stock() {
        assert_eq!(StockTotals { redis_drift: 7, is_change_open: true, ..totals() }.stock_move(), None);
    }

    #[test]
    fn no_books_lead_to_a_second_move() {
        let range = [-3, -1, 0, 1, 3];
        for (redis_drift, mismatch) in range.iter().flat_map(|drift| range.map(|mismatch| (*drift, mismatch)))
        {
            for (loaded, initial) in range.iter().flat_map(|it| [(100 + it, Some(100)), (100 + it, None)]) {
                let mysql_stock = 70 + mismatch;
                let totals = StockTotals { redis_drift, loaded, mysql_stock, initial, ..totals() };
                let then = after(totals);
                assert!(then.stock_move().unwrap().is_nothing(), "{totals:?}");
                // Units on sale and sold units together never exceed MySQL's.
                let most = mysql_stock + totals.live_units;
                assert!(then.loaded <= most.max(100 + mismatch.max(0)), "{totals:?}");
            }
        }
    }
}
