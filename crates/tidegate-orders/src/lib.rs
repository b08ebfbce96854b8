//! What an order is, how it is admitted in Redis, how its user is locked, how it is written to MySQL.

pub mod gate;
pub mod keys;
pub mod ledger;
pub mod order;
pub mod schema;
pub mod user_lock;
pub mod order_id;
pub mod wire;
pub mod sale;
pub mod server_facts;
pub mod vouchers;

pub use gate::Gate;
pub use keys::{KeyTemplates, Keys};
pub use ledger::{Incoming, Ledger, Refusal, Verdict};
pub use order::{Order, OrderId, Quantity, Slot, UserId, VoucherId};
pub use sale::Sale;
pub use server_facts::ServerFacts;
pub use user_lock::{Locked, UserLocks};
pub use order_id::OrderIdAllocator;
