//! The option `tidegate voucher delist --remove-keys`: removes the keys of a delisted voucher from Redis at once.

use tidegate_compare::text::size;
use tidegate_operations::Stores;
use tidegate_orders::VoucherId;
use tidegate_reconcile::{KeyRemover, RemoveKeysPlan, RemoveKeysReport};

use crate::{
    exit::Exit,
    operator::{Change, ChangeArgs, PlanText, ReportText},
};

/// Removes the Redis keys of a voucher whose sale was ended permanently, or reports why the keys stay.
///
/// # Errors
/// When a store cannot be reached, or another comparison is running.
pub async fn run(stores: &Stores, voucher: VoucherId, change: &ChangeArgs) -> anyhow::Result<Exit> {
    let remover = KeyRemover::connect(stores, change.who()).await?;
    let plan = remover.plan(voucher).await?;
    Change::new(stores, change).run(plan, async |plan, job| remover.run(&plan, job).await).await
}

impl PlanText for RemoveKeysPlan {
    fn text(&self) -> String {
        let Self { voucher, keys, bytes, kept } = self;
        match (kept, keys) {
            (Some(kept), _) => format!("voucher {voucher}: its keys stay in Redis, {kept}"),
            (None, 0) => format!("voucher {voucher}: Redis has no key of this voucher; nothing was changed"),
            (None, keys) => format!(
                "voucher {voucher}: its {keys} keys, about {}, would be removed if both stores agree",
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
            (None, None) => format!("voucher {voucher}: Redis has no key of this voucher any more"),
            (None, Some(sale)) => format!(
                "voucher {voucher}: its {} keys, about {}, were removed from Redis",
                sale.keys,
                size(sale.bytes)
            ),
        }
    }
}
