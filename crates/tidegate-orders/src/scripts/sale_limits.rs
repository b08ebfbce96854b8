//! The limits in Redis that `lua/admit_limited.lua` checks.

mod counted;
mod recount;
mod sweep;
mod uses;

use std::collections::BTreeMap;

use fred::{interfaces::HashesInterface, types::Value};
use tidegate_stream::Script;

pub use self::{
    recount::LimitUsage,
    uses::{SetUse, UsesSnapshot},
};
use super::{ScriptError, access::RedisAccess};
use crate::{
    keys::naming,
    limits::{CountedWindows, LimitOwner, RuleSet},
    order::{CampaignId, VoucherId},
    records::journal::LIMITED,
};

pub(super) const RULES: &str = "rules";
/// The prefix before the name of a region in the hash of its campaign.
const REGION: &str = "region:";

/// The reply to a change of a voucher's limits in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitReply {
    /// The voucher already had these limits.
    Same {
        /// The time since when it has them, in Unix milliseconds by the clock of Redis.
        since_ms: i64,
    },
    /// The limits of the voucher have changed.
    Changed {
        /// The time since when it has limits, or has none any more, in Unix milliseconds by the clock of Redis.
        since_ms: i64,
    },
    /// The voucher has no limits, and had none before.
    HadNone,
    /// Refused: the voucher was delisted, or is moving to another partition.
    Over,
    /// Refused: both names of the stock exist.
    TwoStocks,
}

impl LimitReply {
    fn read(reply: &Value) -> Result<Self, ScriptError> {
        let parts = |value: &Value| match value {
            Value::Array(parts) => Some((parts.first()?.as_i64()?, parts.get(1)?.as_i64()?)),
            value => Some((value.as_i64()?, 0)),
        };
        Ok(match (matches!(reply, Value::Array(_)), parts(reply)) {
            (true, Some((0, since_ms))) => Self::Same { since_ms },
            (true, Some((1, since_ms))) => Self::Changed { since_ms },
            (false, Some((0, _))) => Self::HadNone,
            (false, Some((2, _))) => Self::Over,
            (false, Some((3, _))) => Self::TwoStocks,
            _ => {
                let got = format!("{reply:?}");
                return Err(ScriptError::Unexpected { place: "limit.lua".to_owned(), got });
            }
        })
    }
}

/// Access to the rules and the counters of limits in Redis, for vouchers and campaigns.
#[derive(Clone, Debug)]
pub struct SaleLimits {
    access: RedisAccess,
    limit: Script,
    read_uses: Script,
    recount: Script,
    set_uses: Script,
    sweep: Script,
}

impl SaleLimits {
    pub(super) fn new(access: &RedisAccess) -> Self {
        Self {
            access: access.clone(),
            limit: Script::new("limit", include_str!("../../../../lua/limit.lua")),
            read_uses: Script::new("read_uses", include_str!("../../../../lua/read_uses.lua")),
            recount: Script::new("recount", include_str!("../../../../lua/recount.lua")),
            set_uses: Script::new("set_uses", include_str!("../../../../lua/set_uses.lua")),
            sweep: Script::new("sweep_uses", include_str!("../../../../lua/sweep_uses.lua")),
        }
    }

    /// Reads the rules that Redis has for a voucher or a campaign, in the format of [`crate::limits::rules_text`].
    /// `None` if Redis has no rules.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_limits(&self, owner: LimitOwner) -> Result<Option<String>, ScriptError> {
        let key = self.access.keys.limits(owner).rules();
        self.access.pool.hget(&key, RULES).await.map_err(|error| naming(&key, error).into())
    }

    /// Whether a voucher has limits, and therefore has its stock in the key for vouchers with limits. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn has_limits(&self, voucher: VoucherId) -> Result<bool, ScriptError> {
        let key = self.access.keys.journal(voucher);
        let noted: Option<String> =
            self.access.pool.hget(&key, LIMITED).await.map_err(|error| naming(&key, error))?;
        Ok(noted.is_some())
    }

    /// Whether a user may have several orders of a voucher at the same time. If the rules cannot be read, the answer is
    /// yes. Changes nothing.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn gives_slots(&self, voucher: VoucherId) -> Result<bool, ScriptError> {
        let rules = self.read_limits(LimitOwner::Voucher(voucher)).await?;
        Ok(rules.is_some_and(|rules| CountedWindows::parse(&rules).is_none_or(|windows| windows.has_slots)))
    }

    /// Writes the rules of a voucher to Redis, and moves its stock in the same step to the key for vouchers with or
    /// without limits. If the rules are `None`, the voucher has no limits after the call. The journal (notes in Redis)
    /// names `by` as the author.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn show_limits(
        &self,
        voucher: VoucherId,
        rules: Option<&str>,
        by: &str,
    ) -> Result<LimitReply, ScriptError> {
        let keys = vec![
            self.access.keys.stock(voucher),
            self.access.keys.limited(voucher),
            self.access.keys.journal(voucher),
            self.access.keys.limits(LimitOwner::Voucher(voucher)).rules(),
            self.access.keys.voucher(voucher),
            self.access.stream.clone(),
        ];
        let args = vec![rules.unwrap_or_default().into(), by.into()];
        LimitReply::read(&self.limit.call(&self.access.pool, keys, args).await?)
    }

    /// Writes the common rules of a campaign, and the vouchers of its regions, into Redis.
    ///
    /// # Errors
    /// See [`ScriptError`]. The call may be repeated.
    pub async fn show_campaign(
        &self,
        campaign: CampaignId,
        rules: &str,
        regions: &[(String, VoucherId)],
    ) -> Result<(), ScriptError> {
        let key = self.access.keys.limits(LimitOwner::Campaign(campaign)).rules();
        let regions = regions.iter().map(|(name, voucher)| (format!("{REGION}{name}"), voucher.to_string()));
        let fields: Vec<(String, String)> =
            [(RULES.to_owned(), rules.to_owned())].into_iter().chain(regions).collect();
        let written: Result<u64, _> = self.access.pool.hset(&key, fields).await;
        written.map(drop).map_err(|error| naming(&key, error).into())
    }

    /// Reads the common rules of a campaign and the vouchers of its regions, sorted by the names of the regions. `None` if
    /// Redis does not know the campaign.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_campaign(
        &self,
        campaign: CampaignId,
    ) -> Result<Option<(RuleSet, BTreeMap<String, VoucherId>)>, ScriptError> {
        let key = self.access.keys.limits(LimitOwner::Campaign(campaign)).rules();
        let fields: Result<BTreeMap<String, String>, _> = self.access.pool.hgetall(&key).await;
        let fields = fields.map_err(|error| naming(&key, error))?;
        let rules = fields.get(RULES).and_then(|rules| RuleSet::parse(rules)).unwrap_or_default();
        let region = |(name, voucher): (&String, &String)| {
            Some((name.strip_prefix(REGION)?.to_owned(), voucher.parse().ok()?))
        };
        let regions: BTreeMap<_, _> = fields.iter().filter_map(region).collect();
        Ok((!regions.is_empty()).then_some((rules, regions)))
    }

    /// Reads the vouchers that Redis has for the given regions of a campaign, in the sequence of the regions.
    ///
    /// # Errors
    /// See [`ScriptError`].
    pub async fn read_regions(
        &self,
        campaign: CampaignId,
        regions: &[&str],
    ) -> Result<Vec<Option<VoucherId>>, ScriptError> {
        if regions.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.access.keys.limits(LimitOwner::Campaign(campaign)).rules();
        let fields: Vec<String> = regions.iter().map(|name| format!("{REGION}{name}")).collect();
        let found: Result<Vec<Option<String>>, _> = self.access.pool.hmget(&key, fields).await;
        let found = found.map_err(|error| naming(&key, error))?;
        Ok(found.into_iter().map(|voucher| voucher?.parse().ok()).collect())
    }
}
