//! Tests of faults of all kinds in the middle of a rush: afterwards, all invariants hold.

mod group;
mod kills;
mod mysql_away;
pub mod proxies;
mod redis_away;
mod replies;
mod sleep;
