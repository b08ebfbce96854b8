//! A batch consumer of one Redis stream, at least once. It knows nothing of orders or of MySQL.

pub mod alone;
pub mod backoff;
pub mod board;
pub mod brake;
pub mod breaker;
mod burials;
pub mod causes;
pub mod counters;
mod desk;
pub mod distribution;
pub mod entry;
pub mod handler;
pub mod inspect;
mod intake;
pub mod jsonl;
pub mod lane;
pub mod lease;
pub mod letter;
pub mod observer;
pub mod offer;
pub mod outlook;
pub mod page_size;
pub mod pulse;
pub mod redis;
pub mod retire;
mod schedule;
pub mod script;
pub mod server_clock;
mod set_aside;
pub mod stream;
pub mod survey;
pub mod trim;

pub use alone::Alone;
pub use backoff::Backoff;
pub use board::{Board, NamedCause, Notice};
pub use brake::{Brake, Held};
pub use breaker::Breaker;
pub use causes::{Awaited, Causes, OfKind};
pub use counters::{Counters, Counts};
pub use distribution::{Distribution, Spread};
pub use entry::{Delivery, Entry, EntryId};
pub use handler::{Cause, Death, Handler, Outage, Outcome};
pub use inspect::{
    ConsumerInfo, GroupStatus, KeyKind, StreamStatus, Undelivered, age_ms, has_group, inspect, server_time_ms,
};
pub use intake::Intake;
pub use jsonl::{BadLine, Line};
pub use lane::{BatchReport, Lane, LaneSettings};
pub use lease::Leases;
pub use letter::{Burial, Fields, History, Letter};
pub use observer::{Observer, Origin, Settling, Stage, WorkedOff};
pub use offer::{Holder, Offer, Offerer, is_offered};
pub use outlook::{Hold, Need, Outlook, count_before};
pub use page_size::PageSize;
pub use pulse::{Activity, LaneState, Pulse};
pub use redis::{
    RedisSettings, connect_pool, connect_reader, count_reconnects, is_disk_full, is_out_of_memory,
    is_refusal, readable,
};
pub use retire::Retirer;
pub use script::Script;
pub use server_clock::ServerClock;
pub use stream::{BuryReply, GroupState, Reader, Stream, StreamError, StreamNames};
pub use survey::{PendingEntry, Survey};
pub use trim::Trimmer;
