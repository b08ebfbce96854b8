//! Ends the unpaid orders of a voucher that are too old: each gets an `expired` event, and workers release what it held.
//!
//! There may be a million of them, so only a bounded number of events is in progress at a time, and what is done is counted.

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
    order_event::{EventFate, EventSender, PAGE, SentEvent},
};

/// Events that are in the stream and not recorded yet, at most.
const MOST_IN_PROGRESS: usize = 1_000;

/// Which orders are to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// Those of this voucher.
    pub voucher: VoucherId,
    /// Those that were written at least so long ago, in whole seconds.
    pub older_than: Duration,
    /// Why, in a word.
    pub reason: Option<EventText>,
    /// How long to wait for workers that record nothing.
    pub wait: Duration,
}

/// What would be ended.
#[derive(Clone, Debug, Serialize)]
pub struct ReleasePlan {
    /// The voucher.
    pub voucher: VoucherId,
    /// Orders that were written by then, by MySQL's clock.
    pub until: Timestamp,
    /// How many orders would be ended.
    pub orders: u64,
    /// Units that they hold.
    pub units: i64,
    /// When the oldest of them was written.
    pub oldest: Option<Timestamp>,
    /// Workers that live and would bury events, because they are of an older version: then nothing is appended.
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

/// Ends unpaid orders.
#[derive(Debug)]
pub struct ReleaseUnpaid<'a> {
    sender: EventSender<'a>,
    request: ReleaseRequest,
}

impl<'a> ReleaseUnpaid<'a> {
    /// With these stores, both of which are needed.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub async fn connect(stores: &'a Stores, request: ReleaseRequest) -> anyhow::Result<Self> {
        Ok(Self { sender: EventSender::connect(stores).await?, request })
    }

    /// Counts what would be ended. Whoever becomes so old later is not meant.
    ///
    /// # Errors
    /// When a store does not answer, or MySQL has neither the voucher nor an order of it.
    pub async fn plan(&self) -> anyhow::Result<ReleasePlan> {
        let ReleaseRequest { voucher, older_than, ref reason, .. } = self.request;
        let records = self.sender.records();
        let now_s = records.now_s().await.context("Failed to ask MySQL for the time")?;
        let age_s = i64::try_from(older_than.as_secs()).unwrap_or(i64::MAX);
        let until_s = now_s.saturating_sub(age_s).max(0);
        let found = records.unpaid().count(voucher, until_s).await;
        let found = found.context("Failed to count the unpaid orders in MySQL")?;
        if found.orders == 0
            && vouchers::find(records.mysql(), voucher).await?.is_none()
            && records.counts().of_voucher(voucher).await? == 0
        {
            let text = format!("MySQL has no voucher {voucher}, and no order of it: is its id right?");
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

    /// Appends the events page by page, and goes on while workers record them. An order that was paid meanwhile stays as it is.
    ///
    /// # Errors
    /// When a store does not answer. The report says what was appended by then, and what came of it.
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
            // Half of them are left to be recorded while the next page is read.
            self.wait(MOST_IN_PROGRESS / 2, report, job).await?;
        }
        // Whoever has waited in vain once only looks again.
        self.wait(if is_whole { 0 } else { usize::MAX }, report, job).await?;
        report.is_cut_short = !is_whole;
        let is_left = report.counts().not_recorded > 0 || !is_whole;
        if is_left && !job.is_stopped() {
            report.workers_live = self.sender.workers_live().await;
        }
        Ok(if is_left && job.is_stopped() { End::Stopped } else { End::Whole })
    }

    /// The next orders after this one, which becomes the last of them. An order that is paid or ended meanwhile is passed over.
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

    /// Workers record what was appended: where they did not in time, nothing more is.
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

/// Nobody waits any more for what became of it.
fn is_settled(sent: &SentEvent) -> bool {
    !matches!(sent.fate, EventFate::NotRecorded)
}
