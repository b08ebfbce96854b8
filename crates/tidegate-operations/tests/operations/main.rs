//! What operations promise, shown on real servers.

mod audit;
mod error_texts;
mod repair;
mod repair_ground;
