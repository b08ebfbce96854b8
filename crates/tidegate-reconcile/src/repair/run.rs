//! The execution of a repair plan, chunk by chunk.

use std::sync::Arc;

use anyhow::Context;
use serde_json::Value as Json;
use sqlx::MySqlPool;
use tidegate_compare::Job;
use tidegate_operations::{Stores, change::End};
use tidegate_orders::{
    CausalReads, Incoming, Ledger, Order, OrderId, Quantity, Records, RedisStore, Slot, VoucherId,
    ledger::{Cancellation, MissingRow},
    scripts::{
        LimitUsage, OrderRepair, Release, ReleaseReply, RepairAction, RepairAnswer, RepairGuard, RepairReply,
        VoucherRepair,
    },
};
use tidegate_stream::EntryId;

use super::{
    again::LostOrders,
    plan::{Chunk, RepairPlan, VoucherRepairPlan},
    report::{RepairReport, Returned, ReturnedReason},
};
use crate::order_ids;
use tidegate_operations::operator_log::{CommandOutcome, LoggedOperation, OperatorLog};

/// The operation that repairs differences between Redis and MySQL. Only one repair of a system runs at a time: the
/// caller holds the lease on comparisons and repairs.
#[derive(Debug)]
pub struct Repair<'a> {
    stores: &'a Stores,
    pub(super) redis: RedisStore,
    pub(super) mysql: MySqlPool,
    ledger: Ledger,
    causal_reads: Arc<CausalReads>,
    log: OperatorLog,
    who: String,
}

impl<'a> Repair<'a> {
    /// Connects to Redis and MySQL for a repair. The operators' log gets a line for each step, with the name `who`.
    ///
    /// # Errors
    /// Fails if a store cannot be reached.
    pub async fn connect(stores: &'a Stores, who: String) -> anyhow::Result<Self> {
        let (redis, mysql) = stores.both().await?;
        let (redis, mysql) = (redis.clone(), mysql.clone());
        let ledger = stores.ledger().await?;
        let causal_reads = stores.sessions().await?.causal_reads();
        let log = OperatorLog::new(redis.clone(), stores.settings());
        Ok(Self { stores, redis, mysql, ledger, causal_reads, log, who })
    }

    /// Executes the plan of a repair, voucher by voucher. Orders that have changed since the comparison are not
    /// repaired, and the report contains them. A repair may be stopped or killed between any two steps; the next
    /// comparison finds the remaining differences.
    ///
    /// # Errors
    /// Fails if a store does not answer. The report has the repairs that were made by then.
    pub async fn run(&self, plan: &RepairPlan, report: &mut RepairReport, job: &Job) -> anyhow::Result<End> {
        let total = plan.vouchers.iter().map(|it| it.again.len() + it.chunks.iter().map(size).sum::<usize>());
        job.progress.expect(total.sum::<usize>() as u64, "orders");
        self.raise_order_ids(plan, report).await?;
        let is_needed = plan.vouchers.iter().any(|voucher| !voucher.again.is_empty());
        let lost = match is_needed {
            true => Some(self.lost_orders().await?),
            false => None,
        };
        for voucher in &plan.vouchers {
            let refused_before = report.done.refused;
            // This comes before Redis: if MySQL refuses an order, the journal releases it.
            if let Some(lost) = lost.as_ref().filter(|_| !voucher.again.is_empty()) {
                let before = report.done;
                let ended = lost.run(voucher.voucher, &voucher.again, report, job).await;
                self.log(voucher.voucher, "orders run again", report.done.since(before), job).await;
                if ended? == End::Stopped {
                    return Ok(End::Stopped);
                }
            }
            // Each refusal has released units that the totals still count as sold.
            let are_totals_old = report.done.refused > refused_before;
            if self.repair(&plan.id, (voucher, are_totals_old), report, job).await? == End::Stopped {
                return Ok(End::Stopped);
            }
        }
        self.set_counters(plan, report, job).await
    }

    /// Raises the order id counters first: if orders are lost, the counters may be behind their ids, too.
    async fn raise_order_ids(&self, plan: &RepairPlan, report: &mut RepairReport) -> anyhow::Result<()> {
        let keys = self.redis.keys();
        self.causal_reads.catch_up(&self.mysql).await?;
        let mut known = order_ids::in_mysql(&self.mysql, keys).await?;
        let again = plan.vouchers.iter().flat_map(|voucher| &voucher.again);
        again.for_each(|order| known.note(order.order));
        match order_ids::raise(&known, &self.redis).await {
            Ok(counters) => report.order_ids = counters.into_iter().filter(|it| it.raised).collect(),
            // The Redis users of earlier versions have no right to the counters. Most repairs do not depend on them.
            Err(error) if order_ids::is_no_right(&error) => {
                let pattern = keys.order_id("*");
                let pattern = pattern.as_str_lossy();
                report.order_ids_refused = Some(format!(
                    "the order id counters were not raised: {error:#}. Allow this Redis user the key pattern ~{pattern}"
                ));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn lost_orders(&self) -> anyhow::Result<LostOrders> {
        LostOrders::open(self.stores, self.ledger.clone()).await
    }

    /// Repairs the state of a voucher in Redis.
    async fn repair(
        &self,
        id: &str,
        (plan, are_totals_old): (&VoucherRepairPlan, bool),
        report: &mut RepairReport,
        job: &Job,
    ) -> anyhow::Result<End> {
        let mut guard = plan.guard.clone();
        let is_withheld = are_totals_old && plan.chunks.iter().any(|chunk| !chunk.stock.is_nothing());
        for (at, chunk) in plan.chunks.iter().enumerate() {
            if job.is_stopped() {
                return Ok(End::Stopped);
            }
            let (before, part) = (report.done, format!("{id}.{}", at + 1));
            let mut repair = self.still_so(plan.voucher, chunk, (part, guard.clone()), report).await?;
            if is_withheld {
                withhold_stock(&mut repair, report);
            }
            let limited = take_limited(&mut repair);
            let reply = self.redis.repairs().repair(&repair).await.context("Failed to repair Redis")?;
            let why = match reply {
                RepairReply::Made(answers) => {
                    guard = guard.after(&repair.id);
                    count(&repair, &answers, report);
                    // This follows the correction of the stock, because a service may have released these units
                    // already.
                    self.release_limited(&repair, limited, report).await?;
                    let restored = held_limits(&repair, &answers);
                    self.redis
                        .limits()
                        .recount(&restored)
                        .await
                        .context("Failed to raise limit counters in Redis")?;
                    self.log(plan.voucher, &repair.id, report.done.since(before), job).await;
                    job.progress.add(size(chunk) as u64);
                    continue;
                }
                RepairReply::NotComplete => ReturnedReason::JournalIsNew,
                RepairReply::StockChanged => ReturnedReason::StockChanged,
                RepairReply::Overtaken => ReturnedReason::Overtaken,
                RepairReply::NoStock => ReturnedReason::NoStock,
            };
            for chunk in &plan.chunks[at..] {
                return_all(plan.voucher, chunk, &why, report);
            }
            return Ok(End::Whole);
        }
        Ok(End::Whole)
    }

    /// Releases orders that used limits; this releases their uses together with their units.
    async fn release_limited(
        &self,
        repair: &VoucherRepair,
        limited: Vec<OrderRepair>,
        report: &mut RepairReport,
    ) -> anyhow::Result<()> {
        let (voucher, id) = (repair.voucher, &repair.id);
        let releases: Vec<Release> =
            limited.iter().filter_map(|order| order.limited_release(voucher, id)).collect();
        for (order, reply) in limited.iter().zip(self.redis.releases().release_all(&releases).await) {
            match reply.context("Failed to repair Redis")? {
                ReleaseReply::Released | ReleaseReply::ReleasedWithoutStock => {
                    report.done.redis.released += 1;
                    report.done.redis.stock_moved += order.change().unwrap_or(0);
                }
                _ => report.return_to_look(returned(voucher, order, ReturnedReason::Moved)),
            }
        }
        Ok(())
    }

    /// Checks the chunk against MySQL and removes orders that have changed. MySQL also decides whether the user of a
    /// released order has another order.
    async fn still_so(
        &self,
        voucher: VoucherId,
        chunk: &Chunk,
        (id, guard): (String, RepairGuard),
        report: &mut RepairReport,
    ) -> anyhow::Result<VoucherRepair> {
        let incoming: Vec<Incoming> = chunk.orders.iter().filter_map(|it| incoming(voucher, it)).collect();
        let snapshot =
            self.ledger.snapshot(&incoming, MissingRow::Decides).await.context("Failed to read MySQL")?;
        let unknown: Vec<bool> = incoming.iter().map(|it| snapshot.is_unknown(&it.order)).collect();
        let mut known = unknown.into_iter().zip(snapshot.predict_cancel(&incoming));
        let of_user = |it: &&OrderRepair| matches!(it.action, RepairAction::Bar | RepairAction::Unbar);
        let users: Vec<i64> = chunk.orders.iter().filter(of_user).map(|it| it.user.get()).collect();
        // Without orders there was no snapshot, which otherwise waits for other nodes' commits.
        if incoming.is_empty() {
            self.causal_reads.catch_up(&self.mysql).await?;
        }
        let records = Records::new(&self.mysql, self.redis.keys().partition());
        let buyers = records.orders().still_live_of_users(voucher, &users).await;
        let buyers = buyers.context("Failed to read MySQL")?;
        let admitted = chunk.orders.iter().filter(|it| matches!(it.action, RepairAction::Admit(_)));
        let admitted: Vec<OrderId> = admitted.filter_map(|it| it.order).collect();
        let mut held = records.limit_uses().held(&admitted).await.context("Failed to read MySQL")?;
        let mut orders = Vec::with_capacity(chunk.orders.len());
        for order in &chunk.orders {
            let in_mysql = if order.order.is_some() { known.next() } else { None };
            let action = match (order.action, in_mysql) {
                (RepairAction::Release(_), Some((false, Cancellation::Cancelled(user_after)))) => {
                    Some(RepairAction::Release(user_after))
                }
                (RepairAction::Admit(_) | RepairAction::Bar, Some((false, Cancellation::OrderExists))) => {
                    Some(order.action)
                }
                // Unknown to MySQL: a dead letter, as long as the journal has the same note, which the script checks.
                (RepairAction::Bar, Some((true, _))) if order.found.is_some() => Some(order.action),
                (RepairAction::Bar, None) if buyers.contains_key(&order.user.get()) => Some(order.action),
                (RepairAction::Unbar, _) if !buyers.contains_key(&order.user.get()) => Some(order.action),
                _ => None,
            };
            match action {
                Some(action) => {
                    let limited = order.order.and_then(|order| held.remove(&order));
                    orders.push(OrderRepair { action, limited, ..order.clone() });
                }
                None => report.return_to_look(returned(voucher, order, ReturnedReason::Moved)),
            }
        }
        let (loaded, drift) = (chunk.stock.loaded, chunk.stock.drift);
        Ok(VoucherRepair { id, voucher, guard, loaded, drift, orders })
    }

    /// Writes a line of the operators' log. If that fails, the repair continues and reports it.
    pub(super) async fn log(&self, voucher: VoucherId, part: &str, counts: Json, job: &Job) {
        let operation = LoggedOperation {
            who: self.who.clone(),
            command: "reconcile --repair".to_owned(),
            arguments: format!("--voucher {voucher} ({part})"),
        };
        if let Err(error) = self.log.note(&operation, CommandOutcome::Done, &counts).await {
            job.progress.say(&format!("`tidegate log` will not show all steps of this repair: {error:#}"));
        }
    }
}

/// Withholds the correction of a stock whose totals are out of date. Then no order is released either, by the rule of
/// [`super::plan::VoucherFindings`].
fn withhold_stock(repair: &mut VoucherRepair, report: &mut RepairReport) {
    let voucher = repair.voucher;
    if (repair.loaded, repair.drift) != (0, 0) {
        report.return_to_look(Returned { voucher, order: None, user: None, why: ReturnedReason::StockMoved });
    }
    (repair.loaded, repair.drift) = (0, 0);
    let is_release = |order: &mut OrderRepair| matches!(order.action, RepairAction::Release(_));
    for order in repair.orders.extract_if(.., is_release) {
        report.return_to_look(returned(voucher, &order, ReturnedReason::StockMoved));
    }
}

/// Takes the releases of orders that used limits out of a repair, because another script makes them.
fn take_limited(repair: &mut VoucherRepair) -> Vec<OrderRepair> {
    let (voucher, id) = (repair.voucher, &repair.id);
    let is_limited = |order: &mut OrderRepair| order.limited_release(voucher, id).is_some();
    repair.orders.extract_if(.., is_limited).collect()
}

fn size(chunk: &Chunk) -> usize {
    chunk.orders.len().max(1)
}

/// The order for a query to MySQL, by its id, user and voucher.
fn incoming(voucher: VoucherId, repair: &OrderRepair) -> Option<Incoming> {
    let order = Order {
        id: repair.order?,
        user: repair.user,
        voucher,
        quantity: Quantity::ONE,
        slot: Slot::FIRST,
        uses: None,
    };
    Some(Incoming { order, entry: EntryId::MIN })
}

fn returned(voucher: VoucherId, order: &OrderRepair, why: ReturnedReason) -> Returned {
    Returned { voucher, order: order.order, user: Some(order.user), why }
}

fn return_all(voucher: VoucherId, chunk: &Chunk, why: &ReturnedReason, report: &mut RepairReport) {
    for order in &chunk.orders {
        report.return_to_look(returned(voucher, order, why.clone()));
    }
    if !chunk.stock.is_nothing() {
        report.return_to_look(Returned { voucher, order: None, user: None, why: why.clone() });
    }
}

/// The uses of limits that the restored orders hold.
fn held_limits(repair: &VoucherRepair, answers: &[RepairAnswer]) -> LimitUsage {
    let mut held = LimitUsage::default();
    for (order, answer) in repair.orders.iter().zip(answers) {
        if let (RepairAction::Admit(quantity), Some(limited)) = (order.action, &order.limited)
            && *answer != RepairAnswer::Moved
        {
            held.add(repair.voucher, order.user, quantity, limited);
        }
    }
    held
}

fn count(repair: &VoucherRepair, answers: &[RepairAnswer], report: &mut RepairReport) {
    let done = &mut report.done;
    done.redis.steps += 1;
    done.redis.loaded += repair.loaded;
    done.redis.stock_moved += repair.loaded - repair.drift;
    for (order, answer) in repair.orders.iter().zip(answers) {
        if *answer == RepairAnswer::Moved {
            report.return_to_look(returned(repair.voucher, order, ReturnedReason::Moved));
            continue;
        }
        let done = &mut report.done;
        *match order.action {
            RepairAction::Admit(_) => &mut done.redis.admitted,
            RepairAction::Release(_) => &mut done.redis.released,
            RepairAction::Bar => &mut done.redis.barred,
            RepairAction::Unbar => &mut done.redis.unbarred,
        } += 1;
        done.redis.stock_moved += order.change().unwrap_or(0);
    }
}
