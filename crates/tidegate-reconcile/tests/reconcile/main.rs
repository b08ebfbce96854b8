//! Tests of compaction and repair, on real servers.

mod compact;
mod fixture;
mod memory;
mod repair;
