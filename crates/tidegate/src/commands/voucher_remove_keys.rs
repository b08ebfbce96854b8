//! `tidegate voucher remove-keys`: removes the keys of a delisted voucher from Redis at once.

use clap::Args;
use tidegate_compare::{Job, text::size};
use tidegate_operations::SystemSettings;
use tidegate_orders::VoucherId;
use tidegate_reconcile::{KeyRemover, RemoveKeysPlan, RemoveKeysReport};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher remove-keys --voucher 7 --dry-run
  tidegate voucher remove-keys --voucher 7
  tidegate voucher remove-keys --voucher 7 --yes

What workers do by themselves reconcile.remove_delisted_after_s after tidegate voucher delist, at once. It compares both
sides of this voucher first, and removes nothing where they differ, or where orders or events of it wait for workers or
are dead letters that nobody has ended. Afterwards whoever asks for an order hears that no stock is loaded (3), and what
happens to its orders changes MySQL only. Exits with 1 where its keys stay, and says why.";

/// What `tidegate voucher remove-keys` takes.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherRemoveKeysArgs {
    /// The voucher
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    #[command(flatten)]
    change: ChangeArgs,
}

/// Removes them, or says why not.
///
/// # Errors
/// When a store cannot be reached, or somebody else compares both sides.
pub async fn run(settings: &SystemSettings, args: &VoucherRemoveKeysArgs) -> anyhow::Result<Exit> {
    let remover = KeyRemover::connect(settings, args.change.who()).await?;
    let plan = remover.plan(args.voucher).await?;
    let work = async |plan: RemoveKeysPlan, job: &Job| remover.run(&plan, job).await;
    Change::new(settings, &args.change).run(plan, work).await
}

impl PlanText for RemoveKeysPlan {
    fn text(&self) -> String {
        let Self { voucher, keys, bytes, kept } = self;
        match (kept, keys) {
            (Some(kept), _) => format!("voucher {voucher}: its keys stay, {kept}"),
            (None, 0) => format!("voucher {voucher}: Redis holds no key of it; nothing was changed"),
            (None, keys) => format!(
                "voucher {voucher}: its {keys} keys, about {}, would be removed if both sides agree",
                size(*bytes)
            ),
        }
    }
}

impl ReportText for RemoveKeysReport {
    fn text(&self) -> String {
        let voucher = self.voucher;
        match (&self.kept, &self.removed) {
            (Some(kept), _) => format!("voucher {voucher}: its keys stay, {kept}"),
            (None, None) => format!("voucher {voucher}: Redis holds no key of it any more"),
            (None, Some(sale)) => format!(
                "voucher {voucher}: its {} keys are removed from Redis, about {}",
                sale.keys,
                size(sale.bytes)
            ),
        }
    }
}
