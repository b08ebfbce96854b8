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
use tidegate_operations::{order_progress::seconds_for, vouchers::limits::ShownRule};
use tidegate_orders::{
    CampaignId, RedisStore, VoucherId,
    limits::{Rule, RuleSet},
    scripts::{Offer, OfferState, ScriptError},
};
use tidegate_stream::ReadRate;

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

type FoundOffer = Result<Option<Offer>, ScriptError>;
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
    campaigns: CachedByKey<CampaignId, FoundCampaign>,
    /// The seconds that a new order waits for a worker, by the index of the partition.
    waits: CachedByKey<usize, Option<f64>>,
    rates: Arc<Mutex<HashMap<usize, ReadRate>>>,
}

impl Offers {
    /// Creates the offers of these gates. An offer stays fresh for `fresh_for`.
    pub fn new(gates: Arc<Gates>, refusals: Refusals, fresh_for: Duration) -> Self {
        Self {
            gates,
            refusals,
            vouchers: CachedByKey::new(fresh_for, MOST),
            campaigns: CachedByKey::new(fresh_for, MOST),
            waits: CachedByKey::new(WAIT_FRESH_FOR, MOST),
            rates: Arc::default(),
        }
    }

    /// The page about a voucher, as JSON.
    pub async fn voucher(&self, voucher: VoucherId) -> Result<Value, Problem> {
        let found = self.offer(voucher).await?;
        let offer = self.found(&found)?.ok_or(ProblemKind::NoSuchSale)?;
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
