//! The command `tidegate voucher delist`: ends the sale of a voucher for good.

mod remove_keys;

use clap::Args;
use tidegate_compare::text::counted;
use tidegate_operations::{
    Stores,
    vouchers::{
        VoucherStores,
        delist::{self, DelistOutcome, DelistState},
        stock_change::{StockChangeRequest, described},
    },
};
use tidegate_orders::{VoucherId, scripts::StockChange};

use crate::{
    commands::voucher_stock,
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
    scope::{PartitionCommand, Scope},
};

const EXAMPLES: &str = "\
Examples:
  tidegate voucher delist --voucher 7 --dry-run
  tidegate voucher delist --voucher 7
  tidegate voucher delist --voucher 7 --remove-keys --yes

Ends the sale forever, first in MySQL, then in Redis. From then on, requests for orders are refused with reply 5 (over),
and the voucher cannot be loaded, changed by add or take, or rebuilt. Existing orders stay, and workers still process
them. After reconcile.remove_delisted_after_s seconds, workers compare both stores. If the stores agree, the workers
then remove the keys from Redis. If the command fails half-way, run it again to complete it. Exits with 1 if MySQL has
no row of the voucher, or if a change of its stock is unfinished.

With --remove-keys, the command removes the keys of a delisted voucher at once. It first compares this voucher in both
stores. It removes nothing, prints why, and exits with 1 if
  - the stores differ
  - an order or event of the voucher waits for workers
  - a dead letter of the voucher was not requeued, cancelled or dropped
Afterwards, requests for orders are refused with reply 3 (no stock), and events of the orders change only MySQL.";

/// The arguments of `tidegate voucher delist`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct VoucherDelistArgs {
    /// The voucher whose sale ends
    #[arg(long, value_name = "ID")]
    pub voucher: VoucherId,
    /// Remove the keys of the delisted voucher from Redis at once, instead of ending its sale
    #[arg(long)]
    remove_keys: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

impl PartitionCommand for VoucherDelistArgs {
    fn scope(&self) -> Scope<'_> {
        Scope::Voucher(self.voucher)
    }

    /// Delists the voucher, or removes its keys.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit> {
        let VoucherDelistArgs { voucher, remove_keys, ref change } = *self;
        if remove_keys {
            return remove_keys::run(stores, voucher, change).await;
        }
        let both = VoucherStores::connect(stores).await?;
        let plan = delist::plan(&both, voucher).await?;
        Change::new(stores, change).run(plan, async |plan, _job| delist::run(&both, plan).await).await
    }
}

impl PlanText for DelistState {
    fn text(&self) -> String {
        let Self { voucher, redis_stock, orders, .. } = self;
        match self.outcome {
            DelistOutcome::NoRow | DelistOutcome::ChangeIsOpen => {
                refused_text(*voucher, self.open.as_deref())
            }
            DelistOutcome::WouldComplete => {
                format!("voucher {voucher}: is delisted in MySQL; its sale in Redis would also end")
            }
            DelistOutcome::DelistedBefore => {
                format!("voucher {voucher}: is already delisted; nothing was changed")
            }
            _ => {
                let left = redis_stock.map_or_else(
                    || "Redis has no stock of this voucher".to_owned(),
                    |left| format!("{} in Redis would not be sold any more", counted(left, "unit")),
                );
                format!(
                    "voucher {voucher}: its sale would end forever; {left}; {} in MySQL would stay",
                    counted(*orders, "order")
                )
            }
        }
    }
}

impl ReportText for DelistState {
    fn text(&self) -> String {
        let Self { voucher, outcome, has_keys, open, .. } = self;
        let keys = match has_keys {
            true => {
                "workers remove its keys from Redis when both stores agree. To remove the keys now: add --remove-keys"
            }
            false => "Redis has no key of this voucher",
        };
        match outcome {
            DelistOutcome::NoRow | DelistOutcome::ChangeIsOpen => refused_text(*voucher, open.as_deref()),
            DelistOutcome::Completed => {
                format!("voucher {voucher}: is now delisted in both stores; {keys}")
            }
            _ => format!("voucher {voucher}: delisted; {keys}"),
        }
    }
}

/// The text about the reason for the refusal, and the command to type first.
fn refused_text(voucher: VoucherId, open: Option<&StockChange>) -> String {
    match open {
        None => format!("voucher {voucher}: refused, because MySQL has no row of this voucher"),
        Some(open) => format!(
            "voucher {voucher}: refused, because a change of its stock is unfinished ({}). To complete the change: {}",
            described(open),
            voucher_stock::command(&StockChangeRequest::completing(voucher, open))
        ),
    }
}
