//! The compaction of journals: it removes orders that are final in both stores. So the memory of a sale depends only on
//! its buyers and live orders.
//!
//! An order is final if MySQL has ended, refused or used it, by Tidegate's own events. In addition, its note, its row
//! and all events that moved it must be older than the cut-off. The cut-off is older than the oldest entry that the
//! stream still holds, so none of these entries can come again from the stream. Nothing is locked: `lua/compact.lua`
//! acts on an order only while its note is the one that was read here.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use sqlx::MySqlPool;
use tidegate_compare::{
    CompareError, ComparedStores, Job, Pace, dead_orders,
    in_flight::{InFlight, VoucherIndex},
    judge::{FinalOrder, is_before},
    redis_side::DeadOrders,
};
use tidegate_orders::{
    JournalField, JournalNote, OrderId, RedisStore, RowState, VoucherId,
    records::{EventSum, OrderRow, RefusalRow},
    scripts::{CompactReply, MOST_COMPACTED, OrderCompaction, ScanPages},
};
use tidegate_stream::server_time_ms;

/// The milliseconds by which a note may be older than the id of its entry: the script reads the clock before it
/// appends.
const NOTED_BEFORE_MS: i64 = 1_000;

/// The result of compacting journals (Redis hashes of orders): the numbers of notes that were removed or shortened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// The number of notes that were removed because their orders were released (cancelled, with the units back in the
    /// stock).
    pub released: u64,
    /// The number of notes that were removed because their orders are used.
    pub used: u64,
    /// The number of notes that were shortened because their orders are old, but can still change.
    pub shortened: u64,
}

/// The task that removes the notes of finished orders from journals (Redis hashes of orders), and keeps the sums of
/// these notes.
#[derive(Debug)]
pub struct Compactor {
    stores: ComparedStores,
    older_than: Duration,
    pace: Pace,
}

/// A note that is old enough to be compacted.
struct Candidate {
    order: OrderId,
    found: String,
    entry: JournalNote,
}

/// The facts that MySQL has about the candidates.
struct Facts {
    rows: HashMap<i64, OrderRow>,
    refusals: HashMap<i64, RefusalRow>,
    events: HashMap<OrderId, EventSum>,
}

/// The orders that are not compacted, however old they are.
struct Busy {
    index: VoucherIndex,
    in_flight: InFlight,
    dead: DeadOrders,
}

impl Compactor {
    /// Creates a compactor of the journals in the given Redis. The compactor removes only notes of orders that are
    /// older than `older_than` and older than the first stream entry.
    #[must_use]
    pub fn new((redis, mysql): (RedisStore, MySqlPool), (older_than, pace): (Duration, Pace)) -> Self {
        let are_chosen = redis.keys().partition().tag().is_some();
        // Reads may be stale: a missing or older row keeps the note of its order, so it causes no compaction.
        let causal_reads = Arc::default();
        let stores = ComparedStores { redis, mysql, causal_reads, are_chosen };
        Self { stores, older_than, pace }
    }

    /// The time before which notes of orders in the journals (Redis hashes of orders) are old enough to be removed, in
    /// Unix milliseconds by the clock of Redis.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn cut_off_ms(&self) -> Result<i64, CompareError> {
        let now_ms = i64::try_from(server_time_ms(self.stores.redis.pool()).await?).unwrap_or(i64::MAX);
        let age_ms = i64::try_from(self.older_than.as_millis()).unwrap_or(i64::MAX);
        let first = self.stores.redis().first_entry().await?;
        let first_ms = first.and_then(|first| i64::try_from(first.ms).ok()).unwrap_or(i64::MAX);
        Ok(now_ms.saturating_sub(age_ms).min(first_ms.saturating_sub(NOTED_BEFORE_MS)))
    }

    /// Removes notes that are older than `before_ms` from the journals (Redis hashes of orders) of the given vouchers.
    /// Call this only directly after a comparison that found no differences of these vouchers, and while you hold the
    /// lease on comparisons. `before_ms` must not be later than [`Compactor::cut_off_ms`]. You may stop and repeat this
    /// call at any time.
    ///
    /// # Errors
    /// Fails if a store cannot be read, or `job` is stopped.
    pub async fn compact(
        &self,
        vouchers: &[VoucherId],
        before_ms: i64,
        job: &Job,
    ) -> Result<CompactReport, CompareError> {
        let index = VoucherIndex::new(vouchers.to_vec());
        let in_flight = InFlight::read(&self.stores.redis, &index, &self.pace).await?;
        let dead = dead_orders(&self.stores, &index, self.pace).await?;
        let busy = Busy { index, in_flight, dead };
        let mut report = CompactReport::default();
        for (place, voucher) in (0..).zip(busy.index.all()) {
            let snapshot = self.stores.redis.journals().snapshot(*voucher).await?;
            // If a load made the journal complete, it holds nothing that is older than the load.
            if snapshot.is_complete && self.stores.redis().complete_since(*voucher).await? < before_ms {
                self.compact_voucher((place, *voucher), before_ms, &busy, job, &mut report).await?;
            }
        }
        Ok(report)
    }

    async fn compact_voucher(
        &self,
        (place, voucher): (u32, VoucherId),
        before_ms: i64,
        busy: &Busy,
        job: &Job,
        report: &mut CompactReport,
    ) -> Result<(), CompareError> {
        let mut pages = ScanPages::of_journal(&self.stores.redis, voucher);
        while let Some(fields) = self.pace.step(pages.next()).await? {
            job.progress.add(fields.len() as u64);
            let is_settled = |it: &Candidate| {
                let order = it.order.get();
                !busy.in_flight.has_order(place, order) && busy.dead.of(place, order).is_none()
            };
            let old = fields.iter().filter_map(|(name, note)| candidate(name, note, before_ms));
            let old: Vec<Candidate> = old.filter(is_settled).collect();
            for candidates in old.chunks(MOST_COMPACTED) {
                if job.is_stopped() {
                    return Err(CompareError::Stopped);
                }
                let compacted = self.compact_orders(voucher, before_ms, candidates);
                let CompactReply::Compacted { released, used, shortened } = self.pace.step(compacted).await?
                else {
                    return Ok(());
                };
                report.released += released;
                report.used += used;
                report.shortened += shortened;
            }
        }
        Ok(())
    }

    async fn compact_orders(
        &self,
        voucher: VoucherId,
        before_ms: i64,
        candidates: &[Candidate],
    ) -> Result<CompactReply, CompareError> {
        let ids: Vec<i64> = candidates.iter().map(|it| it.order.get()).collect();
        let mysql = self.stores.mysql();
        let rows: HashMap<i64, OrderRow> =
            mysql.orders().by_ids(&ids).await?.into_iter().map(|row| (row.order.get(), row)).collect();
        // Most remaining orders of an old sale are live, and their rows need no further queries.
        let may_be_final = |id: &i64| {
            rows.get(id).is_some_and(|row| row.state() != RowState::Live || row.status == OrderRow::USED)
        };
        let ended: Vec<i64> = ids.iter().copied().filter(may_be_final).collect();
        let rowless: Vec<i64> = ids.into_iter().filter(|id| !rows.contains_key(id)).collect();
        let refusals = mysql.refusals().by_ids(&rowless).await?.into_iter();
        let refusals = refusals.map(|refusal| (refusal.order.get(), refusal)).collect();
        let events = mysql.events().sums(&ended).await?;
        let facts = Facts { rows, refusals, events };
        let mut seen = HashSet::new();
        let compacts: Vec<OrderCompaction> = candidates
            .iter()
            .filter(|it| seen.insert(it.order))
            .filter_map(|it| facts.compact(it, voucher.get(), before_ms))
            .collect();
        if compacts.is_empty() {
            return Ok(CompactReply::Compacted { released: 0, used: 0, shortened: 0 });
        }
        Ok(self.stores.redis.repairs().compact(voucher, before_ms, &compacts).await?)
    }
}

fn candidate(name: &[u8], note: &[u8], before_ms: i64) -> Option<Candidate> {
    let JournalField::Order(order) = JournalField::parse(str::from_utf8(name).ok()?) else { return None };
    let entry = JournalNote::parse(note)?;
    let is_old = entry.at_ms.is_some_and(|at_ms| at_ms < before_ms);
    let is_known = entry.is_admission() || entry.is_release();
    (is_old && is_known)
        .then(|| Some(Candidate { order, found: str::from_utf8(note).ok()?.to_owned(), entry }))?
}

impl Facts {
    fn compact(&self, it: &Candidate, voucher: i64, before_ms: i64) -> Option<OrderCompaction> {
        let id = it.order.get();
        let row = self.rows.get(&id);
        if it.entry.is_release() {
            let is_refused =
                |refusal: &RefusalRow| refusal.voucher == voucher && is_before(refusal.entry, before_ms);
            let is_final = match row {
                Some(row) => self.end(row, voucher, before_ms) == Some(FinalOrder::Ended),
                None => self.refusals.get(&id).is_some_and(is_refused),
            };
            return is_final.then(|| OrderCompaction::remove(it.order, &it.found))?;
        }
        let row = row.filter(|row| it.entry.by.as_deref() == Some(&*row.user.to_string()))?;
        match self.end(row, voucher, before_ms) {
            Some(FinalOrder::Used) if it.entry.change == Some(-row.quantity) => {
                OrderCompaction::remove(it.order, &it.found)
            }
            // The order has ended and is not released: this is a difference that an operator has to see.
            Some(FinalOrder::Ended) => None,
            _ => OrderCompaction::shorten(it.order, &it.found),
        }
    }

    fn end(&self, row: &OrderRow, voucher: i64, before_ms: i64) -> Option<FinalOrder> {
        let end = FinalOrder::of(row, self.events.get(&row.order), before_ms);
        end.filter(|_| row.voucher == voucher)
    }
}
