//! A batch consumer of one Redis stream, at least once. It knows nothing of orders or of MySQL.

pub mod entry;
pub mod redis;
pub mod script;

pub use entry::{Delivery, Entry, EntryId};
pub use redis::{RedisSettings, connect_pool, connect_reader};
pub use script::Script;
