//! The partitions that a command works on: the whole system, or one partition after the other.

use tidegate_operations::{Stores, System};
use tidegate_orders::{OrderId, VoucherId};

use crate::{
    entry_arg::{self, EntryArg},
    exit::Exit,
    partitions::{over_all, over_any, place_of},
};

/// The partitions in which a command has to run.
#[derive(Debug)]
pub enum Scope<'a> {
    /// The partition of this voucher.
    Voucher(VoucherId),
    /// Every partition, or the partition of this voucher. The answer is yes if all these partitions answer yes.
    EveryPartition(Option<VoucherId>),
    /// Every partition, or the partition of this voucher. The answer is yes if one of these partitions answers yes.
    AnyPartition(Option<VoucherId>),
    /// The partition of these entries, or every partition if no entry is named.
    Entries(&'a [EntryArg]),
    /// The partition of this order. The voucher is known if the user typed it.
    Order(OrderId, Option<VoucherId>),
}

/// A command that runs in one partition at a time.
pub trait PartitionCommand {
    /// The partitions in which the command runs; every partition by default.
    fn scope(&self) -> Scope<'_> {
        Scope::EveryPartition(None)
    }

    /// Runs the command in the partition that has these stores.
    ///
    /// # Errors
    /// When the input is wrong, or a store that it needs cannot be reached or does not answer.
    async fn run(&self, stores: &Stores) -> anyhow::Result<Exit>;
}

/// A command that runs once, for all partitions together.
pub trait SystemCommand {
    /// Runs the command on the whole system.
    ///
    /// # Errors
    /// As [`PartitionCommand::run`].
    async fn run(&self, system: &System) -> anyhow::Result<Exit>;
}

/// Runs a command in the partitions of its scope.
///
/// # Errors
/// When the scope names no partition of this system, or the command fails.
pub async fn in_scope(command: &impl PartitionCommand, system: &System) -> anyhow::Result<Exit> {
    let run = async |stores: &Stores| command.run(stores).await;
    match command.scope() {
        Scope::Voucher(voucher) => run(&Stores::new(system.of_voucher(voucher)?)).await,
        Scope::EveryPartition(voucher) => over_all(&system.chosen(voucher)?, run).await,
        Scope::AnyPartition(voucher) => over_any(&system.chosen(voucher)?, run).await,
        Scope::Entries(entries) => over_all(&entry_arg::partition_of(entries, system)?, run).await,
        Scope::Order(order, voucher) => {
            let place = place_of(system, order, voucher).await?;
            place.conclude(async |settings| run(&Stores::new(settings)).await).await
        }
    }
}
