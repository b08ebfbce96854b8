//! The repair of differences that a comparison found. It changes only values that are still as they were at the
//! comparison.
//!
//! MySQL is written first: lost orders are run again with their events, and orders that Redis had released get a
//! cancelled row. Then follow the journals, buyers and stocks of Redis, in chunks of 500 orders, each in one step
//! (`lua/repair.lua`). Steps that lower a stock come before steps that raise it. So a repair that is stopped or killed
//! half-way never puts more units on sale than it should. The next comparison finds the rest, because a repair keeps
//! no state of its own.

mod again;
mod counters;
mod findings;
mod plan;
mod report;
mod run;

pub use self::{
    findings::{MOST_REPAIRED, plan_repair},
    plan::{PlanCounts, RepairPlan, Unrepaired, UnrepairedReason, VoucherFindings, VoucherRepairPlan},
    report::{RedisRepairs, RepairCounts, RepairReport, Returned, ReturnedReason},
    run::Repair,
};
