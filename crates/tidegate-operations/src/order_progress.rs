//! Where orders are, for whoever waits for them: looks that cost little, however large the stores are. Reads only.
//!
//! MySQL is asked first, for all orders of a look together and by primary keys. Only for orders that it knows nothing of,
//! Redis is asked: the journal, where it names the order, tells its entry; without a voucher, some journals are looked into.
//! What one look has found or passed, the next one does not look through again. `tidegate order show` looks everywhere, and
//! says where an order is by the same rules.

mod estimate;
mod look;
mod report;
mod wait;

pub use estimate::{QueueEstimate, QueuePlace};
pub use look::{OrderLookup, WatchedOrder};
pub use report::{OrderProgress, PaymentDue, ProgressEvent};
pub use wait::{WaitEnd, WaitRequest, WaitTarget, wait_for_order};
