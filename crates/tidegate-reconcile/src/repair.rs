//! Repairs what a comparison found different, by difference: what is still as it was at the comparison, and only that.
//!
//! MySQL is written first: lost orders are run again with their events, and orders that Redis had released get a cancelled row.
//! Then the journals, buyers and stocks of Redis, in chunks of 500 orders, each in one step (`lua/repair.lua`). What lowers a stock
//! comes before what raises it, so a repair that is stopped or killed half-way has never put more on sale than it should. Whoever
//! looks again finds the rest: nothing is kept of a repair but what it did.

mod again;
mod counters;
mod findings;
mod plan;
mod report;
mod run;

pub use self::{
    findings::{MOST_REPAIRED, plan_repair},
    plan::{PlanCounts, RepairPlan, Unrepaired, VoucherFindings, VoucherRepairPlan, Why},
    report::{RedisRepairs, RepairCounts, RepairReport, Returned, ReturnedWhy},
    run::Repair,
};
