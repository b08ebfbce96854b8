//! What Redis is shown of the limits that MySQL holds.

use anyhow::{Context, bail};
use tidegate_orders::{
    CampaignId, VoucherId, gate::LimitReply, limit_rows, limits::LimitOwner, records::vouchers,
};

use super::{VoucherStores, campaign_of, regions};

/// Others may change the limits meanwhile: what was shown last is looked at again.
const TRIES: usize = 10;

/// Why Redis does not take the limits of a voucher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// Its sale is over for good.
    #[error("it is delisted, or on its way to another partition")]
    Over,
    /// Somebody wrote its stock by hand.
    #[error(
        "Redis holds its stock under both of its names; delete the wrong one first, see docs/buying-limits.md"
    )]
    TwoStocks,
}

/// What Redis has to hold.
#[derive(PartialEq, Eq)]
struct Wanted {
    /// None: of a voucher that has none.
    rules: Option<String>,
    /// Of a campaign.
    regions: Vec<(String, VoucherId)>,
}

impl Wanted {
    async fn read(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<Self> {
        let rules =
            limit_rows::text(&stores.mysql, owner).await.context("Failed to read the limits in MySQL")?;
        let regions = match owner {
            LimitOwner::Campaign(campaign) => regions(stores, campaign).await?,
            LimitOwner::Voucher(_) => Vec::new(),
        };
        Ok(Self { rules, regions })
    }

    /// Whether Redis knows the regions.
    async fn knows_regions(&self, stores: &VoucherStores, campaign: CampaignId) -> anyhow::Result<bool> {
        let names: Vec<&str> = self.regions.iter().map(|(name, _)| name.as_str()).collect();
        let known = stores.redis.limits().read_regions(campaign, &names).await;
        let known = known.context("Failed to read the campaign in Redis")?;
        Ok(self.regions.iter().zip(known).all(|((_, voucher), known)| known == Some(*voucher)))
    }
}

/// Whether Redis, and the row of the voucher, have the limits that MySQL has.
pub(super) async fn is_in_line(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<bool> {
    let wanted = Wanted::read(stores, owner).await?;
    let redis =
        stores.redis.limits().read_limits(owner).await.context("Failed to read the limits in Redis")?;
    let voucher = match owner {
        LimitOwner::Voucher(voucher) => voucher,
        LimitOwner::Campaign(campaign) => {
            return Ok(redis == wanted.rules && wanted.knows_regions(stores, campaign).await?);
        }
    };
    let since = vouchers::limits_since(&stores.mysql, voucher)
        .await
        .context("Failed to read the voucher in MySQL")?;
    let is_said = since.is_none_or(|since| since.since_ms.is_some() == redis.is_some());
    let is_limited =
        stores.redis.limits().has_limits(voucher).await.context("Failed to read the voucher in Redis")?;
    Ok(redis == wanted.rules && is_said && is_limited == redis.is_some())
}

/// Shows Redis what MySQL has, until nobody has changed it meanwhile, and writes into the row of the voucher since when it has limits.
/// The inner error: Redis refuses.
///
/// # Errors
/// When a store does not answer.
pub async fn show(
    stores: &VoucherStores,
    owner: LimitOwner,
    by: &str,
) -> anyhow::Result<Result<(), NotShown>> {
    for _ in 0..TRIES {
        let wanted = Wanted::read(stores, owner).await?;
        let rules = wanted.rules.as_deref();
        let shown = match owner {
            LimitOwner::Campaign(campaign) => {
                let shown = stores
                    .redis
                    .limits()
                    .show_campaign(campaign, rules.unwrap_or_default(), &wanted.regions)
                    .await;
                shown.context("Failed to write the limits to Redis")?;
                Ok(())
            }
            LimitOwner::Voucher(voucher) => show_of_voucher(stores, voucher, rules, by).await?,
        };
        if shown.is_err() || Wanted::read(stores, owner).await? == wanted {
            return Ok(shown);
        }
    }
    bail!("others change these limits all the time")
}

/// As [`show`], all that orders of a voucher are checked against: its own limits, and those of its campaign.
///
/// # Errors
/// As [`show`].
pub async fn show_all(
    stores: &VoucherStores,
    voucher: VoucherId,
    by: &str,
) -> anyhow::Result<Result<(), NotShown>> {
    if let Some(campaign) = campaign_of(stores, voucher).await? {
        let shown = show(stores, LimitOwner::Campaign(campaign), by).await?;
        if shown.is_err() {
            return Ok(shown);
        }
    }
    show(stores, LimitOwner::Voucher(voucher), by).await
}

async fn show_of_voucher(
    stores: &VoucherStores,
    voucher: VoucherId,
    wanted: Option<&str>,
    by: &str,
) -> anyhow::Result<Result<(), NotShown>> {
    const FAILED: &str = "Failed to write since when the voucher has limits to MySQL";
    if wanted.is_none() {
        // Before Redis lets orders in that say nothing of limits.
        vouchers::set_limits_since(&stores.mysql, voucher, None).await.context(FAILED)?;
    }
    let by = operator_word(by);
    let reply = stores.redis.limits().show_limits(voucher, wanted, &by).await;
    Ok(match reply.context("Failed to write the limits to Redis")? {
        LimitReply::Over => Err(NotShown::Over),
        LimitReply::TwoStocks => Err(NotShown::TwoStocks),
        LimitReply::Same { since_ms } | LimitReply::Changed { since_ms } if wanted.is_some() => {
            Ok(vouchers::set_limits_since(&stores.mysql, voucher, Some(since_ms)).await.context(FAILED)?)
        }
        _ => Ok(()),
    })
}

/// A name as the journal takes it: 64 of `A-Z a-z 0-9 _ . : -` at most.
fn operator_word(name: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    let name = name.chars().map(|letter| if is_allowed(letter) { letter } else { '_' });
    "operator:".chars().chain(name).take(64).collect()
}
