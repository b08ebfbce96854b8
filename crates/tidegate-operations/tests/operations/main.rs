//! What operations promise, shown on real servers.

mod audit;
mod error_texts;
