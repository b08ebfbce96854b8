//! What an order is, how it is admitted in Redis, how its user is locked, how it is written to MySQL.

pub mod account;
pub mod audit;
pub mod dead_letters;
pub mod gate;
pub mod handler;
pub mod keys;
pub mod ledger;
mod mysql_error;
pub mod order;
pub mod order_id;
pub mod row_locks;
pub mod row_state;
pub mod sale;
pub mod schema;
pub mod server_facts;
pub mod sessions;
pub mod story;
pub mod tally;
pub mod traceparent;
pub mod user_lock;
pub mod vouchers;
pub mod wire;

pub use account::{Account, Accountant};
pub use dead_letters::DeadLetters;
pub use gate::Gate;
pub use handler::{Foreseen, OrderHandler};
pub use keys::{KeyTemplates, Keys};
pub use ledger::{Foresight, Incoming, Ledger, Refusal, Verdict};
pub use mysql_error::is_deadlock;
pub use order::{Order, OrderId, Quantity, Slot, UserId, VoucherId};
pub use order_id::OrderIdAllocator;
pub use row_state::RowState;
pub use server_facts::ServerFacts;
pub use sessions::{SessionError, SessionSettings, Sessions};
pub use tally::Tally;
pub use user_lock::{Locked, UserLocks};
