//! What a fold and a repair promise, shown on real servers.

mod fold;
mod memory;
mod repair;
mod repair_ground;
