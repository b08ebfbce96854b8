//! Webhooks: a worker sends the results of orders to URLs, by the specification Standard Webhooks.

pub mod client;
pub mod signer;
mod target;

pub use self::target::{AddressRefusal, Target};
