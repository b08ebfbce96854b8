//! Carries changes of sale windows from MySQL to Redis.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use jiff::{SignedDuration, Timestamp};
use sqlx::MySqlPool;
use tidegate_orders::{
    RedisStore, VoucherId,
    records::vouchers::windows::{self, ChangedWindow},
    scripts::{SaleCalendar, SaleWindow, ScheduleReply},
};
use tidegate_stream::server_time_ms;
use tokio::time::error::Elapsed;

use crate::within::in_time;

/// The largest age of an end in MySQL that is carried. A shop that ends a sale sets a time near the present; an older
/// time is a default or an error, and must end no sale.
const OLDEST_END: SignedDuration = SignedDuration::from_hours(24);

/// The reason why a window that changed in MySQL is not carried to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum NotCarried {
    /// The window in Redis changed, too.
    #[error("its window in Redis changed, too")]
    ChangedInRedis,
    /// The sale would end before it begins.
    #[error("its end in MySQL is before its begin")]
    EndsFirst,
    /// The end lies far in the past.
    #[error("its end in MySQL lies more than a day in the past")]
    OldEnd,
}

/// A window that changed in MySQL, with what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowChange {
    /// The id of the voucher.
    pub voucher: VoucherId,
    /// The window of the voucher in MySQL.
    pub window: SaleWindow,
    /// The reason why the window is not carried; None: Redis has the window now.
    pub refusal: Option<NotCarried>,
}

/// The result of one pass over changed windows.
#[derive(Debug, Default)]
pub struct CarryPass {
    /// The carried windows, and the windows that are refused for a new reason.
    pub changes: Vec<WindowChange>,
    /// The first error of a voucher. None: no voucher failed.
    pub failed: Option<anyhow::Error>,
}

/// The task that carries changes of windows from MySQL to Redis. Two processes may run it at the same time.
#[derive(Debug)]
pub struct WindowCarrier {
    redis: RedisStore,
    mysql: MySqlPool,
    calendar: SaleCalendar,
    within: Duration,
    /// The refusals that the previous pass returned, so that each is returned once.
    told: BTreeSet<(VoucherId, NotCarried)>,
}

impl WindowCarrier {
    /// Creates the task for one partition. MySQL has the time `within` for each voucher.
    #[must_use]
    pub fn new(redis: RedisStore, mysql: MySqlPool, within: Duration) -> Self {
        let calendar = SaleCalendar::of(&redis);
        Self { redis, mysql, calendar, within, told: BTreeSet::new() }
    }

    /// Carries the windows that changed in MySQL since Redis last got them. If one voucher fails, the pass continues with
    /// the next, unless a store does not answer.
    ///
    /// # Errors
    /// Fails if a store cannot be read. The next pass continues.
    pub async fn pass(&mut self) -> anyhow::Result<CarryPass> {
        let partition = self.redis.keys().partition();
        let changed = async { Ok(windows::changed(&self.mysql, partition).await?) };
        let changed = in_time("MySQL", self.within, changed).await;
        let changed = changed.context("Failed to read the changed windows in MySQL")?;
        let vouchers: Vec<VoucherId> = changed.iter().map(|change| change.row.voucher).collect();
        let mut pass = CarryPass::default();
        if vouchers.is_empty() {
            self.told.clear();
            return Ok(pass);
        }
        let now_ms = i64::try_from(server_time_ms(self.redis.pool()).await?)?;
        let now = Timestamp::from_millisecond(now_ms)?;
        let sold = self.calendar.read_windows(&vouchers).await.context("Failed to read windows in Redis")?;
        let mut refused = BTreeSet::new();
        for change in &changed {
            // A voucher that Redis does not sell gets its window when it is loaded.
            let Some(in_redis) = sold.get(&change.row.voucher) else { continue };
            match in_time("a store", self.within, self.settle(change, *in_redis, now)).await {
                Ok(Some(settled)) => {
                    let refusal = settled.refusal.map(|reason| (settled.voucher, reason));
                    refused.extend(refusal);
                    if refusal.is_none_or(|refusal| !self.told.contains(&refusal)) {
                        pass.changes.push(settled);
                    }
                }
                Ok(None) => {}
                Err(error) => {
                    // The other vouchers would wait for the same store, one after the other.
                    let is_away = error.is::<Elapsed>();
                    let error = error
                        .context(format!("Failed to carry the window of voucher {}", change.row.voucher));
                    pass.failed.get_or_insert(error);
                    if is_away {
                        break;
                    }
                }
            }
        }
        self.told = refused;
        Ok(pass)
    }

    /// Carries, notes or refuses a changed window. Returns None if Redis has the window already, or if another program
    /// changed the sale since it was read.
    async fn settle(
        &self,
        change: &ChangedWindow,
        in_redis: SaleWindow,
        now: Timestamp,
    ) -> anyhow::Result<Option<WindowChange>> {
        let (voucher, window) = (change.row.voucher, change.row.window());
        let refusal = match decide(in_redis, change.carried, window, now) {
            Decision::Agree => {
                windows::note(&self.mysql, &change.row).await?;
                return Ok(None);
            }
            Decision::Carry(window) => {
                if !self.carry(change, in_redis, window).await? {
                    return Ok(None);
                }
                None
            }
            Decision::Refuse(reason) => Some(reason),
        };
        Ok(Some(WindowChange { voucher, window, refusal }))
    }

    /// Changes the window in Redis, unless the sale has another window by now. Returns whether Redis has it.
    async fn carry(
        &self,
        change: &ChangedWindow,
        in_redis: SaleWindow,
        window: SaleWindow,
    ) -> anyhow::Result<bool> {
        let reply = self.calendar.schedule(change.row.voucher, window, Some(in_redis)).await;
        let is_carried = reply.context("Failed to change a window in Redis")? == ScheduleReply::Scheduled;
        if is_carried {
            let noted = windows::note(&self.mysql, &change.row).await;
            noted.context("Failed to note the window in MySQL")?;
        }
        Ok(is_carried)
    }
}

/// What becomes of a window that changed in MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Redis has the window already.
    Agree,
    /// Redis gets this window.
    Carry(SaleWindow),
    /// Redis keeps its window.
    Refuse(NotCarried),
}

/// Decides about a window that changed in MySQL from `carried` to `window`.
fn decide(in_redis: SaleWindow, carried: SaleWindow, window: SaleWindow, now: Timestamp) -> Decision {
    if !in_redis.differs_from(&window, now) {
        return Decision::Agree;
    }
    if in_redis.differs_from(&carried, now) {
        return Decision::Refuse(NotCarried::ChangedInRedis);
    }
    if window.begin.zip(window.end).is_some_and(|(begin, end)| end < begin) {
        return Decision::Refuse(NotCarried::EndsFirst);
    }
    if window.end.is_some_and(|end| end < now - OLDEST_END) {
        return Decision::Refuse(NotCarried::OldEnd);
    }
    // A sale that ends in the second of its begin has no begin that Redis accepts.
    let window = if window.can_open() { window } else { SaleWindow { begin: None, ..window } };
    Decision::Carry(window.with_milliseconds_of(&in_redis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_carried_unless_redis_changed_too_or_the_window_ends_no_real_sale() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let at = |hours: i64| Some(now + SignedDuration::from_hours(hours));
        let window = |begin, end| SaleWindow { begin, end };
        let carried = window(at(-1), at(2));
        let decided = |in_redis, new| decide(in_redis, carried, new, now);
        assert_eq!(decided(carried, window(at(-1), at(3))), Decision::Carry(window(at(-1), at(3))));
        assert_eq!(
            decided(carried, window(at(-1), at(0))),
            Decision::Carry(window(at(-1), at(0))),
            "ends now"
        );
        let at_once = SaleWindow { begin: None, end: at(0) };
        assert_eq!(decided(carried, window(at(0), at(0))), Decision::Carry(at_once), "it began this second");
        assert_eq!(decided(carried, SaleWindow::default()), Decision::Carry(SaleWindow::default()));
        assert_eq!(decided(window(at(-2), at(3)), window(at(-1), at(3))), Decision::Agree);
        let refused = |in_redis, new| match decided(in_redis, new) {
            Decision::Refuse(reason) => Some(reason),
            _ => None,
        };
        assert_eq!(refused(window(at(-1), at(4)), window(at(-1), at(3))), Some(NotCarried::ChangedInRedis));
        assert_eq!(refused(carried, window(at(-1), at(-30_000))), Some(NotCarried::EndsFirst));
        assert_eq!(refused(carried, window(at(-40_000), at(-30_000))), Some(NotCarried::OldEnd));
    }
}
