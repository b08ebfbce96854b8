//! The task that sets busy marks on the sales of a fleet if the oldest unread order is too old. The scripts then
//! answer buyers that the sale is busy, and buyers do not wait in a queue that no worker serves. The marks expire
//! unless a process renews them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Context;
use fred::interfaces::KeysInterface;
use sqlx::MySqlPool;
use tidegate_orders::{
    RedisStore, VoucherId,
    records::vouchers,
    scripts::{BusyMark, MarkedSales},
};
use tidegate_stream::{EntryId, PageSize};

/// The time after which a sale's busy mark expires, unless a process renews the mark. A sale with a busy mark
/// refuses new orders.
pub const MARK_LASTS: Duration = Duration::from_secs(3);
/// The entries that a pass reads at most from the end of the stream, to find the vouchers that are being sold.
const LAST_ENTRIES: u16 = 200;
/// The sales that are marked at most; the ones that were sold last come first.
const MOST_SALES: usize = 2_000;
/// The time between two reads of the vouchers that MySQL has on sale.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// The conditions under which workers mark the sales of a partition as busy. A busy sale refuses orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyMarkerSettings {
    /// The maximum age of the oldest unread entry. Above this age, sales become busy. At half of this age, sales stop
    /// being busy. None: sales are never busy.
    pub busy_after: Option<Duration>,
    /// Whether sales refuse orders while no worker is alive.
    pub needs_workers: bool,
}

impl BusyMarkerSettings {
    /// Returns whether at least one setting can make sales refuse orders as busy.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.busy_after.is_some() || self.needs_workers
    }
}

/// The result of one run of [`BusyMarker::pass`], which sets or removes the busy marks of sales.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyPass {
    /// Whether workers are too far behind, so that sales refuse orders.
    pub is_busy: bool,
    /// The age of the oldest entry that no worker has read; zero: all entries are read.
    pub oldest_unread: Duration,
    /// The number of sales that have a busy mark, and the vouchers whose sales cannot have a busy mark.
    pub sales: MarkedSales,
}

/// The task that sets busy marks on sales, and removes these marks. A sale with a busy mark refuses orders. Two
/// processes may run this task at the same time.
#[derive(Debug)]
pub struct BusyMarker {
    settings: BusyMarkerSettings,
    redis: RedisStore,
    mysql: MySqlPool,
    is_busy: bool,
    /// The vouchers whose orders were at the end of the stream while it was busy.
    sold: BTreeMap<VoucherId, Instant>,
    page: PageSize,
    /// The vouchers that MySQL has on sale.
    listed: Vec<VoucherId>,
    listed_at: Option<Instant>,
    /// The time until which sales that need workers are served; None: they need none.
    served_until: Option<Instant>,
}

impl BusyMarker {
    /// Creates the task that marks the sales of one partition as busy. The task uses MySQL only if sales need living
    /// workers.
    #[must_use]
    pub fn new(settings: BusyMarkerSettings, redis: RedisStore, mysql: MySqlPool) -> Self {
        Self {
            settings,
            redis,
            mysql,
            is_busy: false,
            sold: BTreeMap::new(),
            page: PageSize::new(LAST_ENTRIES),
            listed: Vec::new(),
            listed_at: None,
            served_until: settings.needs_workers.then(|| Instant::now() + MARK_LASTS),
        }
    }

    /// Returns whether sales refuse orders as busy: workers are too far behind, or this process did not renew the busy
    /// markers in time. The answer is valid only in the process that calls [`BusyMarker::pass`]. A failed call does not
    /// make the answer invalid.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.is_busy || self.served_until.is_some_and(|until| until <= Instant::now())
    }

    /// Reads the age of the oldest unread stream entry once, and sets or removes the busy marks of sales.
    ///
    /// # Errors
    /// If Redis does not answer. Marks that are not renewed expire.
    pub async fn pass(&mut self) -> anyhow::Result<BusyPass> {
        let oldest_unread = self.oldest_unread().await.context("Failed to read the backlog of the stream")?;
        let is_busy = self.is_busy_at(oldest_unread);
        let was_busy = std::mem::replace(&mut self.is_busy, is_busy);
        if self.is_busy {
            self.note_what_is_sold().await.context("Failed to read which vouchers are being sold")?;
        }
        if self.settings.needs_workers {
            self.list().await.context("Failed to store in Redis that sales need workers")?;
        }
        let sold: Vec<VoucherId> = self.sold.keys().copied().collect();
        let sales = match (self.settings.needs_workers, self.is_busy) {
            (false, true) => self.redis.sales().mark_busy(&sold, BusyMark::BusyFor(MARK_LASTS)).await,
            (false, false) if was_busy => {
                let off = self.redis.sales().mark_busy(&sold, BusyMark::None).await;
                off.map(|marks| MarkedSales { changed: 0, ..marks })
            }
            (false, false) => Ok(MarkedSales::default()),
            (true, is_busy) => {
                let span = if is_busy { Duration::ZERO } else { MARK_LASTS };
                let all: BTreeSet<VoucherId> = sold.into_iter().chain(self.listed.iter().copied()).collect();
                let all: Vec<VoucherId> = all.into_iter().collect();
                self.redis.sales().mark_busy(&all, BusyMark::ServedFor(span)).await
            }
        };
        let sales = sales.context("Failed to mark sales")?;
        if self.settings.needs_workers {
            self.served_until = Some(Instant::now() + MARK_LASTS);
        }
        if !self.is_busy {
            self.sold.clear();
        }
        Ok(BusyPass { is_busy: self.is_busy, oldest_unread, sales })
    }

    /// Returns whether sales are busy at this age. They become busy above the limit and stay so down to half of it, so
    /// that a fleet near the limit does not switch all the time.
    fn is_busy_at(&self, age: Duration) -> bool {
        let Some(limit) = self.settings.busy_after else { return false };
        age > if self.is_busy { limit / 2 } else { limit }
    }

    async fn oldest_unread(&self) -> anyhow::Result<Duration> {
        let backlog = self.redis.inspector().group().backlog().await?;
        let Some(backlog) = backlog else { return Ok(Duration::ZERO) };
        let age = |entry: EntryId| Duration::from_millis(backlog.now_ms.saturating_sub(entry.ms));
        Ok(backlog.oldest_undelivered.map_or(Duration::ZERO, age))
    }

    async fn note_what_is_sold(&mut self) -> anyhow::Result<()> {
        let stream = &self.redis.inspector().names().stream;
        let range = (EntryId::MIN, EntryId::MAX);
        let last = self.redis.inspector().page_back(stream, range, self.page.count(u64::MAX)).await?;
        self.page.learn(last.iter().map(|entry| &entry.fields));
        let shown = last.iter().filter_map(|entry| self.redis.keys().fields().peek(entry).voucher);
        note(&mut self.sold, shown, Instant::now());
        Ok(())
    }

    /// Reads the vouchers on sale. While MySQL is unavailable, the previous list stays in use.
    async fn list(&mut self) -> anyhow::Result<()> {
        if self.listed_at.is_some_and(|at| at.elapsed() < LIST_EVERY) {
            return Ok(());
        }
        self.redis
            .pool()
            .set::<(), _, _>(self.redis.keys().fleet().sales_need_workers(), "yes", None, None, false)
            .await?;
        self.listed_at = Some(Instant::now());
        match vouchers::on_sale(&self.mysql, self.redis.keys().partition()).await {
            Ok(listed) => self.listed = listed,
            Err(error) => {
                tracing::debug!(%error, "failed to read the vouchers on sale; the previous list of vouchers stays in use")
            }
        }
        Ok(())
    }

    /// Removes the marks "this sale needs workers" after [`BusyMarkerSettings::needs_workers`] was switched off,
    /// because these marks do not expire. Call this function repeatedly, because workers with the old setting may still
    /// run. Returns the changed sales.
    ///
    /// # Errors
    /// If a store does not answer; the next call continues.
    pub async fn forget_need(&self) -> anyhow::Result<MarkedSales> {
        let note = self.redis.keys().fleet().sales_need_workers();
        if self.settings.needs_workers || !self.redis.pool().exists::<bool, _>(&note).await? {
            return Ok(MarkedSales::default());
        }
        // The note is deleted first: if a worker with the previous settings still marks sales, it writes the note
        // again.
        self.redis.pool().del::<(), _>(&note).await?;
        let forget = async {
            let listed = vouchers::on_sale(&self.mysql, self.redis.keys().partition()).await?;
            anyhow::Ok(self.redis.sales().mark_busy(&listed, BusyMark::None).await?)
        };
        let forgotten = forget.await;
        if forgotten.is_err() {
            self.redis.pool().set::<(), _, _>(&note, "yes", None, None, false).await?;
        }
        forgotten
    }
}

/// Notes the vouchers that are being sold now. It forgets vouchers that were not sold for the lifetime of a mark. If
/// there are too many, it also forgets the oldest ones, so that those being sold now always have room.
fn note(sold: &mut BTreeMap<VoucherId, Instant>, shown: impl Iterator<Item = VoucherId>, now: Instant) {
    sold.extend(shown.map(|voucher| (voucher, now)));
    sold.retain(|_, at| now.duration_since(*at) < MARK_LASTS);
    if sold.len() > MOST_SALES {
        let mut by_age: Vec<(Instant, VoucherId)> =
            sold.iter().map(|(voucher, at)| (*at, *voucher)).collect();
        by_age.sort_unstable();
        for (_, voucher) in &by_age[..by_age.len() - MOST_SALES] {
            sold.remove(voucher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sold_now_has_room_and_what_is_not_sold_any_more_is_forgotten() {
        let voucher = |id: usize| VoucherId::try_from(i64::try_from(id).unwrap()).unwrap();
        let (mut sold, begin) = (BTreeMap::new(), Instant::now());
        note(&mut sold, (1..=MOST_SALES).map(voucher), begin);
        let later = begin + MARK_LASTS / 2;
        note(&mut sold, [voucher(MOST_SALES + 1)].into_iter(), later);
        assert_eq!((sold.len(), sold.contains_key(&voucher(MOST_SALES + 1))), (MOST_SALES, true));
        note(&mut sold, std::iter::empty(), begin + MARK_LASTS);
        assert_eq!(sold.into_keys().collect::<Vec<_>>(), [voucher(MOST_SALES + 1)]);
    }
}
