//! `tidegate dead`: looks at the dead letters, puts them back, releases their orders, deletes them.

pub mod cancel;
mod change;
pub mod drop;
pub mod export;
pub mod list;
pub mod requeue;
pub mod show;
mod text;
