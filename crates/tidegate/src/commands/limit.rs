//! The commands `tidegate limit ...`: how much a buyer may order in a time window.

pub mod list;
pub mod remove;
pub mod set;

use clap::Args;
use tidegate_operations::{
    Stores, System, campaigns,
    vouchers::limits::{LimitChange, LimitOutcome, ShownRule, spoken},
};
use tidegate_orders::{CampaignId, VoucherId, limits::LimitOwner};

use crate::{
    operator::{PlanText, ReportText},
    times::utc_offset_text,
};

/// The arguments that say whose limits are meant: a voucher or a campaign.
#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = false)]
pub struct OwnerArgs {
    /// The limits of this voucher
    #[arg(long, value_name = "ID")]
    voucher: Option<VoucherId>,
    /// The limits that the vouchers of this campaign share
    #[arg(long, value_name = "ID")]
    campaign: Option<CampaignId>,
}

impl OwnerArgs {
    fn owner(self) -> Option<LimitOwner> {
        self.voucher.map(LimitOwner::Voucher).or(self.campaign.map(LimitOwner::Campaign))
    }

    /// The stores of the partition that holds the voucher or the campaign, and the voucher or the campaign itself.
    ///
    /// # Errors
    /// When MySQL does not know the partition of a campaign.
    pub async fn place(self, system: &System) -> anyhow::Result<(Stores, LimitOwner)> {
        match self.owner() {
            Some(owner @ LimitOwner::Voucher(voucher)) => {
                Ok((Stores::new(system.of_voucher(voucher)?), owner))
            }
            Some(owner @ LimitOwner::Campaign(campaign)) => {
                Ok((Stores::new(campaigns::partition_of(system, campaign).await?), owner))
            }
            None => unreachable!("clap demands one of them"),
        }
    }
}

/// The text of a limit, such as `days: at most 3 orders and 4 units a day (UTC+08:00) by phone`.
fn rule_text(rule: &ShownRule) -> String {
    let by = match rule.subject.as_str() {
        "*" => "in all".to_owned(),
        subject => format!("by {subject}"),
    };
    let name = &rule.name;
    if let Some(rate) = &rule.rate {
        let burst = rule.orders.unwrap_or(1);
        return format!("{name}: at most {rate} {by}, {burst} at once after a time without orders");
    }
    let orders = rule.orders.map(|most| tidegate_compare::text::counted(most, "order"));
    let units = rule.units.map(|most| tidegate_compare::text::counted(most, "unit"));
    let most = orders.into_iter().chain(units).collect::<Vec<_>>().join(" and ");
    let period = match rule.window.as_str() {
        "order" => "an order".to_owned(),
        "sale" => "in the sale".to_owned(),
        "day" | "month" => format!("a {} ({})", rule.window, utc_offset_text(rule.offset_s)),
        seconds => format!("in {seconds} s"),
    };
    format!("{name}: at most {most} {period} {by}")
}

/// The text of several limits, each in its own line after a line break.
pub fn rules_text(rules: &[ShownRule]) -> String {
    rules.iter().map(|rule| format!("\n  {}", rule_text(rule))).collect()
}

/// A hint about limits on the orders of a user.
fn slots_hint(slots: bool) -> &'static str {
    if slots {
        "\nA user may have at most 31 live orders (not cancelled or refunded) for the voucher, even if the \
         limits allow more"
    } else {
        ""
    }
}

fn text(change: &LimitChange) -> String {
    let owner = spoken(change.owner);
    let limits = match change.limits.is_empty() {
        true => format!("{owner} has no limits of its own"),
        false => format!("limits of {owner}:{}", rules_text(&change.limits)),
    };
    match change.outcome {
        LimitOutcome::Refused => {
            let reason = change.refusal.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{owner}: refused, {reason}")
        }
        LimitOutcome::WouldChange => {
            let refused = refused_from_now_on(change).map(|line| format!("\n{line}"));
            format!("after this change, {limits}{}", refused.unwrap_or_default())
        }
        LimitOutcome::WouldComplete => {
            format!(
                "MySQL already has the change, and this command would write the change to Redis; {limits}"
            )
        }
        LimitOutcome::AsItWas => format!("nothing to change; {limits}"),
        LimitOutcome::Changed => format!("{limits}{}", slots_hint(change.slots)),
    }
}

/// The line about callers that the new limit refuses and the old limits did not refuse.
fn refused_from_now_on(change: &LimitChange) -> Option<String> {
    let refused = &change.refused_from_now_on;
    (!refused.is_empty()).then(|| format!("callers that are refused from now on: {}", refused.join("; ")))
}

impl PlanText for LimitChange {
    fn text(&self) -> String {
        text(self)
    }

    fn warnings(&self) -> Vec<String> {
        if self.is_on_sale { refused_from_now_on(self).into_iter().collect() } else { Vec::new() }
    }
}

impl ReportText for LimitChange {
    fn text(&self) -> String {
        text(self)
    }
}
