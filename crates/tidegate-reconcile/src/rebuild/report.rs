//! The report of a rebuild.

use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_operations::change::{Ending, Report};
use tidegate_orders::order_id::counter::RaisedCounter;

use super::{RebuildPlan, VoucherReport};

/// The reason why a rebuild changed no voucher at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RebuildRefusal {
    /// Some live workers do not report their work in progress, because they are of an older version or have stopped
    /// working.
    #[error(
        "some workers do not report their work in progress, because they have an older version or hang: {}",
        workers.join(", ")
    )]
    SilentWorkers {
        /// The names of these workers.
        workers: Vec<String>,
    },
}

/// The results of rebuilding vouchers in Redis, so far.
#[derive(Clone, Debug, Serialize)]
pub struct RebuildReport {
    /// The result of each voucher that the rebuild has reached.
    pub vouchers: Vec<VoucherReport>,
    /// The number of vouchers that the rebuild has not reached.
    pub left: usize,
    /// The reason why no voucher was rebuilt. None: the rebuild was not refused.
    pub refusal: Option<RebuildRefusal>,
    /// The counters of order ids in Redis: the counter of today, and the counters of other days that the rebuild
    /// raised.
    pub counters: Vec<RaisedCounter>,
    /// The number of today's order ids that Redis or MySQL knows.
    pub known_today: u64,
}

impl RebuildReport {
    /// Creates the report of a rebuild that has not begun.
    #[must_use]
    pub fn new(plan: &RebuildPlan) -> Self {
        let (vouchers, counters) = (Vec::new(), Vec::new());
        Self { vouchers, left: plan.vouchers.len(), refusal: None, counters, known_today: 0 }
    }

    /// The number of order ids that Redis allocated today and that neither store knows. Most of these ids belong to
    /// refused requests, or were never used. Some may belong to lost orders. None: Redis lost the counter of ids.
    #[must_use]
    pub fn unknown_ids(&self) -> Option<u64> {
        // Counters of other days are in the list only if they were raised.
        let today = self.counters.iter().find(|counter| counter.before.is_some() && !counter.raised);
        let handed_out = u64::try_from(today?.now).ok()?;
        Some(handed_out.saturating_sub(self.known_today))
    }

    /// Adds counters that were read, and updates those that were read before.
    pub(super) fn note_counters(&mut self, counters: Vec<RaisedCounter>) {
        for counter in counters {
            match self.counters.iter_mut().find(|known| known.day == counter.day) {
                // Callers that continue to order move the counter meanwhile.
                Some(known) => (known.now, known.raised) = (counter.now, known.raised || counter.raised),
                None => self.counters.push(counter),
            }
        }
    }

    /// The number of vouchers that were rebuilt.
    #[must_use]
    pub fn rebuilt(&self) -> usize {
        self.vouchers.iter().filter(|voucher| voucher.not_rebuilt.is_none()).count()
    }
}

impl Report for RebuildReport {
    fn counts(&self) -> Json {
        let sum = |of: fn(&VoucherReport) -> u64| self.vouchers.iter().map(of).sum::<u64>();
        json!({
            "vouchers": self.rebuilt(),
            "live_orders": sum(|voucher| voucher.by_source.live.orders),
            "in_flight": sum(|voucher| voucher.by_source.in_flight.orders),
            "lost": sum(|voucher| voucher.by_source.lost.orders),
            "dead": sum(|voucher| voucher.by_source.dead.orders),
            "only_in_journal": sum(|voucher| voucher.by_source.only_in_journal.orders),
        })
    }

    fn ending(&self) -> Ending {
        let is_all = self.refusal.is_none() && self.rebuilt() == self.vouchers.len();
        match (is_all, self.rebuilt()) {
            (true, _) => Ending::Done,
            (false, 0) => Ending::Refused,
            (false, _) => Ending::Partly,
        }
    }

    fn torn(&self) -> &'static str {
        "the voucher whose rebuild was in progress is either rebuilt or unchanged"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown_ids(looks: &[(Option<i64>, i64, bool)], known_today: u64) -> Option<u64> {
        let (vouchers, counters) = (Vec::new(), Vec::new());
        let mut report = RebuildReport { vouchers, left: 0, refusal: None, counters, known_today };
        for (before, now, raised) in looks {
            let day = "2026:11:23".to_owned();
            report.note_counters(vec![RaisedCounter { day, before: *before, now: *now, raised: *raised }]);
        }
        report.unknown_ids()
    }

    #[test]
    fn a_counter_that_callers_move_meanwhile_has_survived() {
        assert_eq!(unknown_ids(&[(Some(10), 10, false), (Some(13), 13, false)], 12), Some(1));
        assert_eq!(unknown_ids(&[(Some(10), 40, true), (Some(43), 43, false)], 12), None, "it went back");
        assert_eq!(unknown_ids(&[(None, 0, false)], 0), None, "nobody knows what it was");
    }
}
