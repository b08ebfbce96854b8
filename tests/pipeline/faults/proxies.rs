//! Proxies before both servers, and the patterns that stop a worker at an exact step.

use tidegate_lab::Proxy;

use crate::fixture::{Fixture, WorkerPlan, stock_key};

/// The users of a batch are locked, renewed or unlocked. The first such request of a batch locks.
pub const LOCK: &[u8] = b"lock:order:";
/// New entries are asked for.
pub const READ_NEW: &[u8] = b"stream.orders\r\n$1\r\n>\r\n";
/// Entries of others are claimed.
pub const CLAIM: &[u8] = b"\r\nXAUTOCLAIM\r\n";
/// Entries are acknowledged.
pub const ACK: &[u8] = b"\r\nXACK\r\n";
/// A batch that is written with its checks: one packet, with its commit.
pub const CHECKED_COMMIT: &[u8] = b"(ROW_COUNT() <> ";
/// A batch in which the stock was found not to cover all: one packet, with its commit.
pub const REFUSING_COMMIT: &[u8] = b",'out_of_stock','";

/// The SHA1 by which a script is called.
pub fn sha1_of(lua: &str) -> String {
    fred::util::sha1_hash(lua)
}

/// Releases refused orders of a voucher, those that were refused for the same reason.
pub fn release() -> String {
    sha1_of(include_str!("../../../lua/release_many.lua"))
}

/// As [`release`], of one voucher.
pub fn release_of(voucher: i64) -> String {
    let stock = stock_key(voucher);
    format!("{}\r\n$1\r\n3\r\n${}\r\n{stock}\r\n", release(), stock.len())
}

/// Buries an entry.
pub fn bury() -> String {
    sha1_of(include_str!("../../../lua/bury.lua"))
}

/// Unlocks the users of a batch.
pub fn unlock() -> String {
    sha1_of(include_str!("../../../lua/unlock.lua"))
}

/// A proxy before each server.
pub struct Proxies {
    pub redis: Proxy,
    pub mysql: Proxy,
}

impl Proxies {
    pub async fn start(fixture: &Fixture) -> Self {
        Self {
            redis: Proxy::start(fixture.redis.port()).await.expect("a proxy"),
            mysql: Proxy::start(fixture.mysql.port()).await.expect("a proxy"),
        }
    }

    /// The same worker, by way of the proxies.
    pub fn before(&self, plan: WorkerPlan, fixture: &Fixture) -> WorkerPlan {
        let plan = plan.set("REDIS_URL", self.redis.url_for(&fixture.redis));
        plan.set("MYSQL_URL", self.mysql.url_for(&fixture.mysql))
    }
}

/// A worker of one lane that is quick to take over what others left.
pub fn quick(fixture: &Fixture, name: &str) -> WorkerPlan {
    let plan = fixture.worker(name).set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 600);
    let plan = plan.set("WORKER_CLAIM_IDLE_MS", 1_000).set("WORKER_CLAIM_EVERY_MS", 100);
    plan.set("WORKER_HEARTBEAT_TTL_MS", 600)
}
