//! A batch consumer of one Redis stream.
