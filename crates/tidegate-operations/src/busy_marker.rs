//! The busy marker of a fleet. If the oldest unread order is too old, the marker marks the fleet's sales as busy.
//! Buyers then get that answer instead of waiting in a queue that no worker serves. The marks expire unless a process
//! renews them.

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

/// The time after which a mark expires unless a process renews it.
pub const MARK_LASTS: Duration = Duration::from_secs(3);
/// The entries that a pass reads at most from the end of the stream, to find the vouchers that are being sold.
const LAST_ENTRIES: u16 = 200;
/// The sales that are marked at most; the ones that were sold last come first.
const MOST_SALES: usize = 2_000;
/// The time between two reads of the vouchers that MySQL has on sale.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// The conditions under which a fleet marks its sales as busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyMarkerSettings {
    /// The age of the oldest unread entry above which sales are busy, until it has fallen to half of that. None: never.
    pub busy_after: Option<Duration>,
    /// Whether sales refuse orders while no worker lives.
    pub needs_workers: bool,
}

impl BusyMarkerSettings {
    /// Returns whether any of these settings is in use.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.busy_after.is_some() || self.needs_workers
    }
}

/// The result of one pass of the busy marker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyPass {
    /// Whether the fleet is too far behind.
    pub is_busy: bool,
    /// The age of the fleet's oldest unread entry; zero if there is none.
    pub oldest_unread: Duration,
    /// The number of sales that have a mark, and the vouchers that cannot have one.
    pub sales: MarkedSales,
}

/// Marks the sales of a fleet as busy, and removes the marks. Two markers at the same time do no harm.
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
    /// Creates the busy marker of one partition. It needs a session of `mysql` only if sales need workers.
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

    /// Returns whether sales answer that they are busy: the fleet is too far behind, or sales need workers and the
    /// marks were not renewed in time. The answer is also valid after a failed pass, but only in the process that runs
    /// the passes.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.is_busy || self.served_until.is_some_and(|until| until <= Instant::now())
    }

    /// Reads the backlog once, and sets or removes the marks of sales.
    ///
    /// # Errors
    /// If Redis does not answer. Marks that are not renewed expire.
    pub async fn pass(&mut self) -> anyhow::Result<BusyPass> {
        let oldest_unread = self.oldest_unread().await.context("Failed to read the backlog")?;
        let is_busy = self.is_busy_at(oldest_unread);
        let was_busy = std::mem::replace(&mut self.is_busy, is_busy);
        if self.is_busy {
            self.note_what_is_sold().await.context("Failed to read what is sold")?;
        }
        if self.settings.needs_workers {
            self.list().await.context("Failed to note that sales need workers")?;
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
            Err(error) => tracing::debug!(%error, "could not read the vouchers on sale"),
        }
        Ok(())
    }

    /// Removes the marks of sales that needed workers before and do not need them any more, because those marks do not
    /// expire. Call it repeatedly, because workers with the previous settings may still run. It returns what it has
    /// changed.
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
