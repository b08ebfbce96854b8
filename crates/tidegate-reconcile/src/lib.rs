//! The reconciler: it repairs the differences that a comparison of both stores found, rebuilds an empty Redis,
//! compacts final orders in the journals, and removes the keys of delisted sales.

pub mod compact;
mod delisted;
pub mod lease;
mod note_journals;
mod order_ids;
pub mod rebuild;
mod repair;
mod stock;
mod sweep;

pub use delisted::{KeyRemover, RemovalBlocker, RemoveKeysPlan, RemoveKeysReport};
pub use note_journals::note_journals;
pub use repair::{
    MOST_REPAIRED, PlanCounts, RedisRepairs, Repair, RepairCounts, RepairPlan, RepairReport, Returned,
    ReturnedReason, Unrepaired, UnrepairedReason, VoucherFindings, VoucherRepairPlan, plan_repair,
};
pub use stock::{StockMove, StockTotals};
pub use sweep::UseSweeper;
