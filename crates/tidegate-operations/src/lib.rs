//! The operations of operators, without a terminal: audits, the state of an order, replays, pending entries, consumers,
//! dead letters, pauses, status.
//!
//! An operation has an input, a plan (what it has read and would do), a run that can be stopped and reports its
//! progress, and a report. The command line, the HTTP server and the tests use these operations; this crate uses none
//! of them.

pub mod admit;
pub mod busy_marker;
pub mod calendar;
pub mod campaigns;
pub mod change;
pub mod connect;
pub mod consumers;
pub mod dead_letters;
pub mod doctor;
mod entry_source;
pub mod expirations;
pub mod export;
pub mod finding;
pub mod fleet_pause;
pub mod handover;
pub mod migrate;
pub mod operator_log;
pub mod order_count;
pub mod order_event;
pub mod order_find;
pub mod order_partition;
pub mod order_progress;
pub mod order_show;
pub mod partition_change;
pub mod partition_list;
pub mod partition_show;
pub mod pause;
pub mod pending;
pub mod prune;
pub mod prune_stream;
pub mod redacted;
pub mod release_unpaid;
pub mod replay;
pub mod selection;
pub mod settings;
pub mod shard_claims;
pub mod shards;
pub mod status;
mod stores;
pub mod vouchers;
pub mod watch;
pub mod webhooks;
pub mod within;

pub use change::{End, Ending, InvalidInput, Next, Plan, Report};
pub use entry_source::EntrySource;
pub use settings::{
    CalendarSettings, FleetTiming, MySqlSettings, ReconcileSettings, RedisSettings, ResultsSettings,
    StreamSettings, System, SystemSettings, WebhookSettings, WebhookUrl,
};
pub use stores::Stores;
