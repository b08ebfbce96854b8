//! What Redis is shown of the limits that MySQL holds.

use anyhow::{Context, bail};
use tidegate_orders::{VoucherId, gate::LimitReply, limit_rows, limits::LimitOwner};

use super::{VoucherStores, campaign_of};

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

/// What Redis has to hold; None: nothing.
async fn wanted(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<Option<String>> {
    limit_rows::text(&stores.mysql, owner).await.context("Failed to read the limits in MySQL")
}

/// Whether Redis, and the row of the voucher, have the limits that MySQL has.
pub(super) async fn is_in_line(stores: &VoucherStores, owner: LimitOwner) -> anyhow::Result<bool> {
    let wanted = wanted(stores, owner).await?;
    let redis = stores.gate.read_limits(owner).await.context("Failed to read the limits in Redis")?;
    let LimitOwner::Voucher(voucher) = owner else {
        return Ok(redis == wanted);
    };
    let since =
        limit_rows::since(&stores.mysql, voucher).await.context("Failed to read the voucher in MySQL")?;
    let is_said = since.is_none_or(|since| since.since_ms.is_some() == redis.is_some());
    let is_limited = stores.gate.has_limits(voucher).await.context("Failed to read the voucher in Redis")?;
    Ok(redis == wanted && is_said && is_limited == redis.is_some())
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
        let text = wanted(stores, owner).await?;
        let shown = match owner {
            LimitOwner::Campaign(campaign) => {
                let shown =
                    stores.gate.show_campaign_limits(campaign, text.as_deref().unwrap_or_default()).await;
                shown.context("Failed to write the limits to Redis")?;
                Ok(())
            }
            LimitOwner::Voucher(voucher) => show_of_voucher(stores, voucher, text.as_deref(), by).await?,
        };
        if shown.is_err() || wanted(stores, owner).await? == text {
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
        limit_rows::set_since(&stores.mysql, voucher, None).await.context(FAILED)?;
    }
    let by = operator_word(by);
    let reply = stores.gate.show_limits(voucher, wanted, &by).await;
    Ok(match reply.context("Failed to write the limits to Redis")? {
        LimitReply::Over => Err(NotShown::Over),
        LimitReply::TwoStocks => Err(NotShown::TwoStocks),
        LimitReply::Same { since_ms } | LimitReply::Changed { since_ms } if wanted.is_some() => {
            Ok(limit_rows::set_since(&stores.mysql, voucher, Some(since_ms)).await.context(FAILED)?)
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
