//! What the stock of a voucher in Redis has to be, by the totals of both sides. Pure.

/// The totals of a voucher with a complete journal, in units. What MySQL says is of one snapshot, what Redis says of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockTotals {
    /// By how much the stock in Redis is above the sum of its journal; below 0: under it.
    pub redis_drift: i64,
    /// What was loaded, added, taken and repaired, by the journal.
    pub loaded: i64,
    /// Units left by MySQL.
    pub mysql_stock: i64,
    /// Units that were loaded, by MySQL; None: nobody knows.
    pub initial: Option<i64>,
    /// Units of its live rows.
    pub live_units: i64,
    /// An operator's change of the stock is not at its end, or was made during the comparison.
    pub is_change_open: bool,
}

/// How a repair moves a stock: by differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockMove {
    /// Units that the sale gets by the journal; below 0: loses.
    pub loaded: i64,
    /// By how much the stock was above the sum of its journal: taken back.
    pub drift: i64,
}

impl StockMove {
    /// By how much the stock in Redis moves, but for the orders that are repaired.
    #[must_use]
    pub const fn units(self) -> i64 {
        self.loaded.saturating_sub(self.drift)
    }

    /// Whether there is nothing to move and nothing to note.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

impl StockTotals {
    /// By how much the stock in MySQL is above what was loaded less its live rows; None: nobody knows what was loaded.
    #[must_use]
    pub fn mysql_drift(&self) -> Option<i64> {
        self.initial.map(|initial| self.mysql_stock - (initial - self.live_units))
    }

    /// How the stock in Redis has to move. None: not now, an operator's change of it is not at its end.
    ///
    /// Never is more for sale than MySQL has. Units that somebody put into both stocks by hand stay for sale; those that are in
    /// one stock only do not. What is right by this stays as it is: the same again is no move.
    #[must_use]
    pub fn stock_move(&self) -> Option<StockMove> {
        let target = match (self.initial, self.mysql_drift()) {
            (Some(initial), Some(drift)) if drift >= 0 => {
                (self.loaded + self.redis_drift.max(0)).clamp(initial, initial + drift)
            }
            (Some(initial), Some(drift)) => initial + drift,
            // Perhaps not all of it was ever meant to be sold through Redis: it is not raised.
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

    /// What the totals say after their own move was made.
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
        for (redis_drift, mismatch) in range.iter().flat_map(|drift| range.map(|mismatch| (*drift, mismatch))) {
            for (loaded, initial) in range.iter().flat_map(|it| [(100 + it, Some(100)), (100 + it, None)]) {
                let mysql_stock = 70 + mismatch;
                let totals = StockTotals { redis_drift, loaded, mysql_stock, initial, ..totals() };
                let then = after(totals);
                assert!(then.stock_move().unwrap().is_nothing(), "{totals:?}");
                // What is for sale, with what is sold, is never more than MySQL has.
                let most = mysql_stock + totals.live_units;
                assert!(then.loaded <= most.max(100 + mismatch.max(0)), "{totals:?}");
            }
        }
    }
}
