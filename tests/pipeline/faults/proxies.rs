//! Proxies in front of both servers, and the patterns that stop a worker at an exact step.

use tidegate_lab::Proxy;

use crate::fixture::{Fixture, WorkerPlan, stock_key};

/// A request that locks users, renews their locks or unlocks them. The first such request of a batch locks.
pub const LOCK: &[u8] = b"lock:order:";
/// A request that reads new entries.
pub const READ_NEW: &[u8] = b"stream.orders\r\n$1\r\n>\r\n";
/// A request that claims entries of other consumers.
pub const CLAIM: &[u8] = b"\r\nXAUTOCLAIM\r\n";
/// A request that acknowledges entries.
pub const ACK: &[u8] = b"\r\nXACK\r\n";
/// A batch that is written with its checks: one packet, with its commit.
pub const CHECKED_COMMIT: &[u8] = b"(ROW_COUNT() <> ";
/// A batch with too little stock for all orders: one packet, with its commit.
pub const REFUSING_COMMIT: &[u8] = b",'out_of_stock','";

/// The SHA1 by which a script is called.
pub fn sha1_of(lua: &str) -> String {
    fred::util::sha1_hash(lua)
}

/// The call that releases refused orders of a voucher. All of them were refused for the same reason.
pub fn release() -> String {
    sha1_of(include_str!("../../../lua/release_many.lua"))
}

/// The call of [`release`] for one voucher.
pub fn release_of(voucher: i64) -> String {
    let stock = stock_key(voucher);
    format!("{}\r\n$1\r\n3\r\n${}\r\n{stock}\r\n", release(), stock.len())
}

/// The call that buries an entry.
pub fn bury() -> String {
    sha1_of(include_str!("../../../lua/bury.lua"))
}

/// The call that unlocks the users of a batch.
pub fn unlock() -> String {
    sha1_of(include_str!("../../../lua/unlock.lua"))
}

/// A proxy in front of each server.
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

    /// The plan of the same worker with the addresses of the proxies.
    pub fn before(&self, plan: WorkerPlan, fixture: &Fixture) -> WorkerPlan {
        let plan = plan.set("REDIS_URL", self.redis.url_for(&fixture.redis));
        plan.set("MYSQL_URL", self.mysql.url_for(&fixture.mysql))
    }
}

/// A worker of one lane that quickly takes over the entries of dead consumers.
pub fn quick(fixture: &Fixture, name: &str) -> WorkerPlan {
    let plan = fixture.worker(name).set("WORKER_LANES", 1).set("WORKER_LOCK_LEASE_MS", 600);
    let plan = plan.set("WORKER_CLAIM_IDLE_MS", 1_000).set("WORKER_CLAIM_EVERY_MS", 100);
    plan.set("WORKER_HEARTBEAT_TTL_MS", 600)
}
