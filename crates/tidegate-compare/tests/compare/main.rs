//! The comparison of both stores, on real servers.

mod audit;
