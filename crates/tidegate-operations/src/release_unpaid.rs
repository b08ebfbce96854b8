//! Ends the unpaid orders of a voucher that are too old: each gets an `expired` event, and workers release its units.
//!
//! There may be a million such orders. So the number of events in progress is bounded, and results are only counted.

mod report;

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_compare::{Job, text::counted};
use tidegate_orders::{
    EventKind, VoucherId,
    event::{Event, EventText},
    records::{UnpaidKey, UnpaidLive, vouchers},
};

pub use report::{ReleaseCounts, ReleaseReport};

use crate::{
    Stores,
    change::{End, InvalidInput, Next, Plan},
    order_event::{EventSender, PAGE, SentEvent, SentEventOutcome},
};

/// The events that are in the stream and not recorded yet, at most.
const MOST_IN_PROGRESS: usize = 1_000;

/// The request to cancel the unpaid orders of a voucher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The voucher whose unpaid orders are cancelled.
    pub voucher: VoucherId,
    /// The minimum time since the orders were written, in whole seconds.
    pub older_than: Duration,
    /// The reason that is stored in the events, in one word.
    pub reason: Option<EventText>,
    /// The longest time to wait without progress, while workers record none of the events.
    pub wait: Duration,
}

/// The plan to cancel the unpaid orders of a voucher.
#[derive(Clone, Debug, Serialize)]
pub struct ReleasePlan {
    /// The voucher whose unpaid orders would be cancelled.
    pub voucher: VoucherId,
    /// The time by the clock of MySQL: only unpaid orders that were written before this time would be cancelled.
    pub until: Timestamp,
    /// The number of unpaid orders that would be cancelled.
    pub orders: u64,
    /// The number of units that the unpaid orders hold.
    pub units: i64,
    /// The time when the oldest unpaid order was written.
    pub oldest: Option<Timestamp>,
    /// The living workers that have an old version, and so would move events to the dead letters. If there are any, the
    /// command appends no event.
    pub older_workers: Vec<String>,
    #[serde(skip)]
    reason: Option<EventText>,
}

impl Plan for ReleasePlan {
    fn next(&self) -> Next {
        if self.orders == 0 {
            return Next::NothingToDo;
        }
        if !self.older_workers.is_empty() {
            return Next::Refused;
        }
        let (orders, units) = (counted(self.orders, "unpaid order"), counted(self.units, "unit"));
        Next::Ask(format!("End {orders} of voucher {}, and sell {units} again?", self.voucher))
    }
}

impl ReleasePlan {
    fn event(&self, unpaid: &UnpaidLive) -> Event {
        Event {
            kind: EventKind::Expired,
            order: unpaid.order,
            user: unpaid.user,
            voucher: self.voucher,
            reference: None,
            payment: None,
            reason: self.reason.clone(),
        }
    }
}

/// The operation that cancels the unpaid orders of a voucher.
#[derive(Debug)]
pub struct ReleaseUnpaid<'a> {
    sender: EventSender<'a>,
    request: ReleaseRequest,
}

impl<'a> ReleaseUnpaid<'a> {
    /// Connects to Redis and MySQL of the partition.
    ///
    /// # Errors
    /// If a store cannot be reached.
    pub async fn connect(stores: &'a Stores, request: ReleaseRequest) -> anyhow::Result<Self> {
        Ok(Self { sender: EventSender::connect(stores).await?, request })
    }

    /// Counts the unpaid orders that would be cancelled, without orders that become old enough later.
    ///
    /// # Errors
    /// If a store does not answer, or MySQL has neither the voucher nor an order of it.
    pub async fn plan(&self) -> anyhow::Result<ReleasePlan> {
        let ReleaseRequest { voucher, older_than, ref reason, .. } = self.request;
        let records = self.sender.records();
        let now_s = records.now_s().await.context("Failed to read the clock of MySQL")?;
        let age_s = i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX);
        let until_s = now_s.saturating_sub(age_s).max(0);
        let found = records.unpaid().count(voucher, until_s).await;
        let found = found.context("Failed to count the unpaid orders in MySQL")?;
        if found.orders == 0
            && vouchers::find(records.mysql(), voucher).await?.is_none()
            && records.counts().of_voucher(voucher).await? == 0
        {
            let text = format!("MySQL has neither voucher {voucher} nor an order of it: check the id");
            return Err(InvalidInput(text).into());
        }
        Ok(ReleasePlan {
            voucher,
            until: Timestamp::from_second(until_s).unwrap_or(Timestamp::MIN),
            orders: found.orders,
            units: found.units,
            oldest: found.oldest_s.and_then(|s| Timestamp::from_second(s).ok()),
            older_workers: self.sender.older_workers().await?,
            reason: reason.clone(),
        })
    }

    /// Appends events that cancel the orders, page by page, and waits while workers record the events. An order that
    /// was paid in the meantime does not change.
    ///
    /// # Errors
    /// If a store does not answer. The report holds what was appended by then, and the outcomes.
    pub async fn run(
        &self,
        plan: &ReleasePlan,
        report: &mut ReleaseReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        job.progress.expect(plan.orders, "events recorded");
        let (mut after, mut is_whole) = ((0, 0), true);
        while let Some(page) = self.next_page(plan, &mut after).await? {
            if job.is_stopped() || !self.has_room(report) {
                is_whole = false;
                break;
            }
            self.append(plan, &page, report).await?;
            // Half of the events stay unrecorded while the next page is read.
            self.wait(MOST_IN_PROGRESS / 2, report, job).await?;
        }
        // If workers recorded nothing during one wait, the command does not wait again, but only reads once more.
        self.wait(if is_whole { 0 } else { usize::MAX }, report, job).await?;
        report.is_cut_short = !is_whole;
        let is_left = report.counts().not_recorded > 0 || !is_whole;
        if is_left && !job.is_stopped() {
            report.workers_live = self.sender.workers_live().await;
        }
        Ok(if is_left && job.is_stopped() { End::Stopped } else { End::Whole })
    }

    /// Reads the next orders after this key, which becomes that of the last one. Orders that were paid or ended in the
    /// meantime are left out.
    async fn next_page(
        &self,
        plan: &ReleasePlan,
        after: &mut UnpaidKey,
    ) -> anyhow::Result<Option<Vec<UnpaidLive>>> {
        let until_s = plan.until.as_second();
        let page = self.sender.records().unpaid().page_after((plan.voucher, until_s), *after, PAGE).await;
        let page = page.context("Failed to read the unpaid orders in MySQL")?;
        let Some(last) = page.last() else { return Ok(None) };
        *after = last.key;
        Ok(Some(page))
    }

    /// Returns whether workers have recorded enough events to append more.
    fn has_room(&self, report: &ReleaseReport) -> bool {
        report.in_progress.len() <= MOST_IN_PROGRESS / 2
    }

    async fn append(
        &self,
        plan: &ReleasePlan,
        page: &[UnpaidLive],
        report: &mut ReleaseReport,
    ) -> anyhow::Result<()> {
        let events: Vec<Event> = page.iter().map(|unpaid| plan.event(unpaid)).collect();
        let first = report.in_progress.len();
        report.in_progress.extend(page.iter().map(|unpaid| SentEvent::new(unpaid.order)));
        let sent = &mut report.in_progress[first..];
        self.sender.append(&events.iter().collect::<Vec<_>>(), sent).await
    }

    async fn wait(&self, open: usize, report: &mut ReleaseReport, job: &Job) -> anyhow::Result<()> {
        let waited = self.sender.wait(&mut report.in_progress, open, self.request.wait, job).await;
        report.settle();
        waited
    }
}

/// Returns whether the command no longer waits for the outcome of the event.
fn is_settled(sent: &SentEvent) -> bool {
    !matches!(sent.fate, SentEventOutcome::NotRecorded)
}
