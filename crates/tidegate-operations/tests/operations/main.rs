//! What operations promise, shown on real servers.

mod error_texts;
