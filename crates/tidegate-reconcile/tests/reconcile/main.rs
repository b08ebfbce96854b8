//! What a compaction and a repair promise, shown on real servers.

mod compact;
mod fixture;
mod memory;
mod repair;
