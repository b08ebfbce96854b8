//! The comparison of Redis and MySQL, order by order, during a sale. It changes no order, no sale and no stock.

pub mod audit;
mod compare;
mod compare_error;
mod comparison;
mod counters;
mod counts;
mod difference;
pub mod in_flight;
mod job;
pub mod judge;
pub mod limit_counters;
mod lost_events;
mod pace;
pub mod reconciled;
pub mod redis_side;
mod report;
mod stores;
mod table;
pub mod text;
mod totals;
mod verify;
pub mod windows;

pub use compare::dead_orders;
pub use compare_error::CompareError;
pub use comparison::{Comparison, ComparisonRequest};
pub use difference::{Difference, DifferenceCause, RepairMethod};
pub use job::{Job, Progress, Silent};
pub use pace::Pace;
pub use report::{ComparisonReport, KindCount, VoucherComparison};
pub use stores::ComparedStores;
pub use totals::{MysqlTotals, OpenTotals, OrdersAndUnits, RedisTotals, VoucherTotals};
