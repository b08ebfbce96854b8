//! The audit: says of every order that Redis admitted where it is, and whether both stores hold what they must. It is a summary of
//! a comparison that counts as well.
//!
//! It wants a quiet moment but needs none: what seems lost or wrong is looked at again, until it is the same twice.
//!
//! What Redis offers too much is measured from below, so that a busy sale raises no false alarm. Of a complete journal, what was
//! loaded by it is compared with what was loaded by MySQL: no order changes either. Of others, MySQL's stock is read first, then that
//! in Redis, then all else: whatever moves meanwhile makes the surplus look smaller.

mod report;

use std::collections::{BTreeMap, BTreeSet};

use tidegate_orders::{JournalNote, OrderId, OrderStatus, VoucherId, records::StockRow};

pub use self::report::{AuditReport, LostSpan, Offences, OrdersByPlace, RowCounts, Stocks, VoucherAudit};
pub use crate::counts::{Misnamed, Offenders, StateCounts, Unreadable};
use crate::{
    Cause, CompareError, Difference, Job, Looker, VoucherBooks,
    counts::{Followed, OrderCounter},
    limit_counters::CounterDifference,
    reconciled::DifferenceKind,
};

/// What an audit counts of the differences that a look tells, one by one.
#[derive(Debug, Default)]
struct Told {
    vouchers: BTreeMap<VoucherId, ToldOfVoucher>,
    counters: Vec<CounterDifference>,
}

/// The differences of a voucher.
#[derive(Clone, Debug, Default)]
struct ToldOfVoucher {
    offences: Offences,
    /// Lost ones and such with the id of another, of which a complete journal tells.
    noted: u64,
    /// Those of which none does.
    unnoted: u64,
    /// Cancelled by MySQL, buried, and held by Redis.
    half_cancelled_units: i64,
    /// Cancelled by MySQL, and held by Redis.
    kept_units: i64,
    /// Live orders that the journal does not hold, and those of them that name their entry.
    not_admitted: (u64, u64),
}

/// Audits the vouchers that `looker` is asked for. Reads all of the stream, journals and orders; changes nothing.
///
/// Beside what a look takes, it needs 50 bytes of memory for each order that no complete journal tells of.
///
/// # Errors
/// When a store cannot be read. What is wrong with the orders stands in the report.
pub async fn audit(looker: &Looker, job: &Job) -> Result<AuditReport, CompareError> {
    let mut extra = BTreeSet::new();
    loop {
        let mut vouchers = looker.vouchers().await?;
        vouchers.extend(&extra);
        // In this order: an event that is done before both stocks are read has done all that it does in both.
        let counts = looker.counts(&vouchers).await?;
        let before = looker.stocks().await?;
        let mut told = Told::default();
        let (report, counts) = looker.look_at(vouchers, Some(counts), job, |it| told.add(it)).await?;
        let mut counts = counts.unwrap_or_default();
        let unplaced = looker.asked_for(std::mem::take(&mut counts.unplaced));
        // Vouchers that only entries or rows name are looked at as well.
        if !unplaced.is_subset(&extra) {
            extra.extend(unplaced);
            continue;
        }
        let mut kept = looker.still_kept(&counts).await?;
        let mut audited = Vec::new();
        for look in &report.vouchers {
            let books = &look.books;
            let its = told.vouchers.remove(&books.voucher).unwrap_or_default();
            let mut audit = its.into_audit(books, &mut counts, before.get(&books.voucher));
            kept.remove(&books.voucher)
                .into_iter()
                .flatten()
                .for_each(|order| audit.offences.kept.add(order));
            if let Some(what) = &books.unreadable {
                let named = looker.wrong_keys(books.voucher).await?;
                let named = if named.is_empty() { vec![what.clone()] } else { named };
                named.into_iter().for_each(|what| audit.offences.wrong_keys.add_new(what));
            }
            audit.stocks.is_at_rest = audit.possible_surplus().is_some() && looker.is_at_rest(books).await?;
            audited.push(audit);
        }
        for (voucher, slot) in looker.shared_slots().await? {
            if let Some(audit) = audited.iter_mut().find(|audit| audit.voucher == voucher) {
                audit.offences.shared_slots.add(slot);
            }
        }
        // After a change of the partitions, streams still hold entries of vouchers that moved away. Their partition speaks for these.
        audited.retain(|audit| looker.owns(audit.voucher) || !audit.is_settled());
        return Ok(AuditReport {
            states: audited.iter().map(|audit| audit.rows.states).sum(),
            vouchers: audited,
            events: counts.events,
            unreadable: counts.unreadable(),
            misnamed: counts.misnamed,
            counters: told.counters,
            counters_not_compared: report.counters_not_compared,
        });
    }
}

impl Told {
    fn add(&mut self, it: &Difference) {
        if let Some(counter) = &it.counter {
            let Difference { kind, voucher, user, units, .. } = *it;
            self.counters.push(CounterDifference { kind, voucher, user, units, counter: counter.clone() });
        } else if let Some(order) = it.order {
            self.vouchers.entry(it.voucher).or_default().add(it, order);
        }
    }
}

impl ToldOfVoucher {
    fn add(&mut self, it: &Difference, order: OrderId) {
        let its = &mut self.offences;
        match (it.kind, it.status, it.cause) {
            (DifferenceKind::LostOrder, ..) => {
                its.lost.add(order);
                its.add_lost(admitted_ms(it), it.entry);
                self.count(it);
            }
            (DifferenceKind::Mismatched, ..) => {
                its.mismatched.add(order);
                self.count(it);
            }
            (DifferenceKind::ReleasedAndLive, ..) => its.doubled_back.add(order),
            (DifferenceKind::NotReleased, status, cause) => {
                self.kept_units += it.units;
                match (status, cause) {
                    (Some(OrderStatus::Refused), _) => its.not_given_back.add(order),
                    (_, Cause::LeftHalfDone) => {
                        its.half_cancelled.add(order);
                        self.half_cancelled_units += it.units;
                    }
                    _ => its.kept.add(order),
                }
            }
            (DifferenceKind::NotAdmitted, _, cause) => {
                let (all, ours) = self.not_admitted;
                self.not_admitted = (all + 1, ours + u64::from(cause == Cause::NoAdmission));
            }
            _ => {}
        }
    }

    /// Of an order that is lost, or whose id another has: whether its journal tells of it.
    fn count(&mut self, it: &Difference) {
        *if it.note.is_some() { &mut self.noted } else { &mut self.unnoted } += 1;
    }

    fn into_audit(
        mut self,
        books: &VoucherBooks,
        counts: &mut OrderCounter,
        before: Option<&StockRow>,
    ) -> VoucherAudit {
        let (noted, rows, followed) = counts.of(books.voucher);
        if !books.is_complete {
            self.unnoted += std::mem::take(&mut self.noted);
        }
        let mut orders = OrdersByPlace {
            written: followed.written + followed.unresolved.saturating_sub(self.unnoted),
            released: followed.released,
            dead: followed.dead.orders,
            dead_units: followed.dead.units,
            in_flight: followed.in_flight.orders,
            in_flight_units: followed.in_flight.units,
            ..OrdersByPlace::default()
        };
        let stocks = self.stocks(books, &followed, before);
        let unknown = |orders: u64| orders.saturating_sub(followed.written);
        let (all, ours) = self.not_admitted;
        let (unknown_orders, forgotten_orders) =
            (rows.unknown + unknown(all), rows.forgotten + unknown(ours));
        let mut offences = self.offences;
        if books.is_complete {
            let (half, twice) = (offences.half_cancelled.total, offences.doubled_back.total);
            let settled = noted.settled.saturating_sub(noted.shown_twice) + rows.in_flight.orders + twice;
            let elsewhere = noted.dead.orders + self.noted + offences.not_given_back.total + half;
            orders.written += settled.saturating_sub(elsewhere);
            orders.released += noted.released.saturating_sub(twice);
            orders.dead += noted.dead.orders + noted.dead_of_taken_ids + half;
            orders.dead_units += noted.dead.units + self.half_cancelled_units;
            let (written, released) = (rows.in_flight, noted.released_in_flight);
            orders.in_flight += books.in_flight_orders.saturating_sub(written.orders + released.orders);
            orders.in_flight_units += (books.in_flight_units - written.units - released.units).max(0);
        }
        offences.half_cancelled.extend(followed.half_cancelled);
        offences.doubled_back.extend(followed.doubled_back);
        orders.in_flight_events = books.in_flight_events;
        orders.admitted = orders.written + orders.released + orders.dead + orders.in_flight;
        let nowhere = [&offences.lost, &offences.mismatched, &offences.not_given_back];
        orders.admitted += nowhere.map(|them| them.total).iter().sum::<u64>();
        offences.is_forgotten =
            books.is_forgotten && orders.admitted == orders.released && forgotten_orders > 0;
        (offences.contradictory, offences.contradictory_units) =
            (rows.contradictory, rows.contradictory_units);
        let rows = RowCounts {
            states: rows.states,
            live_orders: books.live_orders,
            live_units: books.live_units - books.contradictory_units,
            cancelled_orders: rows.cancelled,
            unknown_orders,
            forgotten_orders,
        };
        let due = |stock: i64| stock - orders.in_flight_units - orders.dead_units;
        let stocks = Stocks { redis_stock_due: stocks.stock.map(due), ..stocks };
        VoucherAudit { voucher: books.voucher, orders, rows, offences, stocks }
    }

    fn stocks(&self, books: &VoucherBooks, followed: &Followed, before: Option<&StockRow>) -> Stocks {
        let keeps_journal = books.is_complete && before.is_none_or(|row| row.keeps_journal != Some(false));
        let surplus = |row: &StockRow| match books.is_complete {
            true => surplus(books, self.kept_units).filter(|_| keeps_journal),
            false => followed.surplus(row.stock?).filter(|_| row.initial_stock == books.initial_stock),
        };
        Stocks {
            stock: books.mysql_stock,
            initial_stock: books.initial_stock,
            redis_stock: books.redis_stock,
            surplus_at_least: before.filter(|row| !row.is_over).and_then(surplus),
            journal_apart: books.redis_drift.filter(|_| keeps_journal),
            ..Stocks::default()
        }
    }
}

/// What a complete journal has loaded and sold beyond what MySQL has, at least. What MySQL has cancelled and Redis holds may have been
/// put into the stock by hand.
fn surplus(books: &VoucherBooks, kept_units: i64) -> Option<i64> {
    let by_hand = books.redis_drift?;
    let by_hand = if by_hand > 0 { (by_hand - kept_units).max(0) } else { by_hand };
    let has = books.mysql_stock? + books.live_units - books.earlier_units;
    (!books.is_change_open).then_some((books.loaded? + by_hand - has).max(0))
}

/// When an order was admitted, by its note or its entry.
fn admitted_ms(it: &Difference) -> Option<u64> {
    let note = it.note.as_ref().and_then(|note| JournalNote::parse(note.as_bytes()));
    let by_note = note.and_then(|note| note.at_ms).and_then(|at_ms| u64::try_from(at_ms).ok());
    it.entry.map(|entry| entry.ms).or(by_note)
}
