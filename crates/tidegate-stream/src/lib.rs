//! A batch consumer of one Redis stream: at-least-once delivery, batches, dead letters, and recovery of the entries of
//! dead consumers.
//!
//! A [`Handler`] gets entries in batches, and returns one [`Outcome`] for each entry. A [`Lane`] reads a batch, calls
//! the handler, then settles the batch. It acknowledges the entries that are done, and copies entries that can never be
//! done to a stream of dead letters. It sets aside the entries that cannot be done now, and retries them later. The
//! lane acknowledges no entry before its outcome is known, so an entry may come more than once, and is never lost.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use tidegate_stream::{
//!     Backoff, Breaker, Counters, Entry, Handled, Handler, Lane, LaneSettings, Outage, Outcome,
//!     Reader, RedisConnectionSettings, Stream, StreamNames, connect_pool, connect_reader,
//! };
//! use tokio_util::sync::CancellationToken;
//!
//! struct Printing;
//!
//! impl Handler for Printing {
//!     async fn handle(&self, batch: &[Entry]) -> Result<Handled, Outage> {
//!         Ok(batch.iter().map(|entry| { println!("{}", entry.id); Outcome::Done }).collect())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let redis = RedisConnectionSettings::new("redis://127.0.0.1:6379");
//! let names = StreamNames { stream: "jobs".into(), dead: "jobs.dead".into(), group: "workers".into() };
//! let stream = Stream::new(connect_pool(&redis).await?, names.clone());
//! stream.ensure_group().await?;
//!
//! let (breaker, counters) = (Arc::new(Breaker::default()), Arc::new(Counters::default()));
//! let reader = Reader::new(connect_reader(&redis).await?, names, "worker-1".into());
//! let settings = LaneSettings::default();
//! let lane = Lane::new(reader, stream.clone(), Arc::new(Printing), breaker.clone(), counters, settings);
//!
//! let stop = CancellationToken::new();
//! let probe = || async { Ok(stream.probe().await?) };
//! tokio::join!(lane.run(stop.clone()), breaker.run(probe, Backoff::default(), stop));
//! # Ok(())
//! # }
//! ```
//!
//! `examples/consume.rs` is the same code as a whole program, which stops gracefully.
//!
//! # The parts
//!
//! - [`Lane`]: one consumer of the group, which handles one batch at a time. Run several in a process, or in many
//!   processes. Each lane needs its own consumer name, which it should keep across restarts.
//! - [`Breaker`]: shared by the lanes of a process. After an [`Outage`] the lanes read nothing until a probe succeeds.
//! - [`PauseSwitch`], [`Exclusive`], [`SharedReader`]: shared by the lanes of a process that has more than one.
//! - [`Counters`], [`LaneStatus`], [`Observer`]: for monitoring and tracing.
//! - [`StreamPruner`], [`ConsumerRemover`], [`ServerClock`], [`MakeClaimable`], [`Leases`]: maintenance of the stream and
//!   its group, each by a call that the program repeats from time to time.
//! - [`PositionReader`]: reads without a consumer group, by a reader that keeps its own position.
//! - [`StreamInspector`], [`GroupInspector`], [`inspect()`], [`Letter`]: reading a stream, its pending list and its
//!   dead letters.
//!
//! # Features
//!
//! - `fred`: conversions from and to the types of the client `fred`, for programs that have their own connections, and
//!   `Script` for programs that have their own Lua scripts. The feature is bound to the exact version of `fred` that
//!   this crate is built with. Without it, no type of `fred` is part of the API.

pub mod backlog;
pub mod backoff;
pub mod breaker;
pub mod causes;
pub mod cluster;
pub mod counters;
pub mod entry;
pub mod exclusive;
pub mod group_inspector;
pub mod handler;
pub mod histogram;
pub mod inspect;
pub mod inspector;
pub mod jsonl;
pub mod lane;
pub mod lane_status;
mod lane_wakes;
pub mod lease;
pub mod letter;
pub mod make_claimable;
pub mod observer;
pub mod page_size;
mod pages;
pub mod pause_switch;
pub mod position_reader;
pub mod prune;
pub mod prune_plan;
pub mod redis;
pub mod remove_consumers;
pub mod replicas;
mod script;
mod sentinel;
pub mod server_clock;
pub mod set_aside_notes;
mod shared_reader;
pub mod stream;
pub mod subscription;
#[cfg(feature = "fred")]
mod with_fred;

pub use backlog::{Backlog, GroupPosition, ReadRate};
pub use backoff::Backoff;
pub use breaker::Breaker;
pub use causes::{Causes, OfKind, WaitingEntries};
pub use cluster::{ClusterMap, RedisCluster, SlotMaster};
pub use counters::{BatchReport, Counters, Counts, count_reconnects};
pub use entry::{Delivery, Entry, EntryId, PendingEntry};
pub use exclusive::Exclusive;
pub use group_inspector::GroupInspector;
pub use handler::{Cause, DeadLetterReason, Handled, Handler, Outage, Outcome, RetryOrder};
pub use histogram::{Histogram, HistogramSnapshot};
pub use inspect::{
    ConsumerInfo, GroupStatus, KeyKind, StreamStatus, Undelivered, age_ms, has_group, inspect, server_time_ms,
};
pub use inspector::{Read, StreamInspector};
pub use jsonl::{BadLine, EntryLine};
pub use lane::{Failover, Lane, LaneSettings, RetryWait};
pub use lane_status::{Activity, LaneSnapshot, LaneStatus};
pub use lease::{LeaseGuard, Leases};
pub use letter::{Burial, DeliveryHistory, Fields, Letter};
pub use make_claimable::{ClaimableStep, Holder, MakeClaimable, is_claimable};
pub use observer::{Observer, Origin, ProcessedBatch, Settling, Stage};
pub use page_size::PageSize;
pub use pages::{EntriesById, EntryPages, PendingPages};
pub use pause_switch::{ActivePause, PauseSwitch};
pub use position_reader::{PositionReader, StreamSpan};
pub use prune::StreamPruner;
pub use prune_plan::{PruneLimit, RetainedFor, Retainer};
pub use redis::{
    Reconnects, RedisConnection, RedisConnectionSettings, RedisError, RedisErrorKind, RedisKey, RedisPool,
    connect_pool, connect_reader, is_disk_full, readable,
};
pub use remove_consumers::ConsumerRemover;
pub use replicas::{Confirmation, ConfirmedIn, ReplicaProbe};
pub use sentinel::Sentinels;
pub use server_clock::ServerClock;
pub use set_aside_notes::{NamedCause, SetAsideNote, SetAsideNotes};
pub use shared_reader::SharedReader;
pub use stream::{BuryReply, GroupState, Reader, ServerRun, Stream, StreamError, StreamNames};
pub use subscription::{Subscription, SubscriptionEvent};
#[cfg(feature = "fred")]
pub use with_fred::Script;
