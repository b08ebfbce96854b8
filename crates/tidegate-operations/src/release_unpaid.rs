//! Ends the unpaid orders of a voucher that are too old: each gets an `expired` event, and workers give back what it held.
//!
//! There may be a million of them, so only a bounded number of events is in hand at a time, and what is done is counted.

mod orders;
mod report;

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_orders::{
    EventKind, VoucherId,
    event::{Event, EventText},
    vouchers,
};

pub use report::{ReleaseCounts, ReleaseReport};

use crate::{
    change::{End, InvalidInput, Job, Next, Plan},
    order_event::{EventFate, EventSender, PAGE, SentEvent},
    settings::SystemSettings,
    text::counted,
    within::with_hint,
};
use orders::{UnpaidOrder, UnpaidOrders, UnpaidPages};

/// Events that are in the stream and not recorded yet, at most.
const MOST_IN_HAND: usize = 1_000;

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
    fn event(&self, unpaid: &UnpaidOrder) -> Event {
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
    /// With the stores of these settings, both of which are needed.
    ///
    /// # Errors
    /// When one of them cannot be reached.
    pub async fn connect(settings: &'a SystemSettings, request: ReleaseRequest) -> anyhow::Result<Self> {
        Ok(Self { sender: EventSender::connect(settings).await?, request })
    }

    /// Counts what would be ended. Whoever becomes so old later is not meant.
    ///
    /// # Errors
    /// When a store does not answer, or MySQL has neither the voucher nor an order of it.
    pub async fn plan(&self) -> anyhow::Result<ReleasePlan> {
        let ReleaseRequest { voucher, older_than, ref reason, .. } = self.request;
        let orders = UnpaidOrders::older_than(&self.sender.mysql, voucher, older_than).await;
        let orders = orders.context("Failed to ask MySQL for the time")?;
        let found = orders
            .count()
            .await
            .map_err(|error| with_hint(error.into()))
            .context("Failed to count the unpaid orders in MySQL")?;
        if found.orders == 0
            && vouchers::find(&self.sender.mysql, voucher).await?.is_none()
            && vouchers::count_orders(&self.sender.mysql, voucher).await? == 0
        {
            let text = format!("MySQL has no voucher {voucher}, and no order of it: is its id right?");
            return Err(InvalidInput(text).into());
        }
        Ok(ReleasePlan {
            voucher,
            until: orders.until(),
            orders: found.orders,
            units: found.units,
            oldest: found.oldest,
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
        let orders = UnpaidOrders::until_moment(&self.sender.mysql, plan.voucher, plan.until);
        let mut pages = orders.pages();
        let mut is_whole = true;
        while let Some(page) = self.next_page(&mut pages).await? {
            if job.is_stopped() || !self.has_room(report) {
                is_whole = false;
                break;
            }
            self.append(plan, &page, report).await?;
            // Half of them are left to be recorded while the next page is read.
            self.wait(MOST_IN_HAND / 2, report, job).await?;
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

    async fn next_page(&self, pages: &mut UnpaidPages<'_>) -> anyhow::Result<Option<Vec<UnpaidOrder>>> {
        let page = pages.next(PAGE).await.context("Failed to read the unpaid orders in MySQL")?;
        Ok((!page.is_empty()).then_some(page))
    }

    /// Workers record what was appended: where they did not in time, nothing more is.
    fn has_room(&self, report: &ReleaseReport) -> bool {
        report.in_hand.len() <= MOST_IN_HAND / 2
    }

    async fn append(
        &self,
        plan: &ReleasePlan,
        page: &[UnpaidOrder],
        report: &mut ReleaseReport,
    ) -> anyhow::Result<()> {
        let events: Vec<Event> = page.iter().map(|unpaid| plan.event(unpaid)).collect();
        let first = report.in_hand.len();
        report.in_hand.extend(page.iter().map(|unpaid| SentEvent::new(unpaid.order)));
        let sent = &mut report.in_hand[first..];
        self.sender.append(&events.iter().collect::<Vec<_>>(), sent).await
    }

    async fn wait(&self, open: usize, report: &mut ReleaseReport, job: &Job) -> anyhow::Result<()> {
        let waited = self.sender.wait(&mut report.in_hand, open, self.request.wait, job).await;
        report.settle();
        waited
    }
}

/// Nobody waits any more for what became of it.
fn is_settled(sent: &SentEvent) -> bool {
    !matches!(sent.fate, EventFate::NotRecorded)
}
