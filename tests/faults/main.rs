//! Faults of every kind in the middle of a rush; whatever happens, all that must hold holds afterwards.

#[path = "../site/mod.rs"]
mod site;

mod kills;
mod proxies;
