//! The command `tidegate limit list`: the limits of a voucher or a campaign.

use clap::Args;
use tidegate_operations::{
    System,
    vouchers::{
        VoucherStores,
        limits::{self, LimitList, spoken},
    },
};

use super::{OwnerArgs, rules_text};
use crate::{exit::Exit, output::OutputArgs, scope::SystemCommand};

const EXAMPLES: &str = "\
Examples:
  tidegate limit list --voucher 7
  tidegate limit list --campaign 5 --json

Exits with 1 if Redis does not have the limits that MySQL has. To repair Redis, run `tidegate limit set` with the values
of one limit, unchanged: the command writes all limits of the voucher or campaign to Redis.";

/// The arguments of `tidegate limit list`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LimitListArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl SystemCommand for LimitListArgs {
    /// Lists the limits of a voucher or a campaign.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let (stores, owner) = self.owner.place(system).await?;
        let both = VoucherStores::connect(&stores).await?;
        let list = limits::list(&both, owner).await?;
        self.output.print(&list, text)?;
        Ok(if list.is_shown { Exit::Ok } else { Exit::No })
    }
}

fn text(list: &LimitList) -> String {
    let owner = spoken(list.owner);
    let own = match list.limits.is_empty() {
        true => format!("{owner} has no limits of its own"),
        false => format!("limits of {owner}:{}", rules_text(&list.limits)),
    };
    let campaign = list.campaign.map(|campaign| {
        format!("\nthe limits of campaign {campaign} also apply: tidegate limit list --campaign {campaign}")
    });
    let shown =
        if list.is_shown { "" } else { "\nRedis has OTHER limits than MySQL, or none; those in Redis apply" };
    format!("{own}{}{shown}", campaign.unwrap_or_default())
}
