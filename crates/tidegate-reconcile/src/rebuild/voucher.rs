//! The rebuild of one voucher. While its row is locked, the rebuild fills in the orders of MySQL, and then the further
//! orders of the stream, the dead letters and the previous journal. Then the new keys replace the old ones.

use std::collections::HashMap;

use anyhow::Context;
use bytes::Bytes;
use futures_util::TryStreamExt;
use jiff::Timestamp;
use tidegate_compare::{
    Job,
    redis_side::{BY_REBUILD, CompletedBy, RedisSide},
};
use tidegate_orders::{
    Order, OrderId, Quantity, RowState, UserId, VoucherId,
    records::{
        journal::{COMPLETE, JournalField, JournalNote, LIMITED, UnderLimits, write},
        vouchers::{self, KnownOrder, VoucherLock, VoucherLockError},
    },
    scripts::{
        CutOverReply, LimitUsage, NewSale, SaleWindow, ScanPages, ScriptError, StagedSale, StockChange,
    },
};
use tidegate_stream::{EntryId, server_time_ms};
use tokio::time::Instant;

use super::{
    NotRebuilt, Rebuild, RebuildReport, VoucherReport,
    backlog::{Unwritten, UnwrittenOrders},
};

/// The number of orders that are written to Redis at once.
const PIECE: usize = 1_000;
/// The number of orders unknown to MySQL after which the session with the lock is used again.
const UNWRITTEN_PIECE: usize = 20_000;
/// The number of attempts at which new entries keep coming, until the rebuild gives up.
const MOST_SWITCHES: u32 = 1_000;

/// The facts of the previous journal about an order that MySQL does not know.
#[derive(Clone, Debug)]
enum Beyond {
    Admitted { user: UserId, quantity: Quantity, at_ms: i64, limited: Option<UnderLimits> },
    Released { user: Option<UserId>, units: i64, by: String, at_ms: i64 },
}

/// A voucher while it is being rebuilt.
struct Filling<'a> {
    rebuild: &'a Rebuild,
    frozen: VoucherLock,
    staged: StagedSale,
    report: VoucherReport,
    beyond: HashMap<OrderId, Beyond>,
    /// The latest time that a note may have: the clocks of the two stores differ.
    now_ms: i64,
    /// The units of orders that MySQL does not know.
    held: i64,
    /// The uses of limits that orders hold.
    limits: LimitUsage,
}

impl Rebuild {
    pub(super) async fn rebuild_voucher(
        &self,
        voucher: VoucherId,
        id: &str,
        backlog: &mut UnwrittenOrders,
        all: &mut RebuildReport,
        job: &Job,
    ) -> anyhow::Result<VoucherReport> {
        let report = VoucherReport::new(voucher);
        let began = Instant::now();
        let frozen = match VoucherLock::lock(&self.mysql, voucher).await {
            Ok(Some(frozen)) => frozen,
            Ok(None) => return Ok(report.refused_with(NotRebuilt::NoRow)),
            Err(error @ VoucherLockError::Held(_)) => {
                return Ok(report.refused_with(NotRebuilt::RowHeld(error.to_string())));
            }
            Err(error) => return Err(error.into()),
        };
        if frozen.row.delisted_ms.is_some() {
            frozen.end().await;
            return Ok(report.refused_with(NotRebuilt::Delisted));
        }
        let window = frozen.row.window();
        let sale = self.redis.sales().read_voucher(voucher).await.ok();
        let is_on = sale.is_some_and(|sale| sale.stock.is_some() && sale.window.end.is_none());
        if is_on && window.is_over(Timestamp::now()) {
            frozen.end().await;
            return Ok(report.refused_with(NotRebuilt::OverInMysql(window)));
        }
        let now_ms = server_time_ms(self.redis.pool()).await.context("Failed to read the clock of Redis")?;
        let mut filling = Filling {
            rebuild: self,
            frozen,
            staged: StagedSale::new(self.redis.keys(), voucher, id),
            report,
            beyond: HashMap::new(),
            now_ms: i64::try_from(now_ms).unwrap_or(i64::MAX),
            held: 0,
            limits: LimitUsage::default(),
        };
        let filled = filling.fill(id, backlog, all, job).await;
        let Filling { frozen, mut report, .. } = filling;
        frozen.end().await;
        report.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        match filled {
            Ok(None) => Ok(report),
            Ok(Some(reason)) => Ok(report.refused_with(reason)),
            // A key of another type, or a lack of memory, affects this voucher only: the others can be rebuilt.
            Err(error) => match error.downcast_ref::<ScriptError>() {
                Some(ScriptError::Refused(_) | ScriptError::Unexpected { .. }) => {
                    Ok(report.refused_with(NotRebuilt::KeyInTheWay(format!("{error:#}"))))
                }
                _ => Err(error),
            },
        }
    }
}

impl Rebuild {
    /// Finds which program made the present journal complete. None: Redis has no data of the voucher that shows it.
    async fn seen_journal(&self, voucher: VoucherId) -> anyhow::Result<Option<CompletedBy>> {
        let snapshot = match self.redis.journals().snapshot(voucher).await {
            // A key of another type shows nothing.
            Err(ScriptError::Refused(_) | ScriptError::Unexpected { .. }) => return Ok(None),
            snapshot => snapshot?,
        };
        if snapshot.stock.is_none() && snapshot.journaled == 0 {
            return Ok(None);
        }
        Ok(Some(RedisSide::of(&self.redis).completed_by(voucher).await?))
    }

    /// Whether the journal holds an admission: then the program that sells the voucher keeps a journal. Workers note
    /// only releases.
    async fn has_admission(&self, voucher: VoucherId) -> anyhow::Result<bool> {
        let is_admission =
            |(_, note): &(Bytes, Bytes)| JournalNote::parse(note).is_some_and(|entry| entry.is_admission());
        let mut pages = ScanPages::of_journal(&self.redis, voucher);
        while let Some(fields) = pages.next().await? {
            if fields.iter().any(is_admission) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Filling<'_> {
    /// Fills the new keys and switches to them. None: the new keys sell.
    async fn fill(
        &mut self,
        id: &str,
        backlog: &mut UnwrittenOrders,
        all: &mut RebuildReport,
        job: &Job,
    ) -> anyhow::Result<Option<NotRebuilt>> {
        let (redis, voucher) = (&self.rebuild.redis, self.frozen.row.voucher);
        let change = redis.staged_sales().read_change_text(voucher).await?;
        let is_open = |note: &String| {
            serde_json::from_str::<StockChange>(note)
                .is_ok_and(|note| note.state == tidegate_orders::scripts::ChangeState::Open)
        };
        if change.as_ref().is_some_and(is_open) {
            return Ok(Some(NotRebuilt::BeingAdjusted));
        }
        // This comes after the lock: earlier commits of other sessions are in the rows that are read now, or they take
        // the lock away.
        self.rebuild.catch_up().await?;
        // The refusals come first: if an order has a refusal and a row, the row counts.
        self.fill_refused().await?;
        self.fill_orders().await?;
        let loaded = self.frozen.row.stock + self.report.by_source.live.units;
        self.report.mysql_mismatch = self.frozen.row.initial_stock.map(|initial| loaded - initial);
        self.decide_journal().await?;
        let limits = self.rebuild.restore_limits(voucher).await?;
        let has_limits = limits.is_some();
        let mut sale = vec![(write::LOAD, write::load(loaded, BY_REBUILD, self.now_ms))];
        // A program that sells without a journal would add no notes to a journal that is called complete.
        if self.report.is_complete {
            sale.push((COMPLETE, write::complete(BY_REBUILD, id, self.now_ms)));
        }
        sale.extend(limits.map(|note| (LIMITED, note)));
        redis.staged_sales().stage_sale(&mut self.staged, &sale).await?;
        self.look_beyond().await?;
        let window = self.window().await;
        let mut is_first = true;
        for _ in 0..MOST_SWITCHES {
            backlog.advance(job).await?;
            let unwritten = backlog.drain(voucher);
            for piece in unwritten.chunks(UNWRITTEN_PIECE) {
                self.fill_unwritten(piece, backlog).await?;
                self.frozen.check().await?;
            }
            if std::mem::take(&mut is_first) {
                self.fill_beyond(backlog).await?;
            }
            self.rebuild.raise_counters(backlog, all).await?;
            // This comes before the sale opens, because otherwise a user could exceed a limit.
            redis.limits().recount(&self.limits).await?;
            self.frozen.check().await?;
            let stock = self.frozen.row.stock - self.held;
            let new = NewSale { stock, last: backlog.read_to(), window, has_limits, change: change.clone() };
            match redis.staged_sales().cut_over(&self.staged, &new).await? {
                CutOverReply::Done => {
                    self.report.stock = stock;
                    return Ok(None);
                }
                CutOverReply::EntriesCame => {}
                CutOverReply::OtherNote => return Ok(Some(NotRebuilt::BeingAdjusted)),
                CutOverReply::Incomplete => return Ok(Some(NotRebuilt::LostAgain)),
            }
        }
        anyhow::bail!("new entries arrive faster than the rebuild reads them; try again at a quieter time")
    }

    /// Decides whether the new journal is called complete. If MySQL does not know whether the sellers of the voucher
    /// keep a journal, the present keys show it, unless a rebuild made them.
    async fn decide_journal(&mut self) -> anyhow::Result<()> {
        let (rebuild, voucher) = (self.rebuild, self.frozen.row.voucher);
        let noted = vouchers::keeps_journal(&rebuild.mysql, voucher).await?;
        let (is_complete, is_guess) = match noted {
            Some(keeps) => (keeps, false),
            None => match rebuild.seen_journal(voucher).await? {
                Some(CompletedBy::Load) => (true, false),
                // The program that sold these orders has noted none of them.
                Some(CompletedBy::Nobody) if self.report.by_source.live.orders > 0 => {
                    (rebuild.has_admission(voucher).await?, true)
                }
                _ => (true, true),
            },
        };
        (self.report.is_complete, self.report.is_journal_guessed) = (is_complete, is_guess);
        Ok(())
    }

    async fn fill_refused(&mut self) -> anyhow::Result<()> {
        let (redis, now_ms) = (&self.rebuild.redis, self.now_ms);
        let mut refused = self.frozen.refused().try_chunks(PIECE);
        while let Some(orders) = refused.try_next().await.map_err(|error| error.1)? {
            orders.iter().for_each(|order| self.report.by_source.refused.add(order.quantity.get()));
            let notes: Vec<_> = orders.iter().map(|order| (order.order, note(order, now_ms))).collect();
            redis.staged_sales().stage(&mut self.staged, &notes, &[]).await?;
        }
        Ok(())
    }

    async fn fill_orders(&mut self) -> anyhow::Result<()> {
        let (redis, now_ms, voucher) = (&self.rebuild.redis, self.now_ms, self.frozen.row.voucher);
        let mut rows = self.frozen.orders().try_chunks(PIECE);
        while let Some(orders) = rows.try_next().await.map_err(|error| error.1)? {
            for order in &orders {
                let is_live = order.state == RowState::Live;
                if let Some(limited) = order.limited.as_ref().filter(|_| is_live) {
                    self.limits.add(voucher, order.user, order.quantity, limited);
                }
                let count =
                    if is_live { &mut self.report.by_source.live } else { &mut self.report.by_source.ended };
                count.add(order.quantity.get());
            }
            let notes: Vec<_> = orders.iter().map(|order| (order.order, note(order, now_ms))).collect();
            // A contradictory row keeps its buyer, too: MySQL gives its place to no other order.
            let buyers: Vec<_> =
                orders.iter().filter(|order| order.has_slot).map(|order| order.user).collect();
            redis.staged_sales().stage(&mut self.staged, &notes, &buyers).await?;
        }
        Ok(())
    }

    /// Reads the orders of the present journal that MySQL does not know.
    async fn look_beyond(&mut self) -> anyhow::Result<()> {
        let (redis, voucher) = (&self.rebuild.redis, self.frozen.row.voucher);
        let mut pages = ScanPages::of_journal(redis, voucher);
        loop {
            let fields = match pages.next().await {
                // A key of another type is replaced: a journal is a hash.
                Err(ScriptError::Refused(error)) if error.details().contains("WRONGTYPE") => return Ok(()),
                fields => fields?,
            };
            let Some(fields) = fields else { return Ok(()) };
            let orders: Vec<(OrderId, Bytes)> = fields
                .into_iter()
                .filter_map(|(name, note)| match JournalField::parse(&String::from_utf8_lossy(&name)) {
                    JournalField::Order(order) => Some((order, note)),
                    _ => None,
                })
                .collect();
            let ids: Vec<OrderId> = orders.iter().map(|(order, _)| *order).collect();
            let unstaged = redis.staged_sales().unstaged(&self.staged, &ids).await?;
            for ((order, note), _) in orders.into_iter().zip(unstaged).filter(|(_, is_unstaged)| *is_unstaged)
            {
                match beyond(&note, self.now_ms) {
                    Some(beyond) => drop(self.beyond.insert(order, beyond)),
                    None => self.report.unreadable_notes += 1,
                }
            }
            self.frozen.check().await?;
        }
    }

    /// Fills in the orders of the stream and the dead letters that MySQL does not know. They hold their units, whether
    /// a worker handles them or not.
    async fn fill_unwritten(
        &mut self,
        unwritten: &[Unwritten],
        backlog: &UnwrittenOrders,
    ) -> anyhow::Result<()> {
        let entries: Vec<EntryId> = unwritten.iter().map(|unwritten| unwritten.entry).collect();
        let open = backlog.in_flight(&entries).await.context("Failed to read the pending entries")?;
        let is_open = |unwritten: &Unwritten| open.contains(&unwritten.entry);
        // The order is acknowledged, and the previous journal has released it: no worker will write it.
        let is_over = |unwritten: &&Unwritten| {
            let beyond = self.beyond.get(&unwritten.order.id);
            !is_open(unwritten) && !unwritten.is_dead && matches!(beyond, Some(Beyond::Released { .. }))
        };
        let held: Vec<&Unwritten> = unwritten.iter().filter(|unwritten| !is_over(unwritten)).collect();
        let note = |Unwritten { order, entry, .. }: &Unwritten| {
            let at_ms = i64::try_from(entry.ms).unwrap_or(i64::MAX).min(self.now_ms);
            let note = write::admission(order.user, order.quantity, at_ms);
            (order.id, write::with_limits(note, UnderLimits::of(order).as_ref()))
        };
        let notes: Vec<_> = held.iter().map(|unwritten| note(unwritten)).collect();
        let new = self.rebuild.redis.staged_sales().stage_new(&mut self.staged, &notes).await?;
        let mut buyers = Vec::with_capacity(held.len());
        for unwritten in
            held.into_iter().zip(new).filter(|(_, is_new)| *is_new).map(|(unwritten, _)| unwritten)
        {
            let units = unwritten.order.quantity.get();
            buyers.push(unwritten.order.user);
            if let Some(limited) = UnderLimits::of(&unwritten.order) {
                let Order { voucher, user, quantity, .. } = unwritten.order;
                self.limits.add(voucher, user, quantity, &limited);
            }
            self.held += units;
            if is_open(unwritten) {
                self.report.by_source.in_flight.add(units);
            } else if unwritten.is_dead {
                self.report.by_source.dead.add(units);
            } else {
                self.report.by_source.lost.add(units);
                self.report.list(unwritten.order.id);
            }
        }
        Ok(self.rebuild.redis.staged_sales().stage_buyers(&mut self.staged, &buyers).await?)
    }

    /// Fills in the orders that only the previous journal knows, as their callers were answered.
    async fn fill_beyond(&mut self, backlog: &mut UnwrittenOrders) -> anyhow::Result<()> {
        let mut beyond: Vec<(OrderId, Beyond)> = self.beyond.drain().collect();
        beyond.sort_unstable_by_key(|(order, _)| *order);
        let notes: Vec<(OrderId, String)> =
            beyond.iter().map(|(order, beyond)| (*order, beyond.note())).collect();
        let new = self.rebuild.redis.staged_sales().stage_new(&mut self.staged, &notes).await?;
        let mut buyers = Vec::new();
        for ((order, beyond), _) in beyond.into_iter().zip(new).filter(|(_, is_new)| *is_new) {
            if let Beyond::Admitted { user, quantity, limited, .. } = beyond {
                buyers.push(user);
                if let Some(limited) = limited {
                    self.limits.add(self.frozen.row.voucher, user, quantity, &limited);
                }
                self.held += quantity.get();
                self.report.by_source.only_in_journal.add(quantity.get());
                self.report.list(order);
                backlog.sequences.add_known(order);
            }
        }
        Ok(self.rebuild.redis.staged_sales().stage_buyers(&mut self.staged, &buyers).await?)
    }

    /// Reads the window from MySQL, with the milliseconds of Redis. A bound that only Redis has stays.
    async fn window(&self) -> SaleWindow {
        let there = self.rebuild.redis.sales().read_voucher(self.frozen.row.voucher).await.ok();
        let there = there.map(|there| there.window).unwrap_or_default();
        let window = self.frozen.row.window().with_milliseconds_of(&there);
        SaleWindow { begin: window.begin.or(there.begin), end: window.end.or(there.end) }
    }
}

/// The journal note for an order that MySQL has.
fn note(known: &KnownOrder, now_ms: i64) -> String {
    let KnownOrder { user, quantity, state, at_ms, ref limited, .. } = *known;
    let at_ms = at_ms.min(now_ms);
    match state {
        RowState::Live => write::with_limits(write::admission(user, quantity, at_ms), limited.as_ref()),
        RowState::Cancelled | RowState::Contradictory => {
            write::release(Some(user), quantity.get(), BY_REBUILD, at_ms)
        }
    }
}

/// Parses a note of the previous journal. None: it cannot be read.
fn beyond(note: &[u8], now_ms: i64) -> Option<Beyond> {
    let entry = JournalNote::parse(note)?;
    let at_ms = entry.at_ms.unwrap_or(now_ms).min(now_ms);
    if entry.is_release() {
        let (user, units) = (entry.admitted.and_then(|admitted| admitted.user), entry.change.unwrap_or(0));
        let is_word =
            |by: &String| by.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte));
        let by = entry.by.filter(is_word).unwrap_or_else(|| BY_REBUILD.to_owned());
        return Some(Beyond::Released { user, units, by, at_ms });
    }
    let quantity = Quantity::try_from(entry.change?.checked_neg()?).ok()?;
    let user = entry.by.as_ref()?.parse().ok()?;
    let limited = entry.limited.clone();
    entry.is_admission().then_some(Beyond::Admitted { user, quantity, at_ms, limited })
}

impl Beyond {
    fn note(&self) -> String {
        match self {
            Self::Admitted { user, quantity, at_ms, limited } => {
                write::with_limits(write::admission(*user, *quantity, *at_ms), limited.as_ref())
            }
            Self::Released { user, units, by, at_ms } => write::release(*user, *units, by, *at_ms),
        }
    }
}
