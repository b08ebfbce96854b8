//! What a repair promises, shown on real servers.

mod repair;
mod repair_ground;
