//! The command `tidegate limit remove`: removes a limit.

use clap::Args;
use tidegate_operations::{
    System,
    vouchers::{
        VoucherStores,
        limits::{self, LimitRequest},
    },
};
use tidegate_orders::{limit_rows::RuleChange, limits::SubjectName};

use super::{OwnerArgs, set::parse_name};
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs},
    scope::SystemCommand,
};

const EXAMPLES: &str = "\
Examples:
  tidegate limit remove --voucher 7 --name days
  tidegate limit remove --campaign 5 --name months --yes

A voucher with limits has its stock in the key of the setting keys.limited. When you remove the last limit of a voucher
that is in no campaign, its stock moves back to the key of keys.stock. Then lua/admit.lua and scripts of producers can
sell the voucher, one order for each user. The counters of the limit are deleted. If the command fails, run it again.";

/// The arguments of `tidegate limit remove`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LimitRemoveArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// The name of the limit
    #[arg(id = "limit", long = "name", value_name = "NAME", value_parser = parse_name)]
    name: SubjectName,
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for LimitRemoveArgs {
    /// Removes the limit, or reports why it refuses.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let (stores, owner) = self.owner.place(system).await?;
        let both = VoucherStores::connect(&stores).await?;
        let change = RuleChange::Remove(self.name.to_string());
        let plan =
            limits::plan(&both, LimitRequest { owner, change, by: self.change.who(), rate: None }).await?;
        Change::new(&stores, &self.change).run(plan, async |plan, _job| limits::run(&both, plan).await).await
    }
}
