//! Tests of orders on their way through real workers: defects that are absent, bad entries, faults, and the pages of a
//! worker.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../../crates/tidegate-http/src/metrics/catalog.rs"]
#[allow(dead_code, reason = "what the gate counts is not on the page of a worker")]
mod catalog;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../program/mod.rs"]
mod program;

mod admin;
mod bad_entries;
mod batch_cost;
mod chaos;
mod clocks;
mod clusters;
mod defects;
mod events;
mod faults;
mod installed;
mod judge;
mod life_model;
mod limit_drill;
mod limit_metrics;
mod limit_slots;
mod order_pages;
mod probe;
mod redis_cluster;
mod redisson;
mod repeated_events;
mod replicated;
mod results;
mod rights;
mod rolling;
mod sentinel;
mod service;
mod setting_aside;
mod shards;
mod takeover;
mod timed_release;
mod tls;
mod two_fleets;
mod webhooks;
mod weight;
mod worker_life;
