//! Faults of every kind in the middle of a rush; whatever happens, all that must hold holds afterwards.

mod group;
mod kills;
mod mysql_away;
pub mod proxies;
mod redis_away;
mod replies;
mod sleep;
