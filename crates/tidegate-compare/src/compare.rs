//! One read of both stores. The result is a list of orders and users for which the stores disagree. These candidates
//! are then checked one by one. Values may come from slightly different times.

mod dead;
mod follow;
mod stream;

use std::collections::{BTreeSet, HashMap};

use crate::{
    CompareError, Job, Pace,
    counts::OrderCounter,
    in_flight::{InFlight, VoucherIndex},
    judge::{FinalOrder, holds, is_before, is_set_by_others, is_since},
    reconciled::DifferenceKind,
    redis_side::DeadOrders,
    report::Tally,
    stores::ComparedStores,
    table::{Part, Said, Table, hash_of},
};
use tidegate_orders::{
    JournalField, JournalNote, OrderId, UserId, VoucherId,
    records::{
        EventSum, OrderRow, PAGE,
        journal::{JournalSum, Sum},
    },
    scripts::JournalSnapshot,
};
use tidegate_stream::EntryId;

pub(crate) use stream::WithEvents;

/// The number of differences that every pass can report. If there are more, the comparison may continue in parts.
const DIFFERENCES: usize = 1 << 18;
/// The smallest capacity of a table.
const FEWEST: usize = 1 << 12;
/// The largest number of orders of a part for an exact table: about 100 bytes each.
const COUNTED: u64 = 100_000;
/// The largest number of rows with a foreign status that are checked again. Such rows are no failure, and there may be
/// millions, so any further ones are only counted.
const BY_OTHERS: usize = 10_000;

/// The milliseconds after the snapshot from which a note must be dated by another clock.
const CLOCK_MS: i64 = 60_000;

/// The states of an order that a side can report.
const HOLDS: i64 = 1;
const ENDED: i64 = 2;
const KNOWN: i64 = 3;

/// A voucher with the facts that must be known before it is read.
#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) place: u32,
    pub(crate) snapshot: JournalSnapshot,
    /// Whether its journal is complete and compared. Otherwise the stream is compared, as far as it goes back.
    pub(crate) is_complete: bool,
    pub(crate) complete_since_ms: i64,
    /// Orders that were admitted earlier are not compared.
    pub(crate) since_ms: i64,
}

impl Sale {
    /// Whether an order with this time of admission is compared: it is neither too old nor later than the snapshot.
    fn has(&self, at_ms: Option<i64>) -> bool {
        at_ms.is_none_or(|at_ms| at_ms < self.snapshot.at_ms && at_ms >= self.since_ms)
    }

    /// Whether a note has a time outside the compared span, from a clock of Redis that was set back.
    fn is_out_of_time(&self, note: &JournalNote) -> bool {
        let is_wrong =
            |at_ms: i64| at_ms < self.since_ms || at_ms > self.snapshot.at_ms.saturating_add(CLOCK_MS);
        note.is_admission() && note.at_ms.is_some_and(is_wrong)
    }

    /// Whether the order of a note was admitted before the snapshot.
    fn is_before(&self, note: &JournalNote) -> bool {
        note.at_ms.is_none_or(|at_ms| at_ms < self.snapshot.at_ms)
    }

    /// The time before which the journal no longer holds final orders.
    fn compacted_before_ms(&self) -> Option<i64> {
        self.snapshot.purged.filter(|_| self.is_complete).map(|purged| purged.before_ms)
    }

    /// The final state of a row's order, if the journal need not hold the order any more.
    fn compacted(&self, row: &OrderRow, events: Option<&EventSum>) -> Option<FinalOrder> {
        FinalOrder::of(row, events, self.compacted_before_ms()?)
    }

    fn has_entry(&self, entry: Option<EntryId>) -> bool {
        self.has(entry.and_then(|entry| i64::try_from(entry.ms).ok()))
    }
}

/// The candidates that a pass left.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The order ids, each with the place of its voucher.
    pub(crate) orders: BTreeSet<(u32, i64)>,
    /// The user ids, each with the place of the voucher.
    pub(crate) users: BTreeSet<(u32, i64)>,
    /// The orders with events that MySQL has not recorded.
    pub(crate) with_events: WithEvents,
    /// Whether the candidates are complete. If not, there were too many, and the pass has to be repeated in parts.
    pub(crate) is_whole: bool,
}

/// The counts of a comparison, which the first pass makes.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) redis_orders: u64,
    pub(crate) mysql_orders: u64,
    pub(crate) sums: HashMap<u32, (Sum, i64)>,
    /// Notes of orders that cannot be read.
    pub(crate) unreadable: HashMap<u32, u64>,
    pub(crate) in_flight: HashMap<u32, (u64, i64)>,
    pub(crate) events_in_flight: HashMap<u32, u64>,
    pub(crate) dead: HashMap<u32, (u64, i64)>,
    pub(crate) by_others: HashMap<u32, (u64, i64)>,
    /// Used orders that should be compacted, and their units.
    pub(crate) used: HashMap<u32, (u64, i64)>,
    /// Rows with a foreign status that are checked again, and orders that MySQL released more than once.
    pub(crate) of_mysql: BTreeSet<(u32, i64)>,
    /// The counter of the orders' places, if they are counted, too.
    pub(crate) counts: Option<OrderCounter>,
    /// Orders that are in no complete journal and either nowhere or under an id of another order.
    pub(crate) unnoted: BTreeSet<(u32, i64)>,
}

/// One read of both stores.
pub(crate) struct Pass<'a> {
    pub(crate) stores: &'a ComparedStores,
    pub(crate) index: &'a VoucherIndex,
    pub(crate) sales: &'a [Option<Sale>],
    pub(crate) part: Part,
    is_counted: bool,
    pub(crate) pace: Pace,
    pub(crate) job: &'a Job,
    orders: Table,
    users: Table,
    with_events: WithEvents,
    in_flight: InFlight,
    counted: Counted,
}

impl<'a> Pass<'a> {
    /// Creates a pass over the orders of both stores. `expected` is the approximate number of orders in both stores.
    /// If orders are counted, those in no complete journal are followed instead of compared.
    pub(crate) fn new(
        stores: &'a ComparedStores,
        (index, sales): (&'a VoucherIndex, &'a [Option<Sale>]),
        (part, expected): (Part, u64),
        is_counted: bool,
        (pace, job): (Pace, &'a Job),
    ) -> Self {
        let journaled: u64 = sales.iter().flatten().map(|sale| sale.snapshot.journaled).sum();
        let is_small = part != Part::WHOLE && expected / part.of <= COUNTED;
        let differences = usize::try_from(journaled / 8).unwrap_or(DIFFERENCES).clamp(FEWEST, DIFFERENCES);
        // Each part has other contents, so its seed can be derived from its index.
        let seed = part.index ^ part.of.rotate_left(32);
        Self {
            stores,
            index,
            sales,
            part,
            is_counted,
            pace,
            job,
            orders: if is_small { Table::exact() } else { Table::new(differences, seed) },
            users: if is_small { Table::exact() } else { Table::new(differences, !seed) },
            with_events: WithEvents::default(),
            in_flight: InFlight::default(),
            counted: Counted::default(),
        }
    }

    /// Reads both stores; from the stream, only the entries since `since`. If `counts` are given, it counts the places
    /// of the orders.
    pub(crate) async fn run(
        mut self,
        since: EntryId,
        counts: Option<OrderCounter>,
    ) -> Result<(Candidates, Counted), CompareError> {
        self.counted.counts = counts;
        let redis = &self.stores.redis;
        // This comes before the read of in-flight entries: an entry up to here that is not in flight then has its
        // outcome in MySQL.
        let end = redis.inspector().last_id(&redis.inspector().names().stream).await?;
        self.in_flight = InFlight::read(redis, self.index, &self.pace).await?;
        self.counted.in_flight = std::mem::take(&mut self.in_flight.counts);
        self.counted.events_in_flight = std::mem::take(&mut self.in_flight.events);
        let sales = self.sales;
        for sale in sales.iter().flatten().filter(|sale| sale.is_complete) {
            self.read_buyers(sale).await?;
            self.read_journal(sale).await?;
        }
        self.stores.catch_up().await?;
        let first = self.stores.redis().first_entry().await?;
        self.read_stream((since.previous(), end)).await?;
        self.read_open_journals().await?;
        self.read_dead().await?;
        self.read_rows(first).await?;
        self.read_refusals(first).await?;
        self.finish_counts();
        let (orders, users) = (self.orders.left(), self.users.left());
        let pairs = |said: Vec<Said>| said.into_iter().map(|it| (it.voucher, it.id)).collect();
        let is_whole = orders.is_whole && users.is_whole && self.with_events.orders.len() <= DIFFERENCES;
        let (orders, users) = (pairs(orders.said), pairs(users.said));
        let candidates = Candidates { orders, users, with_events: self.with_events, is_whole };
        Ok((candidates, self.counted))
    }

    fn sale(&self, place: u32) -> Option<&'a Sale> {
        self.sales.get(place as usize)?.as_ref()
    }

    /// Whether this order is compared: its own entry is settled. An event of it may be in flight; then `Verify` only
    /// reports whether the order is lost.
    fn is_wanted(&self, place: u32, order: i64) -> bool {
        self.part.has(order) && !self.in_flight.has_own_entry(place, order)
    }

    fn go_on(&self) -> Result<(), CompareError> {
        if self.job.is_stopped() { Err(CompareError::Stopped) } else { Ok(()) }
    }

    async fn read_buyers(&mut self, sale: &Sale) -> Result<(), CompareError> {
        let Some(voucher) = self.index.voucher(sale.place) else { return Ok(()) };
        let (users, part, place) = (&mut self.users, self.part, sale.place);
        let add = |user| {
            if part.has(user) {
                users.add(&Said { id: user, voucher: place, what: 0 });
            }
        };
        Ok(self.stores.redis().read_buyers(voucher, self.pace, add).await?)
    }

    /// Reads the journal: compares its users with the buyers, and adds its orders to the table.
    async fn read_journal(&mut self, sale: &Sale) -> Result<(), CompareError> {
        let Some(voucher) = self.index.voucher(sale.place) else { return Ok(()) };
        let (part, place, progress) = (self.part, sale.place, &self.job.progress);
        let mut sum = (part == Part::WHOLE).then(|| JournalSum::new(sale.snapshot));
        let (orders, users, in_flight) = (&mut self.orders, &mut self.users, &self.in_flight);
        let (mut read, mut unreadable, mut fields) = (0, 0, 0_u64);
        let counts = &mut self.counted.counts;
        let seen = |field: JournalField<'_>, note: &JournalNote| {
            if let Some(sum) = &mut sum {
                sum.add(field, note);
            }
            fields += 1;
            let JournalField::Order(order) = field else { return };
            read += 1;
            unreadable += u64::from(!note.is_admission() && !note.is_release());
            if let Some(user) = note.buyer().filter(|user| part.has(user.get())) {
                users.take(&Said { id: user.get(), voucher: place, what: 0 });
            }
            let is_in_flight = in_flight.has_own_entry(place, order.get());
            if let Some(counts) = counts {
                if sale.is_out_of_time(note) {
                    counts.add_movement(voucher, order, note);
                } else {
                    counts.add_note(voucher, note, is_in_flight, sale.is_before(note));
                }
            }
            if part.has(order.get())
                && !is_in_flight
                && let Some(what) = said_by(note, sale)
            {
                orders.add(&Said { id: order.get(), voucher: place, what });
            }
        };
        let job = self.job;
        let page_read = |fields| progress.add(fields);
        self.stores.redis().read_journal(voucher, self.pace, seen, page_read).await?;
        if job.is_stopped() {
            return Err(CompareError::Stopped);
        }
        self.counted.redis_orders += read;
        self.counted.unreadable.insert(place, unreadable);
        if let Some(sum) = sum {
            let end = self.stores.redis.journals().snapshot(voucher).await?;
            if let Some(counts) = &mut self.counted.counts {
                // SCAN may return a field twice.
                let more = fields.saturating_sub(sale.snapshot.journaled.max(end.journaled));
                counts.noted(voucher).shown_twice = more;
            }
            self.counted.sums.insert(place, (sum.finish(&end), sum.loaded()));
        }
        Ok(())
    }

    async fn read_rows(&mut self, first: Option<EntryId>) -> Result<(), CompareError> {
        if !self.stores.are_chosen {
            return self.read_all_rows(first).await;
        }
        for (place, voucher) in (0..).zip(self.index.all()) {
            if self.sale(place).is_some() || self.counted.counts.is_some() {
                self.read_rows_of(*voucher, first).await?;
            }
        }
        Ok(())
    }

    async fn read_rows_of(&mut self, voucher: VoucherId, first: Option<EntryId>) -> Result<(), CompareError> {
        let mysql = self.stores.mysql();
        // Another program may have written a row with user 0.
        let mut after = -1;
        loop {
            let page = self.pace.step(mysql.orders().of_voucher_after(voucher, after)).await?;
            let Some(last) = page.last().map(|row| row.user) else { return Ok(()) };
            let ids: Vec<OrderId> = page.iter().map(|row| row.order).collect();
            let events = self.pace.step(mysql.events().sums(&ids)).await?;
            self.take_rows(&page, &events, first)?;
            // Numbers beyond 2^63-1 belong to no user of Tidegate.
            if last <= after {
                return Ok(());
            }
            after = last;
        }
    }

    async fn read_all_rows(&mut self, first: Option<EntryId>) -> Result<(), CompareError> {
        let mysql = self.stores.mysql();
        let mut after = 0;
        loop {
            let page = self.pace.step(mysql.orders().page_after(after)).await?;
            let Some(last) = page.last().map(|row| row.order.get()) else { return Ok(()) };
            let events = self.pace.step(mysql.events().sums_between((after, last))).await?;
            self.take_rows(&page, &events, first)?;
            after = last;
        }
    }

    fn take_rows(
        &mut self,
        page: &[OrderRow],
        events: &HashMap<OrderId, EventSum>,
        first: Option<EntryId>,
    ) -> Result<(), CompareError> {
        for row in page {
            self.take_row(row, events.get(&row.order), first);
        }
        self.job.progress.add(page.len() as u64);
        self.go_on()
    }

    fn take_row(&mut self, row: &OrderRow, events: Option<&EventSum>, first: Option<EntryId>) {
        self.count_row(row, events);
        let Some(place) = self.index.of_number(row.voucher) else { return };
        let Some(sale) = self.sale(place) else { return };
        let end = sale.compacted(row, events);
        if end == Some(FinalOrder::Used) {
            self.take_used(place, row);
        }
        // The order is older than the journal, which does not know that its user is a buyer.
        if sale.is_complete && holds(row) && !is_since(row, sale.complete_since_ms) && self.part.has(row.user)
        {
            self.users.take(&Said { id: row.user, voucher: place, what: 0 });
        }
        if !self.is_wanted(place, row.order.get()) || !sale.has_entry(row.entry) {
            return;
        }
        self.counted.mysql_orders += 1;
        if !self.in_flight.has_order(place, row.order.get()) {
            self.note_events(place, row, events);
        }
        // The journal does not have the order any more. A note that is still there is checked elsewhere.
        if end.is_some() {
            return;
        }
        let what = match sale.is_complete {
            true if holds(row) => hash_of(&[HOLDS, row.user, row.quantity]),
            true => hash_of(&[ENDED]),
            false if self.is_counted => return,
            // The entry of the order is gone, or never existed.
            false if row.entry.is_none_or(|entry| first.is_none_or(|first| entry < first)) => return,
            false => hash_of(&[KNOWN]),
        };
        self.orders.take(&Said { id: row.order.get(), voucher: place, what });
    }

    /// Handles a used order: its user is a buyer, and the journal does not have the order.
    fn take_used(&mut self, place: u32, row: &OrderRow) {
        if self.part.has(row.user) {
            self.users.take(&Said { id: row.user, voucher: place, what: 0 });
        }
        if self.part == Part::WHOLE {
            let counts = self.counted.used.entry(place).or_default();
            (counts.0, counts.1) = (counts.0 + 1, counts.1 + row.quantity);
        }
    }

    /// Notes the facts that only MySQL has.
    fn note_events(&mut self, place: u32, row: &OrderRow, events: Option<&EventSum>) {
        if events.is_some_and(|events| events.releases > 1) {
            self.counted.of_mysql.insert((place, row.order.get()));
        }
        if is_set_by_others(row, events) {
            if self.counted.of_mysql.len() < BY_OTHERS {
                self.counted.of_mysql.insert((place, row.order.get()));
            } else {
                let counts = self.counted.by_others.entry(place).or_default();
                (counts.0, counts.1) = (counts.0 + 1, counts.1 + row.quantity);
            }
        }
    }

    async fn read_refusals(&mut self, first: Option<EntryId>) -> Result<(), CompareError> {
        let mysql = self.stores.mysql();
        let mut after = 0;
        loop {
            let page = self.pace.step(mysql.refusals().page_after(after, PAGE)).await?;
            let Some(last) = page.last().map(|refusal| refusal.order.get()) else { return Ok(()) };
            for row in &page {
                self.count_refusal(row);
                let Some(place) = self.index.of_number(row.voucher) else { continue };
                let Some(sale) = self.sale(place).filter(|_| self.is_wanted(place, row.order.get())) else {
                    continue;
                };
                if sale.compacted_before_ms().is_some_and(|before_ms| is_before(row.entry, before_ms)) {
                    continue;
                }
                let is_known =
                    sale.is_complete || first.zip(row.entry).is_some_and(|(first, its)| its >= first);
                let is_known = is_known && (sale.is_complete || !self.is_counted);
                if is_known && sale.has_entry(row.entry) {
                    let what = hash_of(&[if sale.is_complete { ENDED } else { KNOWN }]);
                    self.orders.take(&Said { id: row.order.get(), voucher: place, what });
                }
            }
            self.go_on()?;
            after = last;
        }
    }
}

/// The state of an order in a complete journal; none if the order is not compared.
fn said_by(note: &JournalNote, sale: &Sale) -> Option<u64> {
    if note.is_admission() {
        let user = note.buyer().map_or(0, UserId::get);
        return sale
            .has(note.at_ms)
            .then(|| hash_of(&[HOLDS, user, note.change.unwrap_or(0).saturating_neg()]));
    }
    let admitted_ms = note.admitted.and_then(|admitted| admitted.at_ms).or(note.at_ms);
    sale.has(admitted_ms).then(|| hash_of(&[ENDED]))
}

/// Adds the counts of foreign statuses, except those that are checked again.
pub(crate) fn tally_by_others(counted: &Counted, index: &VoucherIndex, tally: &mut Tally) {
    for (place, (total, units)) in &counted.by_others {
        if let Some(voucher) = index.voucher(*place) {
            tally.add_many(voucher, DifferenceKind::StatusSetByOthers, (*total, *units));
        }
    }
}

/// Reads all dead letters, and returns them so that they can be found by order id.
pub async fn dead_orders(
    stores: &ComparedStores,
    index: &VoucherIndex,
    pace: Pace,
) -> Result<DeadOrders, CompareError> {
    let mut dead = DeadOrders::default();
    stores.redis().read_dead(index, pace, |letter| dead.add(letter)).await?;
    Ok(dead)
}
