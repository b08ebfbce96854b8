//! Tests of the operators' commands, on real servers and real terminals.

#[path = "../browser/mod.rs"]
mod browser;
#[path = "../../crates/tidegate-http/src/metrics/catalog.rs"]
#[allow(dead_code, reason = "what a worker counts is not on the page of a gate")]
mod catalog;
#[path = "../database/mod.rs"]
mod database;
#[path = "../fixture/mod.rs"]
mod fixture;
#[path = "../program/mod.rs"]
mod program;
#[path = "../../crates/tidegate/src/commands/top/screen.rs"]
mod screen;
#[path = "../terminal/mod.rs"]
mod terminal;

mod admit_confirmed;
mod audit;
mod before_sale;
mod busy_marks;
mod calendar;
mod campaigns;
mod commands;
mod compact;
mod configuration;
mod dead;
mod delist;
mod doctor;
mod http_gate;
mod limit_clock;
mod limit_counters;
mod limit_gates;
mod limit_subjects;
mod limits;
mod migrations;
mod operator;
mod order_event;
mod order_show;
mod order_wait;
mod partitions;
mod partitions_change;
mod pause;
mod pending;
mod prune;
mod rebuild;
mod reconcile;
mod release_unpaid;
mod repair;
mod replay;
mod sale;
mod top;
mod units;
mod voucher_stock;
mod voucher_transfer;
