//! Changes the window of a sale, also while the sale is on: in MySQL first, because MySQL is the authority, then in
//! Redis.

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value as Json, json};
use tidegate_orders::{
    VoucherId,
    records::vouchers::{NO_END_MS, windows},
    scripts::{SaleCalendar, SaleWindow, ScheduleReply},
};

use super::VoucherStores;
use crate::change::{Ending, Next, Plan, Report};

/// The new end of a sale: a time, or never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewEnd {
    /// The sale ends at this time.
    At(Timestamp),
    /// The sale has no end.
    Never,
}

/// The request to change the window of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleRequest {
    /// The voucher whose window changes.
    pub voucher: VoucherId,
    /// The new begin; None: the begin stays.
    pub begin: Option<Timestamp>,
    /// The new end; None: the end stays.
    pub end: Option<NewEnd>,
}

/// The planned or actual result of changing the window of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleOutcome {
    /// The window can be changed.
    WouldSchedule,
    /// Both stores have the window now.
    Scheduled,
    /// Both stores had the window before.
    ScheduledBefore,
    /// The change is refused, for a reason.
    Refused,
}

/// The reason why the window of a sale is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleRefusal {
    /// MySQL has no row of the voucher.
    #[error("MySQL has no row of this voucher: check the id")]
    NoRow,
    /// The sale of the voucher has ended forever.
    #[error("the voucher is delisted: its sale has ended permanently. See docs/delist.md")]
    Delisted,
    /// The sale would end before it begins.
    #[error("the sale must begin before it ends: give --begin and --end")]
    EndsFirst,
    /// The sale moves to another partition.
    #[error(
        "the sale moves to another partition: run the command again when tidegate partitions change has ended"
    )]
    Moving,
}

/// The plan or the report of changing the window of a sale.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleState {
    /// The voucher whose window changes.
    pub voucher: VoucherId,
    /// The planned or actual result of the change.
    pub outcome: ScheduleOutcome,
    /// The reason why the change is refused; None: the change is not refused.
    pub reason: Option<ScheduleRefusal>,
    /// The window of the sale after the change.
    pub window: SaleWindow,
    /// The window in MySQL before the change.
    pub mysql_window: SaleWindow,
    /// The window in Redis before the change; None: the voucher is not loaded into Redis.
    pub redis_window: Option<SaleWindow>,
    #[serde(skip)]
    request: ScheduleRequest,
}

impl ScheduleState {
    /// Whether the sale is on in Redis now, and ends with the change.
    #[must_use]
    pub fn ends_now(&self, now: Timestamp) -> bool {
        self.redis_window.is_some_and(|redis| !redis.is_over(now)) && self.window.is_over(now)
    }

    fn refused(&self, reason: ScheduleRefusal) -> Self {
        Self { outcome: ScheduleOutcome::Refused, reason: Some(reason), ..self.clone() }
    }
}

impl Plan for ScheduleState {
    fn next(&self) -> Next {
        match self.outcome {
            ScheduleOutcome::Refused => Next::Refused,
            ScheduleOutcome::ScheduledBefore => Next::NothingToDo,
            _ if self.redis_window.is_none() => Next::Go,
            _ if self.ends_now(Timestamp::now()) => {
                Next::Ask(format!("End the sale of voucher {} now?", self.voucher))
            }
            _ => Next::Ask(format!("Change the window of voucher {}?", self.voucher)),
        }
    }
}

impl Report for ScheduleState {
    fn counts(&self) -> Json {
        json!({ "vouchers": u8::from(self.outcome == ScheduleOutcome::Scheduled) })
    }

    fn ending(&self) -> Ending {
        if self.reason.is_none() { Ending::Done } else { Ending::Refused }
    }
}

/// Reads the voucher in Redis and MySQL, plans the change of its window, and changes nothing.
///
/// # Errors
/// If a store does not answer.
pub async fn plan(stores: &VoucherStores, request: ScheduleRequest) -> anyhow::Result<ScheduleState> {
    let ScheduleRequest { voucher, begin, end } = request;
    let sale = stores.state(voucher).await?;
    let row = stores.row(voucher).await?;
    let mysql_window = row.as_ref().map(|row| row.window()).unwrap_or_default();
    let kept = mysql_window.with_milliseconds_of(&sale.window);
    let end = match end {
        Some(NewEnd::At(end)) => Some(end),
        Some(NewEnd::Never) => None,
        None => kept.end,
    };
    let window = SaleWindow { begin: begin.or(kept.begin), end };
    let is_delisted = sale.delisted_ms.or(row.as_ref().and_then(|row| row.delisted_ms)).is_some();
    let redis_window = sale.stock.map(|_| sale.window);
    let reason = match row {
        None => Some(ScheduleRefusal::NoRow),
        Some(_) if is_delisted => Some(ScheduleRefusal::Delisted),
        Some(_) if !window.can_open() => Some(ScheduleRefusal::EndsFirst),
        Some(_) => None,
    };
    let is_same = mysql_window.is_same_in_mysql(&window) && redis_window.is_none_or(|it| it.is_same(&window));
    let outcome = match (reason, is_same) {
        (Some(_), _) => ScheduleOutcome::Refused,
        (None, true) => ScheduleOutcome::ScheduledBefore,
        (None, false) => ScheduleOutcome::WouldSchedule,
    };
    Ok(ScheduleState { voucher, outcome, reason, window, mysql_window, redis_window, request })
}

/// Changes the window as planned: first in the row of MySQL, then in Redis. If the call fails, call it again to complete
/// the change.
///
/// # Errors
/// If a store does not answer, or if the sale moves to another partition.
pub async fn run(stores: &VoucherStores, plan: ScheduleState) -> anyhow::Result<ScheduleState> {
    let ScheduleState { voucher, request, .. } = plan;
    let begin_ms = request.begin.map(Timestamp::as_millisecond);
    let end_ms = request.end.map(|_| plan.window.ms().1.unwrap_or(NO_END_MS));
    let changed = windows::schedule(&stores.mysql, voucher, begin_ms, end_ms).await;
    if !changed.context("Failed to change the window in MySQL")? {
        return Ok(plan.refused(ScheduleRefusal::Delisted));
    }
    // Both may have changed since the plan: Redis gets the window that MySQL has now.
    let row = stores.row(voucher).await?.context("The row of the voucher has just vanished")?;
    let sale = stores.state(voucher).await?;
    let window = row.window().with_milliseconds_of(&plan.window);
    let redis_window = sale.stock.map(|_| sale.window);
    if redis_window.is_some() {
        let reply = SaleCalendar::of(&stores.redis).schedule(voucher, window, None).await;
        match reply.context("Failed to change the window in Redis; MySQL has it: run this command again")? {
            ScheduleReply::Scheduled | ScheduleReply::OtherWindow => {}
            ScheduleReply::Delisted => bail!("MySQL has the window, but the voucher is delisted in Redis"),
            ScheduleReply::Moving => bail!(
                "MySQL has the window, but the sale moves to another partition: run the command again when tidegate \
                 partitions change has ended"
            ),
        }
        let noted = windows::note(&stores.mysql, &row).await;
        noted.context("Failed to note in MySQL that Redis has the window; run this command again")?;
    }
    Ok(ScheduleState { outcome: ScheduleOutcome::Scheduled, window, redis_window, ..plan })
}
