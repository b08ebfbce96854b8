//! What an order is, how it is admitted in Redis, how its user is locked, how it is written to MySQL.

pub mod keys;
pub mod order;

pub use keys::{KeyTemplates, Keys};
pub use order::{Order, OrderId, Quantity, Slot, UserId, VoucherId};
