//! The offers of vouchers and campaigns for buyers: the state of the sale, the units left, the limits, and the wait.
//!
//! However many callers ask, Redis is asked about a voucher at most once in the time `gate.sold_out_ms`.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::MySqlPool;
use tidegate_operations::{order_progress::seconds_for, vouchers::limits::ShownRule, within::in_time};
use tidegate_orders::{
    CampaignId, RedisStore, VoucherId,
    limits::{Rule, RuleSet},
    records::vouchers,
    scripts::{Offer, OfferState, ScriptError},
};
use tidegate_stream::ReadRate;
use tokio::sync::Semaphore;

use super::{
    gates::Gates,
    problem::{Problem, ProblemKind},
    refusals::Refusals,
};
use crate::cached::CachedByKey;

/// The largest number of vouchers and of campaigns that are remembered.
const MOST: usize = 1024;
/// The time for which the estimate of the wait is reused.
const WAIT_FRESH_FOR: Duration = Duration::from_secs(1);

/// The largest number of vouchers that MySQL is asked about at a time.
const MOST_ASKED: usize = 16;

/// The time that MySQL has for an answer.
const MYSQL_WITHIN: Duration = Duration::from_secs(2);

type FoundOffer = Result<Option<Offer>, ScriptError>;
/// An offer in MySQL. An error without a reason means that too many clients ask.
type PublishedOffer = Result<Option<Offer>, Option<anyhow::Error>>;
type FoundCampaign = Result<Option<(RuleSet, BTreeMap<String, VoucherId>)>, CampaignError>;

/// The reason why a campaign was not found.
#[derive(Debug)]
enum CampaignError {
    /// A partition that may have the campaign has not answered yet.
    Away,
    /// A partition answered with an error.
    Failed(ScriptError),
}

/// The offers of a gate, each as Redis had it a moment ago.
#[derive(Debug)]
pub struct Offers {
    gates: Arc<Gates>,
    refusals: Refusals,
    vouchers: CachedByKey<VoucherId, FoundOffer>,
    published: CachedByKey<VoucherId, PublishedOffer>,
    campaigns: CachedByKey<CampaignId, FoundCampaign>,
    /// The seconds that a new order waits for a worker, by the index of the partition.
    waits: CachedByKey<usize, Option<f64>>,
    rates: Arc<Mutex<HashMap<usize, ReadRate>>>,
    /// The permits for questions to MySQL.
    permits: Arc<Semaphore>,
}

impl Offers {
    /// Creates the offers of these gates. An offer stays fresh for `fresh_for`.
    pub fn new(gates: Arc<Gates>, refusals: Refusals, fresh_for: Duration) -> Self {
        Self {
            gates,
            refusals,
            vouchers: CachedByKey::new(fresh_for, MOST),
            published: CachedByKey::new(fresh_for, MOST),
            campaigns: CachedByKey::new(fresh_for, MOST),
            waits: CachedByKey::new(WAIT_FRESH_FOR, MOST),
            rates: Arc::default(),
            permits: Arc::new(Semaphore::new(MOST_ASKED)),
        }
    }

    /// The page about a voucher, as JSON.
    pub async fn voucher(&self, voucher: VoucherId) -> Result<Value, Problem> {
        let found = self.offer(voucher).await?;
        let published;
        let offer = match self.found(&found)? {
            Some(offer) => offer,
            None => {
                published = self.published(voucher).await?;
                &published
            }
        };
        let common = match offer.rules.campaign {
            Some(campaign) => self.common_rules(voucher, campaign).await?,
            None => Vec::new(),
        };
        Ok(json!({
            "voucherId": voucher.to_string(),
            "state": offer.state.word(),
            "unitsLeft": units_left(offer),
            "begin": time(offer.window.begin),
            "end": time(offer.window.end),
            "campaignId": offer.rules.campaign.map(|campaign| campaign.to_string()),
            "limits": offer.rules.rules.iter().chain(&common).map(limit).collect::<Vec<_>>(),
            "waitS": self.wait(voucher).await,
        }))
    }

    /// The page about a campaign with its regions, as JSON. The state of the campaign is that of its region which is best
    /// for a buyer.
    pub async fn campaign(&self, campaign: CampaignId) -> Result<Value, Problem> {
        let found = self.read_campaign(campaign).await;
        let (rules, vouchers) = match &*found {
            Ok(Some(found)) => found,
            Ok(None) => return Err(ProblemKind::NoSuchSale.because("no campaign with this id is on sale")),
            Err(why) => return Err(self.no_campaign(why)),
        };
        let (mut regions, mut states, mut left) = (Vec::new(), Vec::new(), 0);
        for (region, voucher) in vouchers {
            let found = self.offer(*voucher).await?;
            let offer = self.found(&found)?;
            let units = offer.map_or(0, units_left);
            states.extend(offer.map(|offer| offer.state));
            left += units;
            regions.push(json!({
                "region": region,
                "voucherId": voucher.to_string(),
                "state": offer.map(|offer| offer.state.word()),
                "unitsLeft": units,
                "begin": time(offer.and_then(|offer| offer.window.begin)),
                "end": time(offer.and_then(|offer| offer.window.end)),
            }));
        }
        let wait = match vouchers.values().next() {
            Some(voucher) => self.wait(*voucher).await,
            None => None,
        };
        Ok(json!({
            "campaignId": campaign.to_string(),
            "state": states.into_iter().min().map(OfferState::word),
            "unitsLeft": left,
            "limits": rules.rules.iter().map(limit).collect::<Vec<_>>(),
            "regions": regions,
            "waitS": wait,
        }))
    }

    async fn offer(&self, voucher: VoucherId) -> Result<Arc<FoundOffer>, Problem> {
        let redis = self.redis_of(voucher)?;
        Ok(self.vouchers.get(voucher, async move { redis.sales().read_offer(voucher).await }).await)
    }

    fn found<'f>(&self, found: &'f FoundOffer) -> Result<Option<&'f Offer>, Problem> {
        found.as_ref().map(Option::as_ref).map_err(|error| self.refusals.not_asked(error))
    }

    /// The offer of a voucher that only MySQL has, because its sale begins later.
    async fn published(&self, voucher: VoucherId) -> Result<Offer, Problem> {
        let stores = self.gates.stores_of_voucher(voucher);
        let (_, mysql) = stores.map_err(|_| ProblemKind::RedisAway)?;
        let permits = Arc::clone(&self.permits);
        let ask = async move { published(&mysql, voucher, &permits).await };
        match &*self.published.get(voucher, ask).await {
            Ok(Some(offer)) => Ok(offer.clone()),
            Ok(None) => Err(ProblemKind::NoSuchSale.into()),
            Err(None) => Err(ProblemKind::TooManyQuestions.into()),
            Err(Some(error)) => Err(Problem::of_mysql(error)),
        }
    }

    fn redis_of(&self, voucher: VoucherId) -> Result<RedisStore, Problem> {
        Ok(self.gates.of_voucher(voucher).ok_or(ProblemKind::RedisAway)?.redis.clone())
    }

    /// The common rules of the campaign of a voucher, which are in the partition of the voucher.
    async fn common_rules(&self, voucher: VoucherId, campaign: CampaignId) -> Result<Vec<Rule>, Problem> {
        let redis = self.redis_of(voucher)?;
        let ask = async move { redis.limits().read_campaign(campaign).await.map_err(CampaignError::Failed) };
        match &*self.campaigns.get(campaign, ask).await {
            Ok(found) => Ok(found.iter().flat_map(|(rules, _)| rules.rules.clone()).collect()),
            Err(why) => Err(self.no_campaign(why)),
        }
    }

    fn no_campaign(&self, why: &CampaignError) -> Problem {
        match why {
            CampaignError::Away => ProblemKind::RedisAway.into(),
            CampaignError::Failed(error) => self.refusals.not_asked(error),
        }
    }

    /// Asks all partitions for a campaign, because only Redis knows which of them has it. The first that has it counts.
    async fn read_campaign(&self, campaign: CampaignId) -> Arc<FoundCampaign> {
        let stores = self.gates.redis_of_all();
        let ask = async move {
            let read = stores.iter().map(async |redis| match redis {
                Some(redis) => redis.limits().read_campaign(campaign).await.map_err(CampaignError::Failed),
                None => Err(CampaignError::Away),
            });
            let mut read: FuturesUnordered<_> = read.collect();
            let mut missing = Ok(None);
            while let Some(found) = read.next().await {
                match found {
                    Ok(None) => {}
                    Ok(found) => return Ok(found),
                    Err(why) => missing = Err(why),
                }
            }
            missing
        };
        self.campaigns.get(campaign, ask).await
    }

    /// The seconds until a worker reads an order that is placed now. None: this is unknown.
    async fn wait(&self, voucher: VoucherId) -> Option<f64> {
        let redis = self.redis_of(voucher).ok()?;
        let (partition, rates) = (redis.keys().partition().index(), Arc::clone(&self.rates));
        let ask = async move {
            let backlog = redis.inspector().group().backlog().await.ok()??;
            let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
            let rate = rates.entry(partition).or_default();
            rate.note(Instant::now(), &backlog);
            match backlog.lag? {
                0 => Some(0.0),
                ahead => seconds_for(ahead, rate.rate()?),
            }
        };
        *self.waits.get(partition, ask).await
    }
}

/// Reads the offer of a voucher that is in MySQL only, because its sale begins later.
async fn published(mysql: &MySqlPool, voucher: VoucherId, permits: &Semaphore) -> PublishedOffer {
    let Ok(_permit) = permits.try_acquire() else { return Err(None) };
    let find = async { Ok(vouchers::find(mysql, voucher).await?) };
    let row = in_time("MySQL", MYSQL_WITHIN, find).await.map_err(Some)?;
    let row = row.filter(|row| row.delisted_ms.is_none() && row.stock > 0);
    let row = row.filter(|row| row.window().begin.is_some_and(|begin| begin > Timestamp::now()));
    Ok(row.map(|row| Offer {
        state: OfferState::NotBegun,
        stock: Some(row.stock),
        window: row.window(),
        rules: RuleSet::default(),
    }))
}

fn units_left(offer: &Offer) -> u64 {
    offer.stock.and_then(|stock| u64::try_from(stock).ok()).unwrap_or_default()
}

fn time(time: Option<Timestamp>) -> Option<String> {
    time.map(|time| time.to_string())
}

fn limit(rule: &Rule) -> Value {
    let ShownRule { name, subject, window, orders, units, rate, .. } = rule.into();
    json!({ "name": name, "subject": subject, "window": window, "orders": orders, "units": units, "rate": rate })
}
