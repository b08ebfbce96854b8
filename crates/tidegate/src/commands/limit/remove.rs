//! `tidegate limit remove`.

use clap::Args;
use tidegate_compare::Job;
use tidegate_operations::{
    System,
    vouchers::{
        VoucherStores,
        limits::{self, LimitChange, LimitRequest},
    },
};
use tidegate_orders::{limit_rows::RuleChange, limits::SubjectName};

use super::{OwnerArgs, set::parse_name};
use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs},
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

/// Takes the limit away, or says why not.
///
/// # Errors
/// When a store cannot be reached or refuses.
pub async fn run(system: &System, args: &LimitRemoveArgs) -> anyhow::Result<Exit> {
    let (settings, owner) = args.owner.place(system).await?;
    let stores = VoucherStores::connect(settings).await?;
    let change = RuleChange::Remove(args.name.to_string());
    let plan =
        limits::plan(&stores, LimitRequest { owner, change, by: args.change.who(), rate: None }).await?;
    let work = async |plan: LimitChange, _job: &Job| limits::run(&stores, plan).await;
    Change::new(settings, &args.change).run(plan, work).await
}
