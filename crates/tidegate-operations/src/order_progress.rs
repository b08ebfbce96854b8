//! The progress of orders, for callers that wait for them. A read costs little, however large the stores are, and
//! changes nothing.
//!
//! MySQL is read first, for all orders together and by primary keys. Redis is read only for orders that MySQL does not
//! know. The journal, if it names the order, gives its entry; without a voucher, some journals are searched. A
//! read does not search again what an earlier one has found or passed. `tidegate order show` searches everything,
//! and derives an order's status by the same rules.

mod estimate;
mod look;
mod report;
mod wait;

pub use estimate::{QueueEstimate, QueuePosition, seconds_for};
pub use look::{OrderLookup, WatchedOrder};
pub use report::{OrderProgress, PaymentDue, ProgressEvent};
pub use wait::{WaitEnd, WaitRequest, WaitTarget, wait_for_order};
