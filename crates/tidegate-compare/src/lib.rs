//! The comparison of Redis and MySQL, order by order, while the sale goes on. It changes no order, no sale and no
//! stock.

pub mod audit;
mod totals;
mod compare;
mod compare_error;
mod counters;
mod counts;
mod difference;
pub mod in_flight;
mod job;
pub mod judge;
pub mod limit_counters;
mod comparison;
mod lost_events;
mod pace;
pub mod reconciled;
pub mod redis_side;
mod report;
mod stores;
mod table;
pub mod text;
mod verify;

pub use totals::{MysqlTotals, OpenTotals, OrdersAndUnits, RedisTotals, VoucherTotals};
pub use compare::dead_orders;
pub use compare_error::CompareError;
pub use difference::{Difference, DifferenceCause, RepairMethod};
pub use job::{Job, Progress, Silent};
pub use comparison::{ComparisonRequest, Comparison};
pub use pace::Pace;
pub use report::{KindCount, ComparisonReport, VoucherComparison};
pub use stores::ComparedStores;
