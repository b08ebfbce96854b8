//! The audit: it finds what has become of each admitted order, and whether both stores hold the right values. An audit
//! runs a comparison, and counts orders in addition.
//!
//! An audit may run during a sale. Orders that seem lost or wrong are checked again, until two checks agree.
//!
//! The oversell risk is a lower bound, so a busy sale raises no false alarm. With a complete journal, the loaded units
//! in the journal are compared with the loaded units in MySQL, because orders change neither. Without a complete
//! journal, MySQL's stock is read first, then the stock in Redis, then everything else. So changes in between can only
//! lower the oversell risk.

mod failures;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_orders::{JournalNote, OrderId, OrderStatus, VoucherId, records::StockRow};

pub use self::report::{
    AdmittedOrders, AuditReport, ContradictoryRows, LostOrders, LostSpan, RowCounts, Stocks, Violations,
    VoucherAudit,
};
pub use crate::counts::{Misnamed, Offenders, StateCounts, Unreadable};
use crate::{
    CompareError, Comparison, Difference, DifferenceCause, Job, VoucherTotals,
    counts::{Followed, JournalCounts, OrderTotals, Rows, UnreleasedOrder},
    limit_counters::CounterDifference,
    reconciled::DifferenceKind,
};

/// The counts of an audit, from the differences that a comparison reports one by one.
#[derive(Debug, Default)]
struct Told {
    vouchers: BTreeMap<VoucherId, ToldOfVoucher>,
    counters: Vec<CounterDifference>,
}

/// The counts of a voucher's differences.
#[derive(Clone, Debug, Default)]
struct ToldOfVoucher {
    offences: Violations,
    /// Refused orders that Redis still holds: those in a complete journal, and those elsewhere.
    not_released: u64,
    refused: u64,
    /// Lost and mismatched orders that are in a complete journal.
    noted: u64,
    /// Lost and mismatched orders that are in no complete journal.
    unnoted: u64,
    /// Units of orders that MySQL has cancelled, that are dead letters, and that Redis still holds.
    half_cancelled_units: i64,
    /// Units of orders that MySQL has cancelled and that Redis still holds.
    kept_units: i64,
    /// Live orders that the journal does not hold, and the number of them that name their entry.
    not_admitted: (u64, u64),
    /// Differences of orders that an audit does not count by kind.
    others: u64,
}

/// Audits the vouchers that `comparison` covers. The audit reads the whole stream, all journals (Redis hashes of
/// orders) and all orders in MySQL, and changes nothing.
///
/// In addition to the memory of a comparison, the audit needs about 50 bytes for each order that is in no complete
/// journal.
///
/// # Errors
/// Fails if a store cannot be read. The report has the faults of the orders.
pub async fn audit(comparison: &Comparison, job: &Job) -> Result<AuditReport, CompareError> {
    let (mut report, unplaced) = audit_asked(comparison, job).await?;
    if comparison.is_whole() && !unplaced.is_empty() {
        let (others, _) = audit_asked(&comparison.only_at(unplaced), job).await?;
        report.add(others);
    }
    for (voucher, slot) in comparison.shared_slots().await? {
        if let Some(audit) = report.vouchers.iter_mut().find(|audit| audit.voucher == voucher) {
            audit.offences.shared_slots.add(slot);
        }
    }
    // After a change of the partitions, streams still hold entries of vouchers that moved away. The partition of such
    // a voucher reports it.
    report.vouchers.retain(|audit| comparison.owns(audit.voucher) || !audit.is_settled());
    report.states = report.vouchers.iter().map(|audit| audit.rows.states).sum();
    Ok(report)
}

/// Audits the vouchers that have a stock or a journal, or those that `comparison` is asked for. Also returns the
/// vouchers that appear only in entries, dead letters or rows.
async fn audit_asked(
    comparison: &Comparison,
    job: &Job,
) -> Result<(AuditReport, BTreeSet<VoucherId>), CompareError> {
    let mut vouchers = comparison.vouchers().await?;
    vouchers.extend(comparison.vouchers_with_orders().await?);
    // The order matters: an event that was handled before the stocks are read has changed both of them.
    let counts = comparison.counts(&vouchers).await?;
    let before = comparison.stocks().await?;
    let mut told = Told::default();
    let (report, counts) = comparison.look_at(vouchers, Some(counts), job, |it| told.add(it)).await?;
    let mut counts = counts.unwrap_or_default();
    let mut kept = comparison.still_kept(&counts).await?;
    let mut audited = Vec::new();
    for look in &report.vouchers {
        // For a voucher of another partition, only its entries in this partition count.
        let of_another = VoucherTotals::new(look.totals.voucher);
        let totals = if comparison.owns(look.totals.voucher) { &look.totals } else { &of_another };
        let mut its = told.vouchers.remove(&totals.voucher).unwrap_or_default();
        let counted = counts.take(totals.voucher);
        for UnreleasedOrder { order, is_refused } in kept.remove(&totals.voucher).into_iter().flatten() {
            if is_refused {
                its.offences.not_released.add(order);
                its.refused += 1;
            } else {
                its.offences.kept.add(order);
            }
        }
        let mut audit = its.into_audit(totals, counted, before.get(&totals.voucher));
        if let Some(what) = &totals.redis.unreadable {
            let named = comparison.wrong_keys(totals.voucher).await?;
            let named = if named.is_empty() { vec![what.clone()] } else { named };
            named.into_iter().for_each(|what| audit.offences.wrong_keys.add_new(what));
        }
        audited.push(audit);
    }
    // Each audit belongs to the comparison at the same position.
    let looks = report.vouchers.iter().map(|look| &look.totals).zip(&audited);
    let with_risk = looks.filter(|(_, audit)| audit.possible_oversell_risk().is_some());
    let at_rest = comparison.at_rest(&with_risk.map(|(totals, _)| totals).collect::<Vec<_>>()).await?;
    for audit in &mut audited {
        audit.stocks.is_at_rest = at_rest.contains(&audit.voucher);
    }
    let report = AuditReport {
        vouchers: audited,
        states: StateCounts::default(),
        events: counts.events,
        unreadable: counts.unreadable.report(),
        misnamed: std::mem::take(&mut counts.misnamed),
        counters: told.counters,
        counters_not_compared: report.counters_not_compared,
    };
    Ok((report, counts.unplaced))
}

impl Told {
    fn add(&mut self, it: &Difference) {
        if let Some(counter) = &it.counter {
            let Difference { kind, voucher, user, units, .. } = *it;
            self.counters.push(CounterDifference { kind, voucher, user, units, counter: counter.clone() });
        } else if let Some(order) = it.order {
            self.vouchers.entry(it.voucher).or_default().add(it, order);
        } else if it.user.is_some() || it.kind == DifferenceKind::CompactedMismatch {
            self.vouchers.entry(it.voucher).or_default().others += 1;
        }
    }
}

impl ToldOfVoucher {
    fn add(&mut self, it: &Difference, order: OrderId) {
        let its = &mut self.offences;
        match (it.kind, it.status, it.cause) {
            (DifferenceKind::LostOrder, ..) => {
                its.lost.orders.add(order);
                its.add_lost(admitted_ms(it), it.entry);
                self.count(it);
            }
            (DifferenceKind::Mismatched, ..) => {
                its.mismatched.add(order);
                self.count(it);
            }
            (DifferenceKind::LostEvent, ..) => its.lost_events.add(order),
            (DifferenceKind::ReleasedAndLive, ..) => its.doubled_back.add(order),
            (DifferenceKind::NotReleased, status, cause) => {
                self.kept_units = self.kept_units.saturating_add(it.units);
                match (status, cause) {
                    (Some(OrderStatus::Refused), _) => {
                        its.not_released.add(order);
                        self.not_released += 1;
                    }
                    (_, DifferenceCause::LeftHalfDone) => {
                        its.half_cancelled.add(order);
                        self.half_cancelled_units = self.half_cancelled_units.saturating_add(it.units);
                    }
                    _ => its.kept.add(order),
                }
            }
            (DifferenceKind::NotAdmitted, _, cause) => {
                let (all, ours) = self.not_admitted;
                self.not_admitted = (all + 1, ours + u64::from(cause == DifferenceCause::NoAdmission));
            }
            (kind, ..) => self.others += u64::from(kind.is_failure()),
        }
    }

    /// Counts a lost or mismatched order by whether its journal has it.
    fn count(&mut self, it: &Difference) {
        // An order under a taken id is not the order that the journal has.
        let is_noted = it.note.is_some() && (it.kind != DifferenceKind::Mismatched || it.entry.is_none());
        *if is_noted { &mut self.noted } else { &mut self.unnoted } += 1;
    }

    fn into_audit(
        mut self,
        totals: &VoucherTotals,
        (noted, rows, followed): (JournalCounts, Rows, Followed),
        before: Option<&StockRow>,
    ) -> VoucherAudit {
        if !totals.redis.is_complete {
            self.unnoted += std::mem::take(&mut self.noted);
        }
        // An unresolved order that turned out to be no difference was in flight.
        let moved = followed.unresolved.orders.saturating_sub(self.unnoted);
        let mut orders = AdmittedOrders {
            written: followed.written,
            released: followed.released.saturating_sub(self.refused),
            dead: followed.dead.orders,
            dead_units: followed.dead.units,
            in_flight: followed.in_flight.orders + moved,
            in_flight_units: followed.in_flight.units
                + if self.unnoted == 0 { followed.unresolved.units } else { 0 },
            ..AdmittedOrders::default()
        };
        let stocks = self.stocks(totals, &followed, before);
        let (all, ours) = self.not_admitted;
        let unknown_orders = rows.unknown + all.saturating_sub(rows.entered);
        let forgotten_orders = rows.forgotten + ours.saturating_sub(rows.entered_by_us);
        if totals.redis.is_complete {
            self.add_noted(&mut orders, totals, &noted, rows.in_flight);
        }
        let mut offences = self.offences;
        offences.other_differences = self.others;
        offences.half_cancelled.extend(followed.half_cancelled);
        offences.doubled_back.extend(followed.doubled_back);
        orders.in_flight_events = totals.open.in_flight_events;
        orders.admitted = orders.written + orders.released + orders.dead + orders.in_flight;
        let nowhere = [&offences.lost.orders, &offences.mismatched, &offences.not_released];
        orders.admitted += nowhere.map(|them| them.total).iter().sum::<u64>();
        offences.is_forgotten =
            totals.is_forgotten && orders.admitted == orders.released && forgotten_orders > 0;
        (offences.contradictory.orders, offences.contradictory.units) =
            (rows.contradictory, rows.contradictory_units);
        let live = match totals.mysql.stock {
            Some(_) => (totals.mysql.live_orders, totals.mysql.live_units - totals.mysql.contradictory_units),
            // The voucher has no row in MySQL.
            None => (rows.live.orders, rows.live.units),
        };
        let rows = RowCounts {
            states: rows.states,
            live_orders: live.0,
            live_units: live.1,
            cancelled_orders: rows.cancelled,
            unknown_orders,
            forgotten_orders,
        };
        let due = |stock: i64| stock - orders.in_flight_units - orders.dead_units;
        let stocks = Stocks { redis_stock_due: stocks.stock.map(due), ..stocks };
        VoucherAudit { voucher: totals.voucher, orders, rows, offences, stocks, window: totals.window }
    }

    /// Adds the orders in a complete journal: an order that is nowhere else is written.
    fn add_noted(
        &self,
        orders: &mut AdmittedOrders,
        totals: &VoucherTotals,
        noted: &JournalCounts,
        written: OrderTotals,
    ) {
        let (half, twice) = (self.offences.half_cancelled.total, self.offences.doubled_back.total);
        let settled = noted.settled.saturating_sub(noted.shown_twice) + written.orders + twice;
        let elsewhere = noted.dead.orders + self.noted + self.not_released + half;
        orders.written += settled.saturating_sub(elsewhere);
        orders.released += noted.released.saturating_sub(twice);
        orders.dead += noted.dead.orders + half;
        orders.dead_units += noted.dead.units + self.half_cancelled_units;
        let released = noted.released_in_flight;
        orders.in_flight += totals.open.in_flight_orders.saturating_sub(written.orders + released.orders);
        orders.in_flight_units += (totals.open.in_flight_units - written.units - released.units).max(0);
    }

    fn stocks(&self, totals: &VoucherTotals, followed: &Followed, before: Option<&StockRow>) -> Stocks {
        let keeps_journal =
            totals.redis.is_complete && before.is_none_or(|row| row.keeps_journal != Some(false));
        let risk = |row: &StockRow| match totals.redis.is_complete {
            true => risk(totals, self.kept_units).filter(|_| keeps_journal),
            false => followed.risk(row.stock?).filter(|_| row.initial_stock == totals.mysql.initial),
        };
        Stocks {
            stock: totals.mysql.stock,
            initial_stock: totals.mysql.initial,
            redis_stock: totals.redis.stock,
            mysql_drift: totals.mysql.drift,
            oversell_risk_at_least: before.filter(|row| !row.is_over).and_then(risk),
            journal_mismatch: totals.redis.drift.filter(|_| keeps_journal),
            ..Stocks::default()
        }
    }
}

/// The units that a complete journal has loaded and sold beyond MySQL's, as a lower bound. Orders that MySQL cancelled
/// and Redis still holds may have been added to the stock manually.
fn risk(totals: &VoucherTotals, kept_units: i64) -> Option<i64> {
    let by_hand = totals.redis.drift?;
    let by_hand = if by_hand > 0 { (by_hand - kept_units).max(0) } else { by_hand };
    let has = totals.mysql.stock? + totals.mysql.live_units - totals.mysql.earlier_units;
    let loaded = totals.redis.loaded?.saturating_add(by_hand);
    (!totals.is_change_open).then_some(loaded.saturating_sub(has).max(0))
}

/// The time of an order's admission, from its entry or its note.
fn admitted_ms(it: &Difference) -> Option<u64> {
    let note = it.note.as_ref().and_then(|note| JournalNote::parse(note.as_bytes()));
    let by_note = note.and_then(|note| note.at_ms).and_then(|at_ms| u64::try_from(at_ms).ok());
    it.entry.map(|entry| entry.ms).or(by_note)
}
