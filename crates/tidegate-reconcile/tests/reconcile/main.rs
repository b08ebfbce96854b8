//! What a compaction and a repair promise, shown on real servers.

mod compact;
mod memory;
mod repair;
mod fixture;
