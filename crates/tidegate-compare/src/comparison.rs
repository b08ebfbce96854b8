//! A comparison of both stores during a sale: each order in the journals, the stream and the dead letters is compared
//! with MySQL.
//!
//! A comparison takes about 25 MB of memory for up to 260,000 differences at a time. In addition, it takes 24 bytes for
//! each entry in flight, and about 100 bytes for each dead letter. If there are more differences, it reads both stores
//! again in parts.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Instant,
};

use crate::{
    CompareError, Job, Pace,
    compare::{Candidates, Counted, Pass, Sale, tally_by_others},
    counters::counter_differences,
    counts::{OrderCounter, UnreleasedOrder},
    difference::Difference,
    in_flight::{InFlight, VoucherIndex},
    judge::FinalOrder,
    reconciled::Reconciled,
    redis_side::DeadLetter,
    report::{ComparisonReport, Tally},
    stores::ComparedStores,
    table::Part,
    totals::{OrdersAndUnits, VoucherTotals},
    verify::{AT_ONCE, BETWEEN, Verify},
    windows,
};
use bytes::Bytes;
use sqlx::MySqlPool;
use tidegate_orders::{
    CausalReads, JournalNote, JournalSum, RedisStore, Sum, VoucherId,
    records::{OrderRow, StockRow, journal::Purged, vouchers},
    sale,
    scripts::{ChangeState, RepairGuard, ScanPages, StockChange},
};
use tidegate_stream::{EntryId, StreamError, server_time_ms};
use tokio::time::sleep;

/// The number of attempts to read a voucher's stocks before the result stays unsure.
const MOST_BOOKS: usize = 4;
/// The largest number of vouchers that are on sale and should have a stock in Redis, the highest ids first.
const MOST_ON_SALE: u32 = 10_000;
/// The number of parts into which a part with too many differences is divided.
const DIVIDED: u64 = 8;

/// The vouchers and the orders that a comparison of Redis and MySQL covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonRequest {
    /// The vouchers to compare. Empty: all vouchers that Redis or MySQL knows.
    pub vouchers: Vec<VoucherId>,
    /// The admission time before which orders are not compared, in Unix milliseconds. None: all orders are compared.
    /// Stocks are always compared.
    pub since_ms: Option<i64>,
    /// The speed at which the comparison reads Redis and MySQL.
    pub pace: Pace,
}

impl ComparisonRequest {
    /// Whether the request covers all vouchers and all of their orders.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.vouchers.is_empty() && self.since_ms.is_none()
    }
}

/// A comparison of the orders and stocks in Redis and MySQL, with its connections and its request.
#[derive(Debug)]
pub struct Comparison {
    stores: ComparedStores,
    request: ComparisonRequest,
}

impl Comparison {
    /// Creates a comparison of the given Redis and MySQL.
    #[must_use]
    pub fn new((redis, mysql): (RedisStore, MySqlPool), request: ComparisonRequest) -> Self {
        // If all partitions share a table, most of its rows belong to other partitions.
        let are_chosen = !request.vouchers.is_empty() || redis.keys().partition().tag().is_some();
        let stores = ComparedStores { redis, mysql, causal_reads: Arc::default(), are_chosen };
        Self { stores, request }
    }

    /// Sets how the comparison waits for a MySQL node that lags behind its cluster. After this wait, a missing row
    /// really does not exist. By default, the comparison assumes a single MySQL server.
    #[must_use]
    pub fn reading_causally(mut self, causal_reads: Arc<CausalReads>) -> Self {
        self.stores.causal_reads = causal_reads;
        self
    }

    /// The connections to the compared Redis and MySQL.
    #[must_use]
    pub const fn stores(&self) -> &ComparedStores {
        &self.stores
    }

    /// Runs the comparison, which changes nothing. Calls `found` with each confirmed difference. All differences of a
    /// voucher are passed in one call, unless there are very many.
    ///
    /// # Errors
    /// Fails if a store cannot be read, the MySQL node lags, or `job` is stopped. The report has the differences of
    /// the orders.
    pub async fn run(
        &self,
        job: &Job,
        found: impl FnMut(&Difference),
    ) -> Result<ComparisonReport, CompareError> {
        Ok(self.look_at(self.vouchers().await?, None, job, found).await?.0)
    }

    /// Compares these vouchers in both stores. If `counts` are given, it also counts the places of their orders.
    pub(crate) async fn look_at(
        &self,
        vouchers: Vec<VoucherId>,
        counts: Option<OrderCounter>,
        job: &Job,
        mut found: impl FnMut(&Difference),
    ) -> Result<(ComparisonReport, Option<OrderCounter>), CompareError> {
        let began = Instant::now();
        let index = VoucherIndex::new(vouchers);
        let (sales, mut totals) = self.begin(&index, counts.is_some()).await?;
        let at_ms = match sales.iter().flatten().map(|sale| sale.snapshot.at_ms).min() {
            Some(at_ms) => at_ms,
            // Redis has lost all sales. Without a time, the fleet would compare again at once, for ever.
            None => self.now_ms().await?,
        };
        job.progress.expect(self.expected(&sales), "orders");
        let mut tally = Tally::default();
        let mut told = |difference: Difference| {
            found(&difference);
            tally.add(difference);
        };
        let (passes, mut counted) = self.compare((&index, &sales), counts, job, &mut told).await?;
        self.finish_totals(&index, &sales, &counted, &mut totals, job).await?;
        let (counters, counters_not_compared) =
            counter_differences(&self.stores, index.all(), &mut totals, (self.request.pace, job)).await?;
        totals.iter().flat_map(VoucherTotals::differences).chain(counters).for_each(&mut told);
        tally_by_others(&counted, &index, &mut tally);
        let report = ComparisonReport {
            at_ms,
            took_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            redis_orders: counted.redis_orders,
            mysql_orders: counted.mysql_orders,
            passes,
            vouchers: tally.into_comparisons(totals),
            counters_not_compared,
        };
        Ok((report, counted.counts.take()))
    }

    /// Compares order by order. Returns the number of reads of both stores, and the counts.
    async fn compare(
        &self,
        (index, sales): (&VoucherIndex, &[Option<Sale>]),
        mut counts: Option<OrderCounter>,
        job: &Job,
        told: &mut impl FnMut(Difference),
    ) -> Result<(u64, Counted), CompareError> {
        let (stores, pace, is_counted) = (&self.stores, self.request.pace, counts.is_some());
        let (mut passes, mut counted) = (0, None);
        let mut parts = vec![Part::WHOLE];
        while let Some(part) = parts.pop() {
            passes += 1;
            let expected = counted.as_ref().map_or(0, |it: &Counted| it.redis_orders.max(it.mysql_orders));
            let pass = Pass::new(stores, (index, sales), (part, expected), is_counted, (pace, job));
            let (candidates, its) = pass.run(self.since(), counts.take()).await?;
            let Candidates { mut orders, users, with_events, is_whole } = candidates;
            let first = counted.get_or_insert(its);
            if !is_whole {
                parts.extend((0..DIVIDED).rev().map(|nth| part.divided(nth, DIVIDED)));
                continue;
            }
            orders.append(&mut first.of_mysql);
            orders.extend(&with_events.orders);
            let unnoted = &std::mem::take(&mut first.unnoted);
            orders.extend(unnoted);
            let with_events = &with_events;
            let verify = Verify { stores, index, sales, with_events, unnoted, is_counted, pace, job };
            verify.differences(orders, users).await?.into_iter().for_each(&mut *told);
        }
        let mut counted = counted.unwrap_or_default();
        if let Some(counts) = counted.counts.as_mut().filter(|counts| counts.unreadable.has_lost()) {
            self.look_at_unreadable_again(index, counts).await?;
        }
        Ok((passes, counted))
    }

    /// Checks unreadable entries again: they may have become dead letters or have been put back meanwhile.
    async fn look_at_unreadable_again(
        &self,
        index: &VoucherIndex,
        counts: &mut OrderCounter,
    ) -> Result<(), CompareError> {
        let (ComparedStores { redis, .. }, pace) = (&self.stores, self.request.pace);
        let in_flight = InFlight::read(redis, index, &pace).await?;
        let seen = |letter| {
            if let DeadLetter::Unreadable(entries) = letter {
                counts.unreadable.add_dead(&entries);
            }
        };
        self.stores.redis().read_dead(index, pace, seen).await?;
        counts.unreadable.set_in_flight(&in_flight.unreadable);
        Ok(())
    }

    /// Creates the counter for [`Comparison::look_at`], before anything else is read.
    pub(crate) async fn counts(&self, vouchers: &[VoucherId]) -> Result<OrderCounter, CompareError> {
        let (ComparedStores { redis, .. }, pace) = (&self.stores, self.request.pace);
        let end = redis.inspector().last_id(&redis.inspector().names().stream).await?;
        let open = InFlight::read(redis, &VoucherIndex::new(vouchers.to_vec()), &pace).await?;
        Ok(OrderCounter::after(end, open))
    }

    /// Finds the orders that MySQL has cancelled or refused and that journals still hold as admitted some time later.
    /// By then, work in progress has ended.
    pub(crate) async fn still_kept(
        &self,
        counts: &OrderCounter,
    ) -> Result<BTreeMap<VoucherId, Vec<UnreleasedOrder>>, CompareError> {
        let mut found: BTreeMap<VoucherId, Vec<UnreleasedOrder>> = BTreeMap::new();
        if counts.kept().next().is_some() {
            sleep(BETWEEN).await;
        }
        let is_admitted = |note: &Bytes| JournalNote::parse(note).is_some_and(|note| note.is_admission());
        for (voucher, orders) in counts.kept() {
            for orders in orders.chunks(AT_ONCE) {
                let ids: Vec<i64> = orders.iter().map(|it| it.order).collect();
                let (notes, _) = self.stores.redis().notes(voucher, &ids).await?;
                let kept = orders.iter().zip(notes);
                let kept = kept.filter(|(_, note)| note.as_ref().is_some_and(is_admitted));
                found.entry(voucher).or_default().extend(kept.map(|(order, _)| *order));
            }
        }
        Ok(found)
    }

    /// Reads the stocks of the compared vouchers in MySQL.
    pub(crate) async fn stocks(&self) -> Result<BTreeMap<VoucherId, StockRow>, CompareError> {
        let rows = self.stores.mysql().stocks().all(self.only()).await?;
        Ok(rows.into_iter().map(|row| (row.voucher, row)).collect())
    }

    /// Reads the slots with more than one live order, each as voucher and `user/slot`.
    pub(crate) async fn shared_slots(&self) -> Result<Vec<(VoucherId, String)>, CompareError> {
        Ok(self.stores.mysql().stocks().shared_slots(self.only()).await?)
    }

    /// Reads the vouchers that have orders, whether they have a stock or not. The result is empty if only some
    /// vouchers are compared, or if all rows are read anyway.
    pub(crate) async fn vouchers_with_orders(&self) -> Result<Vec<VoucherId>, CompareError> {
        if !self.is_whole() || !self.stores.are_chosen {
            return Ok(Vec::new());
        }
        Ok(self.stores.mysql().orders().vouchers(usize::MAX).await?)
    }

    /// Whether all vouchers are compared.
    pub(crate) fn is_whole(&self) -> bool {
        self.request.vouchers.is_empty()
    }

    /// The same comparison for these vouchers only.
    pub(crate) fn only_at(&self, vouchers: BTreeSet<VoucherId>) -> Self {
        let ComparedStores { redis, mysql, causal_reads, .. } = &self.stores;
        let request = ComparisonRequest { vouchers: vouchers.into_iter().collect(), ..self.request };
        Self::new((redis.clone(), mysql.clone()), request).reading_causally(Arc::clone(causal_reads))
    }

    /// Whether the voucher belongs to this partition.
    pub(crate) fn owns(&self, voucher: VoucherId) -> bool {
        self.stores.redis.keys().partition().owns(voucher)
    }

    /// Finds those of these vouchers that have no entry in flight, and whose stocks and journal have stayed the same.
    pub(crate) async fn at_rest(
        &self,
        totals: &[&VoucherTotals],
    ) -> Result<BTreeSet<VoucherId>, CompareError> {
        let mut at_rest = BTreeSet::new();
        if totals.is_empty() {
            return Ok(at_rest);
        }
        let (ComparedStores { redis, .. }, pace) = (&self.stores, self.request.pace);
        let asked: Vec<(VoucherId, i64)> = totals.iter().map(|its| (its.voucher, 0)).collect();
        let index = VoucherIndex::new(asked.iter().map(|(voucher, _)| *voucher).collect());
        let in_flight = InFlight::read(redis, &index, &pace).await?;
        // After the entries in flight: an order that was written between two reads must show in one of them.
        let sums = self.stores.mysql().stocks().sums(&asked).await?;
        for its in totals {
            let place = index.of(its.voucher);
            let is_busy = place
                .is_some_and(|it| in_flight.counts.contains_key(&it) || in_flight.events.contains_key(&it));
            let mysql_stock = sums.get(&its.voucher).and_then(|row| row.stock);
            let now = redis.journals().snapshot(its.voucher).await?;
            // A release and an admission since leave the same stock, but a longer journal.
            let in_redis = (now.stock, now.journaled) == (its.redis.stock, its.redis.journaled);
            if !is_busy && in_redis && mysql_stock == its.mysql.stock {
                at_rest.insert(its.voucher);
            }
        }
        Ok(at_rest)
    }

    fn only(&self) -> Option<VoucherId> {
        self.request.vouchers.first().copied().filter(|_| self.request.vouchers.len() == 1)
    }

    /// Reads all keys of a voucher that have a wrong type or content, each with the message of Redis.
    pub(crate) async fn wrong_keys(&self, voucher: VoucherId) -> Result<Vec<String>, CompareError> {
        let redis = &self.stores.redis;
        let (wrong, failed) = match self.stores.redis().wrong_stock(voucher).await {
            Ok(wrong) => (wrong, None),
            Err(error) => (None, Some(CompareError::from(error))),
        };
        let journal = ScanPages::of_journal(redis, voucher).next().await.err().map(CompareError::from);
        let buyers = ScanPages::of_buyers(redis, voucher).next().await.err().map(CompareError::from);
        let failed = [failed, journal, buyers].into_iter().flatten().map(CompareError::wrong_key);
        wrong.map(Ok).into_iter().chain(failed).collect()
    }

    /// Compares again after a repair, and stores the result, so that commands no longer show the repaired differences.
    /// `before` is the result that was stored before the repair. If the request does not cover all vouchers and orders,
    /// returns false and stores nothing.
    ///
    /// # Errors
    /// Fails as [`Self::run`] does.
    pub async fn keep_repaired(&self, before: Option<Reconciled>, job: &Job) -> Result<bool, CompareError> {
        if !self.request.is_whole() {
            return Ok(false);
        }
        let mut now = self.run(job, |_| {}).await?.outcome(before);
        let ComparedStores { redis, .. } = &self.stores;
        if let Some(kept) = Reconciled::read(redis).await? {
            // Other processes may write these two at any time.
            (now.removed, now.compacted_before_ms) = (kept.removed, kept.compacted_before_ms);
        }
        now.write(redis).await?;
        Ok(true)
    }

    /// Whether the comparison skips orders that were admitted before a requested time.
    #[must_use]
    pub const fn is_partial(&self) -> bool {
        self.request.since_ms.is_some()
    }

    /// Reads the values by which a later repair detects changes, for each voucher that Redis can read. Call this
    /// function before the comparison.
    ///
    /// # Errors
    /// Fails if Redis does not answer.
    pub async fn guards(&self) -> Result<BTreeMap<VoucherId, RepairGuard>, CompareError> {
        let mut guards = BTreeMap::new();
        for voucher in self.vouchers().await? {
            match self.stores.redis.repairs().repair_guard(voucher).await {
                Ok(guard) => _ = guards.insert(voucher, guard),
                Err(error) => _ = CompareError::from(error).wrong_key()?,
            }
        }
        Ok(guards)
    }

    async fn now_ms(&self) -> Result<i64, CompareError> {
        Ok(i64::try_from(server_time_ms(self.stores.redis.pool()).await?).unwrap_or(i64::MAX))
    }

    /// The vouchers of the scope, or all that have a stock in MySQL or a journal.
    pub(crate) async fn vouchers(&self) -> Result<Vec<VoucherId>, CompareError> {
        if !self.request.vouchers.is_empty() {
            return Ok(self.request.vouchers.clone());
        }
        let ComparedStores { redis, .. } = &self.stores;
        let stocks = self.stores.mysql().stocks().all(None).await?;
        let mut vouchers: Vec<VoucherId> = stocks.iter().map(|row| row.voucher).collect();
        let journaled = sale::find_journaled(redis, |_| {}).await;
        vouchers.extend(journaled.map_err(StreamError::from)?);
        Ok(vouchers)
    }

    /// Reads the snapshot of each voucher. A voucher is not compared if Redis holds no data of it, or if a key has a
    /// wrong type or content; its totals say so.
    async fn begin(
        &self,
        index: &VoucherIndex,
        is_counted: bool,
    ) -> Result<(Vec<Option<Sale>>, Vec<VoucherTotals>), CompareError> {
        let (mut sales, mut totals) = (Vec::new(), Vec::new());
        for (place, voucher) in (0..).zip(index.all()) {
            let mut its = VoucherTotals::new(*voucher);
            let sale = match self.sale(place, *voucher).await {
                // Entries and rows of the voucher may still exist.
                Ok(sale) if is_counted => Some(sale),
                Ok(sale) => Some(sale).filter(|sale| self.is_compared(sale)),
                Err(error) => {
                    its.redis.unreadable = Some(error.wrong_key()?);
                    None
                }
            };
            if sale.is_some() && !is_counted {
                // The comparison continues even if the Redis user may not use this command.
                its.redis.bytes = self.stores.redis.sales().memory_bytes(*voucher).await.ok();
            }
            sales.push(sale);
            totals.push(its);
        }
        Ok((sales, totals))
    }

    /// Whether Redis has data of the voucher, or the scope names it.
    fn is_compared(&self, sale: &Sale) -> bool {
        sale.snapshot.stock.is_some() || sale.snapshot.journaled > 0 || !self.request.vouchers.is_empty()
    }

    async fn sale(&self, place: u32, voucher: VoucherId) -> Result<Sale, CompareError> {
        let snapshot = self.stores.redis.journals().snapshot(voucher).await?;
        let complete_since_ms =
            if snapshot.is_complete { self.stores.redis().complete_since(voucher).await? } else { 0 };
        // If the clock of Redis was ahead and was set back, everything would seem older.
        let complete_since_ms = if complete_since_ms > snapshot.at_ms { 0 } else { complete_since_ms };
        if snapshot.is_complete {
            // This fails if the key has another type.
            self.stores.redis().are_buyers(voucher, &[1]).await?;
        }
        let since_ms = self.request.since_ms.unwrap_or(0).max(complete_since_ms);
        let is_complete = snapshot.is_complete;
        Ok(Sale { place, snapshot, is_complete, complete_since_ms, since_ms })
    }

    /// The first entry to compare.
    fn since(&self) -> EntryId {
        let ms = self.request.since_ms.and_then(|ms| u64::try_from(ms).ok());
        ms.map_or(EntryId::MIN, |ms| EntryId { ms, seq: 0 })
    }

    fn expected(&self, sales: &[Option<Sale>]) -> u64 {
        let journaled: u64 = sales.iter().flatten().map(|sale| sale.snapshot.journaled).sum();
        journaled * 2
    }

    /// Completes the totals. If something differs, the totals are read again, until two reads agree.
    async fn finish_totals(
        &self,
        index: &VoucherIndex,
        sales: &[Option<Sale>],
        counted: &Counted,
        totals: &mut [VoucherTotals],
        job: &Job,
    ) -> Result<(), CompareError> {
        for (place, its) in (0..).zip(totals.iter_mut()) {
            let counts = |counts: &std::collections::HashMap<u32, (u64, i64)>| {
                counts.get(&place).copied().unwrap_or_default()
            };
            (its.open.in_flight_orders, its.open.in_flight_units) = counts(&counted.in_flight);
            its.open.in_flight_events = counted.events_in_flight.get(&place).copied().unwrap_or_default();
            (its.open.dead_orders, its.open.dead_units) = counts(&counted.dead);
            let Some(sale) = sales.get(place as usize).and_then(Option::as_ref) else { continue };
            its.redis.unreadable_notes = counted.unreadable.get(&place).copied().unwrap_or(0);
            its.set_redis(&sale.snapshot, counted.sums.get(&place).copied());
            let (orders, units) = counts(&counted.used);
            its.mysql.used = its.redis.purged.map(|_| OrdersAndUnits { orders, units });
        }
        // Redis was asked for the stocks of these vouchers before.
        let partition = self.stores.redis.keys().partition();
        let on_sale = vouchers::on_sale_with_orders(&self.stores.mysql, partition, MOST_ON_SALE).await;
        let on_sale = on_sale?.into_iter().filter(|row| row.stock > 0);
        let on_sale: HashSet<VoucherId> = on_sale.map(|row| row.voucher).collect();
        let since = |(sale, voucher): (&Option<Sale>, &VoucherId)| {
            (*voucher, sale.as_ref().map_or(0, |sale| sale.complete_since_ms))
        };
        let compared: Vec<(VoucherId, i64)> = sales.iter().zip(index.all()).map(since).collect();
        let stocks = self.stores.mysql().stocks().sums(&compared).await?;
        for (place, its) in (0..).zip(totals.iter_mut()) {
            let row = stocks.get(&its.voucher);
            if its.redis.stock.is_none() && its.redis.unreadable.is_none() && on_sale.contains(&its.voucher) {
                // The voucher may have been loaded and bought since the comparison began.
                its.is_forgotten = self.stores.redis.journals().snapshot(its.voucher).await?.stock.is_none();
                its.mysql.stock = row.and_then(|row| row.stock);
            }
            let sale = sales.get(place as usize).and_then(Option::as_ref);
            if let Some(row) = row.filter(|_| sale.is_some() || counted.counts.is_some()) {
                its.set_mysql(row);
            }
            let Some(sale) = sale else { continue };
            if !its.differences().is_empty() || its.redis.is_unsure {
                self.read_totals_again(sale, its, job).await?;
            }
        }
        self.compare_windows(totals, job).await
    }

    async fn compare_windows(&self, totals: &mut [VoucherTotals], job: &Job) -> Result<(), CompareError> {
        let ComparedStores { redis, mysql, .. } = &self.stores;
        let sold = totals.iter().filter(|its| its.redis.stock.is_some()).map(|its| its.voucher);
        let sold: Vec<VoucherId> = sold.collect();
        for found in windows::mismatches((redis, mysql), &sold, &job.stop).await? {
            for its in totals.iter_mut().filter(|its| its.voucher == found.voucher) {
                its.window = Some(found);
            }
        }
        Ok(())
    }

    async fn read_totals_again(
        &self,
        sale: &Sale,
        totals: &mut VoucherTotals,
        job: &Job,
    ) -> Result<(), CompareError> {
        let voucher = totals.voucher;
        let mut before = None;
        for _ in 0..MOST_BOOKS {
            if job.is_stopped() {
                return Err(CompareError::Stopped);
            }
            let change = self.stores.redis.sales().read_change(voucher).await?;
            let snapshot = self.stores.redis.journals().snapshot(voucher).await?;
            let sum = if sale.is_complete { Some(self.sum(voucher, snapshot).await?) } else { None };
            totals.set_redis(&snapshot, sum);
            self.stores.catch_up().await?;
            if let Some(row) =
                self.stores.mysql().stocks().sums(&[(voucher, sale.complete_since_ms)]).await?.get(&voucher)
            {
                totals.set_mysql(row);
            }
            totals.mysql.used = match totals.redis.purged {
                Some(purged) => self.count_used(voucher, purged, job).await?,
                None => None,
            };
            totals.is_change_open =
                !is_settled(change, self.stores.redis.sales().read_change(voucher).await?);
            let found = totals.differences();
            if !totals.redis.is_unsure && (found.is_empty() || before.as_ref() == Some(&found)) {
                return Ok(());
            }
            before = Some(found);
        }
        Ok(())
    }

    /// Counts the used orders of MySQL that the journal does not hold, one by one. None: more was compacted meanwhile.
    async fn count_used(
        &self,
        voucher: VoucherId,
        purged: Purged,
        job: &Job,
    ) -> Result<Option<OrdersAndUnits>, CompareError> {
        let (mysql, mut count, mut after) = (self.stores.mysql(), OrdersAndUnits::default(), 0);
        loop {
            if job.is_stopped() {
                return Err(CompareError::Stopped);
            }
            let rows = self.request.pace.step(mysql.orders().used_after(voucher, after)).await?;
            let Some(last) = rows.last().map(|row| row.order.get()) else { return Ok(Some(count)) };
            let ids: Vec<i64> = rows.iter().map(|row| row.order.get()).collect();
            let events = self.request.pace.step(mysql.events().sums(&ids)).await?;
            let (notes, now) = self.request.pace.step(self.stores.redis().notes(voucher, &ids)).await?;
            if now != Some(purged) {
                return Ok(None);
            }
            let is_compacted = |row: &OrderRow| {
                FinalOrder::of(row, events.get(&row.order), purged.before_ms) == Some(FinalOrder::Used)
            };
            let missing = rows.iter().zip(notes).filter(|(row, note)| note.is_none() && is_compacted(row));
            for (row, _) in missing {
                (count.orders, count.units) = (count.orders + 1, count.units + row.quantity);
            }
            after = last;
        }
    }

    async fn sum(
        &self,
        voucher: VoucherId,
        snapshot: tidegate_orders::scripts::JournalSnapshot,
    ) -> Result<(Sum, i64), CompareError> {
        let mut sum = JournalSum::new(snapshot);
        let seen = |field: tidegate_orders::JournalField<'_>, note: &tidegate_orders::JournalNote| {
            sum.add(field, note);
        };
        self.stores.redis().read_journal(voucher, self.request.pace, seen, |_| {}).await?;
        let end = self.stores.redis.journals().snapshot(voucher).await?;
        Ok((sum.finish(&end), sum.loaded()))
    }
}

/// Whether no change of the stock was in progress between the two reads.
fn is_settled(before: Option<StockChange>, after: Option<StockChange>) -> bool {
    let is_open = |change: &Option<StockChange>| {
        change.as_ref().is_some_and(|change| change.state == ChangeState::Open)
    };
    !is_open(&before) && !is_open(&after) && before.map(|it| it.id) == after.map(|it| it.id)
}
