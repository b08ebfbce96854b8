//! Private, real servers for tests, demo and benchmarks, and a proxy that injects faults.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use tidegate_lab::{MysqlServer, RedisServer};
//!
//! let redis = RedisServer::start()?;
//! let mysql = MysqlServer::start()?;
//! println!("{} {}", redis.url(), mysql.url());
//!
//! mysql.kill9()?; // as the kernel would under memory pressure
//! mysql.restart()?; // same data, same port
//! # Ok(())
//! # }
//! ```
//!
//! Every server listens on 127.0.0.1 only, keeps its data in its own folder, and is as durable as one in production.
//! It ends when its value is dropped, and when the process that started it ends, however that happens. Environment
//! variables select the servers of a run:
//!
//! | variable | values |
//! |---|---|
//! | `TIDEGATE_LAB_REDIS` | `redis` (the system's, default), `redis62`, `redis8`, `valkey8`, `valkey9` |
//! | `TIDEGATE_LAB_MYSQL` | `mariadb` (the system's, default), `mariadb11`, `mysql` |
//! | `TIDEGATE_LAB_REDIS_URL` | a running Redis whose named database is empty; it is flushed afterwards |
//! | `TIDEGATE_LAB_MYSQL_URL` | a running MySQL; each [`MysqlServer`] gets a fresh database on it, dropped afterwards |
//! | `TIDEGATE_MATRIX_DIR` | where `just matrix` has put Redis 8, Valkey 9 and MySQL 9; the servers of `just matrix-older` are beside it |
//!
//! Starting, stopping and restarting block the calling thread for up to a few seconds. In an async test, this is fine
//! on a multi-threaded runtime; elsewhere, call them through `tokio::task::spawn_blocking`.

mod blocking;
#[cfg(feature = "tls")]
mod certificates;
mod clock;
#[cfg(feature = "collector")]
mod collector;
mod data_folder;
mod data_template;
mod endpoint;
mod external;
mod flavour;
mod mysql_cluster;
mod mysql_server;
mod mysql_settings;
mod ports;
mod private_server;
mod process;
mod proxy;
mod redis_cluster;
mod redis_server;
mod seeds;
mod sentinel;

#[cfg(feature = "tls")]
pub use certificates::Certificates;
pub use clock::Clock;
#[cfg(feature = "collector")]
pub use collector::{Collector, ReceivedSpan, SpanKind};
pub use endpoint::Endpoint;
pub use flavour::{MysqlFlavour, RedisFlavour};
pub use mysql_cluster::{ClusterKind, ClusterNode, MysqlCluster};
pub use mysql_server::{MysqlOptions, MysqlServer};
pub use process::spawn_with_owner;
pub use proxy::{DroppedReply, Hold, Proxy};
pub use redis_cluster::{ClusterNetwork, MovingSlot, RedisCluster, RedisClusterOptions, RedisNode, slot_of};
pub use redis_server::{RedisOptions, RedisServer};
pub use seeds::Seeds;
pub use sentinel::RedisSentinel;
