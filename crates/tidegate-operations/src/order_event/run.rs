//! Appends the events page by page, then waits for all of them together.

use tidegate_compare::Job;
use tidegate_orders::event::Event;

use super::{OrderEventPlan, OrderEventReport, OrderEvents, sender::PAGE};
use crate::change::End;

impl OrderEvents<'_> {
    /// Appends the planned events, waits until workers have recorded the events, and writes each outcome to `report` as
    /// soon as it is known.
    ///
    /// # Errors
    /// If a store does not answer. The report holds which events are in the stream by then.
    pub async fn run(
        &self,
        plan: &OrderEventPlan,
        report: &mut OrderEventReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let events: Vec<&Event> =
            plan.orders.iter().filter_map(|planned| planned.to_append.as_ref()).collect();
        job.progress.expect(events.len() as u64, "events recorded");
        for (events, sent) in events.chunks(PAGE).zip(report.orders.chunks_mut(PAGE)) {
            if job.is_stopped() {
                break;
            }
            self.sender.append(events, sent).await?;
        }
        self.sender.wait(&mut report.orders, 0, report.request.wait, job).await?;
        let is_left = report.orders.iter().any(|sent| sent.fate.is_open());
        if is_left && !job.is_stopped() {
            report.workers_live = self.sender.workers_live().await;
        }
        Ok(if is_left && job.is_stopped() { End::Stopped } else { End::Whole })
    }
}
