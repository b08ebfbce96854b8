//! The HTTP servers of Tidegate: the admin pages of a worker with its metrics, the pages of orders, and the gate.

pub mod admin;
pub mod admin_client;
mod answer;
mod cached;
pub mod gate;
mod gather;
pub mod metrics;
mod order_pages;
mod results;
pub mod secret_file;
mod server;
mod server_sent;
mod settings;
pub mod tokens;
pub mod webhooks;

pub use settings::{
    AdminSettings, AttemptRate, AttemptSettings, CallerSettings, DigestSource, GateSettings, ProxyNet,
    RereadTokens, TlsSettings, TokenDigest, TokenEntry, TokenScope, TokenSettings, UserHeader,
};
