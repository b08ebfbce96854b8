//! The command `tidegate campaign load`: puts regions on sale.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores, System,
    campaigns::load::{self, CampaignLoad, CampaignLoadState, RegionOutcome, parse_regions, summed},
    vouchers::{VoucherStores, load::LoadOutcome},
};
use tidegate_orders::CampaignId;

use crate::{
    commands::voucher_load::PayWithinArgs,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::SystemCommand,
    times,
};

const EXAMPLES: &str = "\
Examples:
  tidegate campaign load --campaign 5 --regions regions.csv --dry-run
  tidegate campaign load --campaign 5 --regions regions.csv --begin 2026-11-20T10:00:00Z --pay-within 15m

regions.csv has a line for each region: its name, its voucher and its units, such as north,101,5000. Each region has a
stock of its own. The limits of the campaign count over all regions. Let the sale begin later (--begin), and set the
limits before the sale begins (tidegate limit set --campaign 5 ...). To load more regions later, use a file with the new
regions or with all regions. If the command fails half-way, run it again to complete it.";

/// The arguments of `tidegate campaign load`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CampaignLoadArgs {
    /// The campaign id: any number that no other campaign has
    #[arg(long, value_name = "ID")]
    campaign: CampaignId,
    /// A file with lines of region,voucher,units
    #[arg(long, value_name = "FILE")]
    regions: PathBuf,
    /// When the sale begins: RFC 3339, local time or Unix milliseconds; now by default
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    begin: Option<Timestamp>,
    /// When the sale ends, in the same formats; never by default
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    end: Option<Timestamp>,
    #[command(flatten)]
    pay_within: PayWithinArgs,
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for CampaignLoadArgs {
    /// Loads the regions, or reports why it refuses.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let CampaignLoadArgs { campaign, begin, end, pay_within, .. } = *self;
        let file = self.regions.display();
        let text =
            std::fs::read_to_string(&self.regions).with_context(|| format!("Failed to read {file}"))?;
        let regions = parse_regions(&text).with_context(|| format!("{file} cannot be used"))?;
        let pay_within_s = pay_within.seconds()?;
        let first = regions[0].voucher;
        let request = CampaignLoad { campaign, regions, begin, end, pay_within_s };
        let settings = system.of_voucher(first)?;
        request.check(Timestamp::now(), settings.partition().tags())?;
        let stores = Stores::new(settings);
        let both = VoucherStores::connect(&stores).await?;
        let plan = load::plan(&both, request).await?;
        let report = plan.begun();
        Change::new(&stores, &self.change)
            .run_in_steps(plan, report, async |plan, report, job| load::run(&both, plan, report, job).await)
            .await
    }
}

impl PlanText for CampaignLoadState {
    fn text(&self) -> String {
        if self.is_refused() {
            return format!(
                "campaign {}: refused, no region was loaded{}",
                self.campaign,
                lines(&self.regions)
            );
        }
        let over: String = self.overwrites.iter().map(|what| format!("\n  over {what}")).collect();
        format!("campaign {}: {}{}{over}", self.campaign, summed(&self.regions), lines(&self.regions))
    }
}

impl ReportText for CampaignLoadState {
    fn text(&self) -> String {
        format!("campaign {}: {}{}", self.campaign, summed(&self.regions), lines(&self.regions))
    }
}

fn lines(regions: &[RegionOutcome]) -> String {
    regions.iter().map(|it| format!("\n  {}", line(it))).collect()
}

fn line(RegionOutcome { region, outcome, refusal }: &RegionOutcome) -> String {
    let place = format!("{}: voucher {}", region.region, region.voucher);
    let units = counted(region.stock, "unit");
    match outcome {
        LoadOutcome::WouldLoad => format!("{place} would be loaded with {units}"),
        LoadOutcome::LoadedBefore => format!("{place} is already loaded with {units}"),
        LoadOutcome::Loaded => format!("{place} is on sale with {units}"),
        LoadOutcome::LoadedPaused => {
            format!("{place} is loaded with {units}; its sale was paused and stays paused")
        }
        LoadOutcome::Refused => {
            let refusal = refusal.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{place}: refused, {refusal}")
        }
    }
}
