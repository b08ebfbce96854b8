//! The busy marker of a fleet: when its oldest unread order is too old, sales are marked as busy, so that buyers hear so instead of
//! waiting in a queue that is not served. The marks end by themselves when nobody renews them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::Context;
use fred::interfaces::KeysInterface;
use sqlx::MySqlPool;
use tidegate_orders::{
    RedisStore, VoucherId,
    gate::{BusyMark, MarkedSales},
    records::vouchers,
};
use tidegate_stream::{EntryId, PageSize};

/// How long a mark lasts that nobody renews.
pub const MARK_LASTS: Duration = Duration::from_secs(3);
/// The last entries of the stream say what is being sold. Of so many at most it is read in a pass.
const LAST_ENTRIES: u16 = 200;
/// Sales that are marked at most; which were sold last is what counts.
const MOST_SALES: usize = 2_000;
/// Between two looks at the vouchers that MySQL has on sale.
const LIST_EVERY: Duration = Duration::from_secs(5);

/// When a fleet marks its sales as busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusyMarkerSettings {
    /// Busy when its oldest unread entry is older, until it is half as old. None: never.
    pub busy_after: Option<Duration>,
    /// Sales refuse when no worker lives.
    pub needs_workers: bool,
}

impl BusyMarkerSettings {
    /// There is something to do.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.busy_after.is_some() || self.needs_workers
    }
}

/// What a pass came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusyPass {
    /// The fleet is too far behind.
    pub is_busy: bool,
    /// Age of its oldest unread entry; zero when there is none.
    pub oldest_unread: Duration,
    /// Sales that have a mark, and vouchers that cannot have one.
    pub sales: MarkedSales,
}

/// Marks the sales of a fleet as busy, and takes the marks away. Two of them do no harm.
#[derive(Debug)]
pub struct BusyMarker {
    settings: BusyMarkerSettings,
    redis: RedisStore,
    mysql: MySqlPool,
    is_busy: bool,
    /// Whose orders were last in the stream while it was busy.
    sold: BTreeMap<VoucherId, Instant>,
    page: PageSize,
    /// What MySQL has on sale.
    listed: Vec<VoucherId>,
    listed_at: Option<Instant>,
    /// Until when sales that need workers are served; None: they need none.
    served_until: Option<Instant>,
}

impl BusyMarker {
    /// Of one partition. It needs a session of `mysql` only where sales need workers.
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

    /// Whether buyers hear that sales are busy: the fleet is too far behind, or sales need workers and their marks were not renewed
    /// in time. It counts for the one that marks, and also after a pass that failed.
    #[must_use]
    pub fn is_refusing(&self) -> bool {
        self.is_busy || self.served_until.is_some_and(|until| until <= Instant::now())
    }

    /// Looks at the backlog once, and marks sales, or takes marks away.
    ///
    /// # Errors
    /// When Redis does not answer. Marks that are not renewed end by themselves.
    pub async fn pass(&mut self) -> anyhow::Result<BusyPass> {
        let oldest_unread = self.oldest_unread().await.context("Failed to look at the backlog")?;
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

    /// Busy from the one age on and down to half of it: a fleet that is just behind does not change its mind all the time.
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

    /// While MySQL is away, the list of before counts.
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
            Err(error) => tracing::debug!(%error, "could not read what is on sale"),
        }
        Ok(())
    }

    /// Where sales needed workers before, and do not any more: takes their marks away, which would not end by themselves. To be
    /// called now and then, as workers with the settings of before may still live. Answers with what it has changed.
    ///
    /// # Errors
    /// When a store does not answer; the next call goes on.
    pub async fn forget_need(&self) -> anyhow::Result<MarkedSales> {
        let note = self.redis.keys().fleet().sales_need_workers();
        if self.settings.needs_workers || !self.redis.pool().exists::<bool, _>(&note).await? {
            return Ok(MarkedSales::default());
        }
        // First the note: a worker of before that still marks sales writes it again.
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

/// Notes what is shown as sold now, and forgets what has not been for as long as its mark lasts, and the oldest of too many: so what is
/// sold now always has room.
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
