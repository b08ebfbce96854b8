//! The task that compares both stores now and then, in one worker of a fleet at a time, and too slowly to disturb a
//! sale. If the stores agree, it also compacts final orders in the journals. The partitions of a process take turns,
//! because each comparison takes about 25 MB.

use std::{sync::Arc, time::Duration};

use tidegate_compare::{
    CompareError, Comparison, ComparisonReport, ComparisonRequest, Job, Pace, Silent,
    reconciled::{DifferenceKind, Reconciled},
    text::error_chain,
};
use tidegate_operations::{Next, Plan, Report, Stores, SystemSettings};
use tidegate_orders::{RedisStore, VoucherId, records::vouchers::windows, scripts::SaleCalendar};
use tidegate_reconcile::{
    KeyRemover, MOST_REPAIRED, Repair, RepairPlan, RepairReport, UseSweeper,
    compact::{CompactReport, Compactor},
    lease::{self, OF_WORKER, TakenLease},
    note_journals, plan_repair,
};
use tidegate_stream::{StreamError, server_time_ms};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::{NextRun, Parts, ProcessSettings, Routine, Run, Task, on_heap};

/// The longest pause between two checks whether a comparison is due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The longest pause after a comparison that failed.
const REST: Duration = Duration::from_secs(120);
/// The step of the cut-off after which journals are read again: the smaller of this time and this part of
/// `compact_after`.
const COMPACT_STEP: Duration = Duration::from_secs(3600);
const COMPACT_PART: u32 = 24;
/// The number of failed runs in a row before a warning.
const FAILURES_BEFORE_WARNING: u32 = 3;

/// The background task that compares Redis with MySQL, repairs differences, and removes notes of finished orders from
/// the journals.
pub struct Reconciler {
    redis: RedisStore,
    comparison: Comparison,
    remover: KeyRemover,
    compactor: Compactor,
    sweeper: UseSweeper,
    settings: SystemSettings,
    who: String,
    began: Instant,
    turns: Arc<Semaphore>,
    /// The differences in the last line of the log.
    told: Vec<(DifferenceKind, u64)>,
}

impl Reconciler {
    /// Creates the task that compares Redis with MySQL periodically. `turns` has a single permit, so that only one
    /// comparison runs in a process at a time.
    pub fn new(
        ProcessSettings { system: settings, worker, .. }: &ProcessSettings,
        parts: &Parts,
        turns: Arc<Semaphore>,
    ) -> Self {
        let redis = parts.redis.clone();
        let request = ComparisonRequest { vouchers: Vec::new(), since_ms: None, pace: Pace::Quarter };
        let (who, stores) = (format!("{OF_WORKER}{}", worker.name), (redis.clone(), parts.sessions.pool(1)));
        let remover = KeyRemover::new(stores.clone(), settings, who.clone());
        let comparison =
            Comparison::new(stores.clone(), request).reading_causally(parts.sessions.causal_reads());
        let after = (settings.reconcile.compact_after, Pace::Quarter);
        let compactor = Compactor::new(stores, after);
        let sweeper = UseSweeper::new(redis.clone(), Pace::Quarter);
        let (settings, began, told) = (settings.clone(), Instant::now(), Vec::new());
        Self { redis, comparison, remover, compactor, sweeper, settings, who, began, turns, told }
    }

    /// Compares if it is time and no other process does. None: not now.
    async fn look_if_due(&self) -> Result<Option<Reconciled>, CompareError> {
        if !self.is_due().await? {
            return Ok(None);
        }
        // The turn comes before the lease, so that another process can compare this partition while this one waits.
        let Some(_turn) = self.turn().await else { return Ok(None) };
        let TakenLease::Held(lease) = lease::take(&self.redis, &self.who).await? else {
            return Ok(None);
        };
        let job = Job { stop: lease.lost().clone(), progress: Box::new(Silent) };
        // Another comparison may have ended meanwhile.
        let found = match self.is_due().await {
            Ok(true) => on_heap(|| self.look_and_repair(&job)).await,
            _ => Ok(None),
        };
        lease.end().await;
        found
    }

    async fn look_and_repair(&self, job: &Job) -> Result<Option<Reconciled>, CompareError> {
        let (report, plan) = match on_heap(|| self.compare(job)).await {
            Err(CompareError::Stopped) => return Ok(None),
            looked => looked?,
        };
        let before = Reconciled::read(&self.redis).await?;
        let now = report.outcome(before.clone());
        now.write(&self.redis).await?;
        if let Some(plan) = plan {
            on_heap(|| self.repair(&plan, job)).await;
            on_heap(|| self.keep_repaired(before, job)).await;
        }
        on_heap(|| self.note_journals(&report)).await;
        on_heap(|| self.note_windows(&report)).await;
        on_heap(|| self.remove_delisted(&report)).await;
        on_heap(|| self.sweep(&report)).await;
        // A voucher that an operator has to repair does not keep other vouchers from being compacted.
        let clean = report.vouchers.iter().filter(|look| look.has_right_orders());
        let clean: Vec<VoucherId> = clean.map(|look| look.totals.voucher).collect();
        on_heap(|| self.compact_if_due(&clean, now.clone(), job)).await?;
        Ok(Some(now))
    }

    /// Waits until no other partition of this process is compared. None: the process ends.
    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.turns.try_acquire() {
            return Some(turn);
        }
        tracing::debug!(
            "another partition of this process is being compared: this partition waits for its turn"
        );
        self.turns.acquire().await.ok()
    }

    /// Compares. If workers have to repair, this also returns the plan of the repair.
    async fn compare(&self, job: &Job) -> Result<(ComparisonReport, Option<RepairPlan>), CompareError> {
        if !self.settings.reconcile.repairs {
            return Ok((self.comparison.run(job, |_| {}).await?, None));
        }
        let (report, plan) = plan_repair(&self.comparison, MOST_REPAIRED, job).await?;
        let has_work = matches!(plan.next(), Next::Ask(_));
        Ok((report, has_work.then_some(plan)))
    }

    /// Writes the result without the repaired differences, so that they are no longer reported.
    async fn keep_repaired(&self, before: Option<Reconciled>, job: &Job) {
        if let Err(error) = self.comparison.keep_repaired(before, job).await {
            tracing::debug!(%error, "cannot save the repair's result: `tidegate status` shows old numbers");
        }
    }

    /// Repairs the differences. The next comparison finds those that remain.
    async fn repair(&self, plan: &RepairPlan, job: &Job) {
        let mut report = RepairReport::new(plan);
        let repaired = async {
            let stores = Stores::new(&self.settings);
            let repair = Repair::connect(&stores, self.who.clone()).await?;
            repair.run(plan, &mut report, job).await
        };
        let repaired = repaired.await;
        if let Some(refused) = &report.order_ids_refused {
            tracing::warn!("{refused}");
        }
        match repaired {
            Ok(_) => {
                tracing::info!(counts = %report.counts(), "repaired the differences between both stores")
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "did not repair the differences between both stores"
                );
            }
        }
    }

    /// Notes in MySQL which journals are complete, for a Redis that has lost this knowledge. If this fails, it is done
    /// after the next comparison.
    async fn note_journals(&self, report: &ComparisonReport) {
        if let Err(error) = note_journals(self.comparison.stores(), report).await {
            tracing::debug!(%error, "could not note in MySQL which vouchers have a complete journal");
        }
    }

    /// Notes in MySQL which sales Redis has, so that their windows are carried when they change. If this fails, it is
    /// done after the next comparison.
    async fn note_windows(&self, report: &ComparisonReport) {
        if !self.settings.calendar.carries_windows {
            return;
        }
        let sold = report.vouchers.iter().map(|look| &look.totals).filter(|it| it.redis.stock.is_some());
        let sold: Vec<VoucherId> = sold.map(|it| it.voucher).collect();
        let noted = async {
            let by_window = SaleCalendar::of(&self.redis).read_windows(&sold).await?;
            let by_window: Vec<VoucherId> = by_window.into_keys().collect();
            windows::note_first(&self.comparison.stores().mysql, &by_window).await?;
            anyhow::Ok(())
        };
        if let Err(error) = noted.await {
            tracing::debug!(error = error_chain(&error), "could not note in MySQL which sales Redis has");
        }
    }

    /// Removes the keys of vouchers that were delisted long enough ago. If this fails, it is done after the next
    /// comparison.
    async fn remove_delisted(&self, report: &ComparisonReport) {
        match self.remover.remove_due(report).await {
            Ok(removed) => {
                for sale in removed {
                    tracing::info!(
                        voucher = %sale.voucher, keys = sale.keys, bytes = sale.bytes,
                        "removed the keys of a delisted voucher"
                    );
                }
            }
            Err(error) => tracing::warn!(%error, "did not remove the keys of delisted vouchers"),
        }
    }

    /// Removes limit counts of windows that are over. If this fails, it is done after the next comparison.
    async fn sweep(&self, report: &ComparisonReport) {
        let vouchers: Vec<VoucherId> = report.vouchers.iter().map(|look| look.totals.voucher).collect();
        match self.sweeper.sweep(&vouchers).await {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "removed the limit counters of windows that are over"),
            Err(error) => {
                tracing::warn!(%error, "did not remove the limit counters of windows that are over")
            }
        }
    }

    /// Compacts if more may be compacted now than at the last time, in this or another process.
    async fn compact_if_due(
        &self,
        vouchers: &[VoucherId],
        mut kept: Reconciled,
        job: &Job,
    ) -> Result<(), CompareError> {
        if self.settings.reconcile.compact_after.is_zero() || vouchers.is_empty() {
            return Ok(());
        }
        let before_ms = self.compactor.cut_off_ms().await?;
        let step = COMPACT_STEP.min(self.settings.reconcile.compact_after / COMPACT_PART);
        let step_ms = i64::try_from(step.as_millis()).unwrap_or(i64::MAX);
        // A clock that was set back must not prevent compaction.
        let is_due = before_ms.saturating_sub(kept.compacted_before_ms).saturating_abs() >= step_ms.max(1);
        if !is_due {
            return Ok(());
        }
        let CompactReport { released, used, shortened } =
            self.compactor.compact(vouchers, before_ms, job).await?;
        if released + used > 0 {
            tracing::info!(released, used, shortened, "removed the notes of final orders from journals");
        }
        // The stored result may have changed since: it also lists the vouchers whose keys were removed.
        kept = Reconciled::read(&self.redis).await?.unwrap_or(kept);
        kept.compacted_before_ms = before_ms;
        Ok(kept.write(&self.redis).await?)
    }

    /// Whether a comparison is due: a fixed time after the last one, in this or another process, or after the start of
    /// this process if there was none.
    async fn is_due(&self) -> Result<bool, StreamError> {
        let Some(last) = Reconciled::read(&self.redis).await? else {
            return Ok(self.began.elapsed() >= self.settings.reconcile.every);
        };
        let now_ms = i64::try_from(server_time_ms(self.redis.pool()).await?).unwrap_or(i64::MAX);
        Ok(is_over(last.at_ms, now_ms, self.settings.reconcile.every))
    }
}

/// Whether the time `every` has passed. A clock that was set back must not prevent a comparison. The last comparison
/// may end some milliseconds after now, because that time is the sum of two clocks; this does not make another one due.
fn is_over(last_ms: i64, now_ms: i64, every: Duration) -> bool {
    u128::from(last_ms.abs_diff(now_ms)) >= every.as_millis()
}

impl Task for Reconciler {
    fn routine(&self) -> Routine {
        let every = self.settings.reconcile.every;
        // A run that failed may have read everything before.
        let after_failure = every.min(REST);
        Routine { after_failure, ..Routine::new("compare both stores", LOOK_EVERY.min(every)) }
    }

    fn run_once(&mut self) -> Run<'_> {
        on_heap(async || {
            if self.settings.reconcile.every.is_zero() {
                return Ok(NextRun::Done);
            }
            let Some(found) = on_heap(|| self.look_if_due()).await? else {
                return Ok(NextRun::Skipped(self.routine().every));
            };
            tell(&found, &mut self.told);
            Ok(NextRun::After(self.routine().every))
        })
    }

    fn failed(&mut self, error: &str, failures: u32) {
        if failures == FAILURES_BEFORE_WARNING {
            tracing::warn!(error, "both stores are not compared: Redis or MySQL refuses, or does not answer");
        }
    }
}

/// Logs the differences if they have changed since the last line.
fn tell(found: &Reconciled, told: &mut Vec<(DifferenceKind, u64)>) {
    let now = found.failures();
    if now == *told {
        return;
    }
    if now.is_empty() {
        tracing::info!(took_ms = found.took_ms, "both stores agree again");
    } else {
        let kinds: Vec<String> =
            now.iter().map(|(kind, count)| format!("{}: {count}", kind.word())).collect();
        tracing::error!(
            differences = kinds.join(", "),
            "both stores differ; see docs/runbook/stores-differ.md"
        );
    }
    *told = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_again_after_its_time_or_when_a_clock_was_set_back_but_not_at_once() {
        let every = Duration::from_secs(600);
        let now = 1_700_000_000_000;
        assert!(!is_over(now - 599_999, now, every) && is_over(now - 600_000, now, every));
        assert!(!is_over(now + 20, now, every), "the comparison has ended this very moment");
        assert!(is_over(now + 3_600_000, now, every) && is_over(0, now, every));
    }
}
