//! `tidegate limit remove`.

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

With the last limit of a voucher that is in no campaign, its stock gets its usual name back, and every script of a producer
sells it again: one order for each user. What was counted is forgotten. If it fails half-way, the same command again
completes it.";

/// What `tidegate limit remove` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LimitRemoveArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Its name
    #[arg(id = "limit", long = "name", value_name = "NAME", value_parser = parse_name)]
    name: SubjectName,
    #[command(flatten)]
    change: ChangeArgs,
}

impl SystemCommand for LimitRemoveArgs {
    /// Takes the limit away, or says why not.
    async fn run(&self, system: &System) -> anyhow::Result<Exit> {
        let (stores, owner) = self.owner.place(system).await?;
        let both = VoucherStores::connect(&stores).await?;
        let change = RuleChange::Remove(self.name.to_string());
        let plan =
            limits::plan(&both, LimitRequest { owner, change, by: self.change.who(), rate: None }).await?;
        Change::new(&stores, &self.change).run(plan, async |plan, _job| limits::run(&both, plan).await).await
    }
}
