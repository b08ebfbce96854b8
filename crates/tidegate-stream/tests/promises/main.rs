//! Tests of the crate's lanes, leases and reports, on a real Redis.

mod ahead;
mod claiming;
mod consumers;
mod crashes;
mod dead_letters;
mod example;
mod failover;
mod fixture;
mod handlers;
mod leases;
mod lost_groups;
mod offering;
mod outages;
mod pausing;
mod position_reader;
mod pruning;
mod reading;
mod setting_aside;
mod source;
mod stopping;
mod watching;
mod weighing;
