//! Writes the limits of MySQL to Redis, which checks them.

use anyhow::{Context, bail};
use tidegate_orders::{
    CampaignId, VoucherId, limit_rows, limits::LimitOwner, records::vouchers, scripts::LimitReply,
};

use super::{VoucherStores, campaign_of, regions};

/// The number of attempts: other programs may change the limits in the meantime, so the result is compared with MySQL
/// again.
const TRIES: usize = 10;

/// The reason why limits cannot be copied from MySQL to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// The sale of the voucher has ended forever, or the voucher moves to another partition.
    #[error("the voucher is delisted, or is being moved to another partition")]
    Over,
    /// Redis holds the stock under both of its names, because an operator wrote one of them manually.
    #[error(
        "Redis has the stock of the voucher under two keys: delete the wrong key first, see docs/buying-limits.md"
    )]
    TwoStocks,
}

/// The limits and regions that Redis must hold.
#[derive(PartialEq, Eq)]
struct Wanted {
    /// The text of the rules; None for a voucher without limits.
    rules: Option<String>,
    /// The regions of a campaign, with their vouchers.
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

    /// Returns whether Redis has these regions.
    async fn knows_regions(&self, stores: &VoucherStores, campaign: CampaignId) -> anyhow::Result<bool> {
        let names: Vec<&str> = self.regions.iter().map(|(name, _)| name.as_str()).collect();
        let known = stores.redis.limits().read_regions(campaign, &names).await;
        let known = known.context("Failed to read the campaign in Redis")?;
        Ok(self.regions.iter().zip(known).all(|((_, voucher), known)| known == Some(*voucher)))
    }
}

/// Returns whether Redis and the row of the voucher have the limits that MySQL has.
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

/// Copies the limits of a voucher or a campaign from MySQL to Redis, until both stores have the same limits. Also
/// stores in the voucher's row since when the voucher has limits. The inner error is the reason why Redis refuses the
/// limits.
///
/// # Errors
/// If a store does not answer.
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
    bail!("other programs keep changing these limits: run this command again")
}

/// Copies all limits for orders of a voucher from MySQL to Redis as [`show`] does: the limits of the voucher, and the
/// limits of its campaign.
///
/// # Errors
/// As for [`show`].
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
    const FAILED: &str = "Failed to write to MySQL the time since which the voucher has limits";
    if wanted.is_none() {
        // The row comes first, before Redis admits orders whose entries hold no uses of limits.
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

/// Converts a name into the form that the journal accepts: at most 64 of `A-Z a-z 0-9 _ . : -`.
fn operator_word(name: &str) -> String {
    let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    let name = name.chars().map(|letter| if is_allowed(letter) { letter } else { '_' });
    "operator:".chars().chain(name).take(64).collect()
}
