//! Tests of operations, on real servers.

mod error_texts;
