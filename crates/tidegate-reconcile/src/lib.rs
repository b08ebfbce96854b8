//! Compares what Redis and MySQL know of each order while the sale goes on, and mends what is different. Rebuilds a Redis that is
//! empty, folds what is final out of the journals, and removes the keys of delisted sales.

mod books;
mod compare;
mod counters;
mod delisted;
mod difference;
pub mod fold;
mod in_flight;
mod judge;
mod lease;
mod look;
mod lost_events;
mod order_ids;
pub mod rebuild;
mod redis_side;
mod repair;
mod report;
mod stock;
mod stores;
mod sweep;
mod table;
mod verify;

pub use books::{UsedCount, VoucherBooks};
pub use delisted::{KeptKeys, KeyRemover, RemoveKeysPlan, RemoveKeysReport};
pub use difference::{Cause, Difference, Mend};
pub use lease::{LEASE_WAS_LOST, OF_WORKER, ReconcilerLease, StoppedWithLease, TakenLease};
pub use look::{LookRequest, Looker, MOST_MENDED};
pub use repair::{
    PlanCounts, Repair, RepairCounts, RepairPlan, RepairReport, Returned, ReturnedWhy, Unmended,
    VoucherFindings, VoucherRepairPlan, Why,
};
pub use report::{KindCount, LookReport, VoucherLook};
pub use stock::{StockBooks, StockMove};
pub use sweep::UseSweeper;
pub use tidegate_operations::pace::Pace;
