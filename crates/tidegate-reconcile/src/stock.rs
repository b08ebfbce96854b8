//! The right stock of a voucher in Redis, computed from the totals of both sides. Pure.

/// The totals of a voucher with a complete journal, in units. MySQL's values come from one snapshot, and Redis' values
/// from one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StockTotals {
    /// The units by which the stock in Redis is above the sum of its journal; below 0: under it.
    pub redis_drift: i64,
    /// The units that were loaded, added, taken and repaired, by the journal.
    pub loaded: i64,
    /// The units left in MySQL.
    pub mysql_stock: i64,
    /// The units that were loaded, by MySQL. None: MySQL does not know.
    pub initial: Option<i64>,
    /// The units of live rows in MySQL.
    pub live_units: i64,
    /// Whether an operator's change of the stock is in progress, or was made during the comparison.
    pub is_change_open: bool,
}

/// The move of a stock by a repair, as differences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockMove {
    /// Units that the sale gets by the journal; below 0, it loses them.
    pub loaded: i64,
    /// The units by which the stock was above the sum of its journal; they are taken back.
    pub drift: i64,
}

impl StockMove {
    /// The units by which the stock in Redis moves, without the repaired orders.
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
    /// The units by which MySQL's stock is above the loaded units less the live rows. None: the loaded units are
    /// unknown.
    #[must_use]
    pub fn mysql_drift(&self) -> Option<i64> {
        self.initial.map(|initial| self.mysql_stock - (initial - self.live_units))
    }

    /// Computes how the stock in Redis has to move. None: an operator's change of it is in progress.
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
