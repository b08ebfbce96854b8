//! The command `tidegate campaign show`: the regions and limits of a campaign.

use clap::Args;
use tidegate_operations::{
    Stores, System,
    campaigns::{
        self,
        show::{CampaignView, RegionView},
    },
    vouchers::VoucherStores,
};
use tidegate_orders::CampaignId;

use crate::{
    commands::limit::rules_text,
    exit::Exit,
    output::{OutputArgs, table},
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate campaign show --campaign 5
  tidegate campaign show --campaign 5 --json | jq '.regions[] | {region, redis_stock}'

Exits with 1 if no voucher is in the campaign, or if Redis does not have the limits of the campaign.";

/// The arguments of `tidegate campaign show`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CampaignShowArgs {
    /// The id of the campaign
    #[arg(long, value_name = "ID")]
    campaign: CampaignId,
    #[command(flatten)]
    output: OutputArgs,
}

impl SystemCommand for CampaignShowArgs {
    /// Shows the regions of a campaign in Redis and MySQL.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let settings = campaigns::partition_of(system, self.campaign).await?;
        let stores = Stores::new(settings);
        let both = VoucherStores::connect(&stores).await?;
        let view = CampaignView::read(&both, self.campaign).await?;
        self.output.print(&view, text)?;
        Ok(if view.are_limits_shown && !view.regions.is_empty() { Exit::Ok } else { Exit::No })
    }
}

fn text(view: &CampaignView) -> String {
    let campaign = view.campaign;
    if view.regions.is_empty() {
        return format!("no voucher is in campaign {campaign}");
    }
    let mut table = table(&["region", "voucher", "began with", "in MySQL", "in Redis", "live orders"]);
    let shown = |units: Option<i64>| units.map_or_else(|| "-".to_owned(), |units| units.to_string());
    for RegionView { region, voucher, initial_stock, mysql_stock, redis_stock, live_orders } in &view.regions
    {
        let units = [*initial_stock, *mysql_stock, *redis_stock, Some(*live_orders)].map(shown);
        table.add_row([region.clone(), voucher.to_string()].into_iter().chain(units));
    }
    let CampaignView { initial_stock, mysql_stock, redis_stock, live_orders, .. } = view;
    let units = [initial_stock, mysql_stock, redis_stock, live_orders].map(|units| units.to_string());
    table.add_row(["all".to_owned(), String::new()].into_iter().chain(units));
    let limits = match view.limits.is_empty() {
        true => format!(
            "campaign {campaign} has no limits. To set one: tidegate limit set --campaign {campaign} ..."
        ),
        false => format!("limits of campaign {campaign}:{}", rules_text(&view.limits)),
    };
    let others = if view.are_limits_shown {
        ""
    } else {
        "\nRedis has OTHER limits than MySQL, or none; those in Redis apply"
    };
    format!("{table}\n{limits}{others}")
}
