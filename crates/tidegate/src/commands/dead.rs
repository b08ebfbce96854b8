//! The commands `tidegate dead ...`: show dead letters, requeue them, cancel their orders, or delete them.

pub mod cancel;
mod change;
pub mod drop;
pub mod export;
pub mod list;
pub mod requeue;
pub mod show;
mod text;
