//! Repairs what a comparison of both stores found different, rebuilds a Redis that is empty, compacts what is final out of the journals,
//! and removes the keys of delisted sales.

mod delisted;
pub mod compact;
pub mod lease;
mod note_journals;
mod order_ids;
pub mod rebuild;
mod repair;
mod stock;
mod sweep;

pub use delisted::{KeptKeys, KeyRemover, RemoveKeysPlan, RemoveKeysReport};
pub use note_journals::note_journals;
pub use repair::{
    MOST_REPAIRED, PlanCounts, RedisRepairs, Repair, RepairCounts, RepairPlan, RepairReport, Returned,
    ReturnedWhy, Unrepaired, VoucherFindings, VoucherRepairPlan, Why, plan_repair,
};
pub use stock::{StockTotals, StockMove};
pub use sweep::UseSweeper;
