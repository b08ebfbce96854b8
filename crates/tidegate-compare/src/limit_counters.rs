//! The comparison of limit counters in Redis with the orders, during a sale.
//!
//! The uses of an order are in its note of the journal; those of a compacted order are next to its row in MySQL. Both
//! sides are first added up in a `sketch`, whose memory does not grow with them. Only fields that may differ are
//! checked one by one, until two checks agree. Only windows that have not ended are compared, because Redis checks no
//! order against the others. A voucher without limits costs one call.

mod campaign;
mod candidates;
mod difference;
mod not_compared;
mod orders;
mod owners;
mod rounds;
mod set;
mod sketch;
mod suspects;

use std::collections::{BTreeMap, BTreeSet};

use sqlx::MySqlPool;
use tidegate_orders::{
    CampaignId, LimitOwner, RedisStore, VoucherId, limit_rows, limits::CountedWindows, records::vouchers,
};
use tokio_util::sync::CancellationToken;

pub use self::{
    difference::{Counter, CounterDifference},
    not_compared::{NotCompared, NotComparedReason},
    set::CountersSet,
};
use self::{orders::Orders, owners::Owners, suspects::Suspects};
use crate::{CompareError, Pace};

/// The results of a check of limit counters.
#[derive(Clone, Debug, Default)]
pub struct LimitCounterReport {
    /// The counters with a wrong value, and the limits that orders exceed.
    pub differences: Vec<CounterDifference>,
    /// The vouchers that have a Redis key of a wrong type or content, each with the error of Redis.
    pub unreadable: Vec<(VoucherId, String)>,
    /// The counters that could not be checked, grouped by voucher or campaign and by reason.
    pub not_compared: BTreeSet<NotCompared>,
}

/// The check whether limit counters in Redis match the orders that they count.
#[derive(Clone, Copy, Debug)]
pub struct LimitCounterCheck<'a>(Orders<'a>);

/// The fields that are compared.
#[derive(Clone, Copy, Debug)]
enum Fields<'a> {
    All,
    /// Only these fields, which are checked one by one.
    Only(&'a BTreeSet<(LimitOwner, String)>),
}

/// The vouchers that are compared together.
struct Group {
    vouchers: Vec<VoucherId>,
    owners: Owners,
}

impl LimitCounterReport {
    fn add(&mut self, voucher: VoucherId, compared: Result<Self, CompareError>) -> Result<(), CompareError> {
        let found = self.keep(voucher, compared)?.unwrap_or_default();
        self.differences.extend(found.differences);
        self.not_compared.extend(found.not_compared);
        Ok(())
    }

    /// Returns what was read. None: a key has a wrong type or content, which this notes as unreadable.
    fn keep<T>(
        &mut self,
        voucher: VoucherId,
        read: Result<T, CompareError>,
    ) -> Result<Option<T>, CompareError> {
        let said = match read {
            Ok(read) => return Ok(Some(read)),
            Err(error) => error.wrong_key()?,
        };
        self.unreadable.push((voucher, said));
        Ok(None)
    }
}

impl Group {
    fn not_compared(&self, asked: &BTreeSet<VoucherId>, why: NotComparedReason) -> LimitCounterReport {
        let places = self.owners.all().map(|(place, _)| place);
        let not_compared = self.not_compared_at(places, asked, why);
        LimitCounterReport { not_compared, ..LimitCounterReport::default() }
    }

    /// The owners at these places that were not compared, without vouchers that were not requested.
    fn not_compared_at(
        &self,
        places: impl Iterator<Item = usize>,
        asked: &BTreeSet<VoucherId>,
        why: NotComparedReason,
    ) -> BTreeSet<NotCompared> {
        let owners = places.map(|place| self.owners.get(place).owner);
        let is_asked = |owner: &LimitOwner| match owner {
            LimitOwner::Voucher(voucher) => asked.contains(voucher),
            LimitOwner::Campaign(_) => true,
        };
        owners.filter(is_asked).map(|owner| NotCompared { owner, why }).collect()
    }
}

impl<'a> LimitCounterCheck<'a> {
    /// Creates a check of limit counters in the given stores. The check ends when `stop` is cancelled.
    #[must_use]
    pub const fn new(
        redis: &'a RedisStore,
        mysql: &'a MySqlPool,
        pace: Pace,
        stop: &'a CancellationToken,
    ) -> Self {
        Self(Orders { redis, mysql, pace, stop })
    }

    /// Compares the limit counters of the given vouchers and of their campaigns with the orders, and changes nothing.
    /// To check a campaign, this function reads the orders of all its vouchers.
    ///
    /// # Errors
    /// Fails for the reasons in [`CompareError`].
    pub async fn compare(&self, vouchers: &[VoucherId]) -> Result<LimitCounterReport, CompareError> {
        self.compare_fields(vouchers, Fields::All).await
    }

    async fn compare_fields(
        &self,
        vouchers: &[VoucherId],
        fields: Fields<'_>,
    ) -> Result<LimitCounterReport, CompareError> {
        let mut report = LimitCounterReport::default();
        let mut campaigns: BTreeMap<CampaignId, BTreeSet<VoucherId>> = BTreeMap::new();
        for voucher in vouchers.iter().copied() {
            let windows = self.windows(LimitOwner::Voucher(voucher)).await;
            let Some(windows) = report.keep(voucher, windows)?.flatten() else { continue };
            if let Some(campaign) = windows.campaign {
                campaigns.entry(campaign).or_default().insert(voucher);
                continue;
            }
            let mut group = Group { vouchers: vec![voucher], owners: Owners::default() };
            group.owners.add(LimitOwner::Voucher(voucher), windows);
            report.add(voucher, self.compare_group(&group, &BTreeSet::from([voucher]), fields).await)?;
        }
        for (campaign, asked) in campaigns {
            let Some(first) = asked.first() else { continue };
            let found = async {
                let group = self.group_of(campaign).await?;
                self.compare_group(&group, &asked, fields).await
            };
            report.add(*first, found.await)?;
        }
        Ok(report)
    }

    /// Reads the windows of the limits in Redis. None: there are no limits.
    async fn windows(&self, owner: LimitOwner) -> Result<Option<CountedWindows>, CompareError> {
        let rules = self.0.redis.limits().read_limits(owner).await?;
        Ok(rules.and_then(|rules| CountedWindows::parse(&rules)))
    }

    /// Creates the group of a campaign with all its vouchers.
    async fn group_of(&self, campaign: CampaignId) -> Result<Group, CompareError> {
        let regions = limit_rows::regions(self.0.mysql, campaign).await?;
        let vouchers: Vec<VoucherId> = regions.into_iter().map(|(_, voucher)| voucher).collect();
        let mut owners = Owners::default();
        let all = vouchers.iter().copied().map(LimitOwner::Voucher);
        for owner in all.chain([LimitOwner::Campaign(campaign)]) {
            if let Some(windows) = self.windows(owner).await? {
                owners.add(owner, windows);
            }
        }
        Ok(Group { vouchers, owners })
    }

    async fn compare_group(
        &self,
        group: &Group,
        asked: &BTreeSet<VoucherId>,
        fields: Fields<'_>,
    ) -> Result<LimitCounterReport, CompareError> {
        for voucher in &group.vouchers {
            if let Some(why) = self.why_not(*voucher).await? {
                return Ok(group.not_compared(asked, why));
            }
        }
        let suspects = match fields {
            Fields::All => match self.suspects(group).await? {
                Ok(suspects) => suspects,
                Err(why) => return Ok(group.not_compared(asked, why)),
            },
            Fields::Only(fields) => {
                let place = |(owner, field): &(LimitOwner, String)| {
                    Some((group.owners.place(*owner)?, field.clone()))
                };
                Suspects { fields: fields.iter().filter_map(place).collect(), cut: BTreeSet::new() }
            }
        };
        self.stand(group, suspects, asked).await
    }

    /// The reason why the uses of a voucher's orders are unknown, if they are.
    async fn why_not(&self, voucher: VoucherId) -> Result<Option<NotComparedReason>, CompareError> {
        let snapshot = self.0.redis.journals().snapshot(voucher).await?;
        if i64::try_from(snapshot.stream_end.ms).is_ok_and(|end_ms| end_ms > snapshot.at_ms) {
            return Ok(Some(NotComparedReason::ClockWentBack));
        }
        if snapshot.is_complete {
            return Ok(None);
        }
        if snapshot.journaled > 0 {
            return Ok(Some(NotComparedReason::JournalNotComplete));
        }
        // Orders that only the journal had may still be in flight to MySQL: its rows may not have all uses.
        let row = vouchers::find(self.0.mysql, voucher).await?;
        let is_delisted = row.is_some_and(|row| row.delisted_ms.is_some());
        let was_sold = snapshot.stock.is_some()
            || !self.0.records().limit_uses().live_page(voucher, (0, 0)).await?.is_empty();
        Ok((was_sold && !is_delisted).then_some(NotComparedReason::JournalGone))
    }
}
