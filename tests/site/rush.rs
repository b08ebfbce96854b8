//! Orders for a test, and a book of what was put in, so that it can be compared with what came out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use fred::{
    interfaces::{KeysInterface, LuaInterface, StreamsInterface},
    types::Value,
};
use futures_util::future::join_all;
use tidegate_lab::Endpoint;
use tidegate_orders::gate::{Admission, AdmitReply};
use tokio::time::Duration;

use super::{GROUP, STREAM, Site, stock_key};

/// A voucher with units for everybody.
pub const PLENTY: i64 = 1;
/// A voucher of which Redis sells more than MySQL has.
pub const SHORT: i64 = 2;
const SHORT_UNITS: i64 = 12;

/// Every script of the worker: a test that waits for the reply of one must not catch a NOSCRIPT instead.
const SCRIPTS: [&str; 11] = [
    include_str!("../../lua/lock.lua"),
    include_str!("../../lua/unlock.lua"),
    include_str!("../../lua/keepalive.lua"),
    include_str!("../../lua/fetch.lua"),
    include_str!("../../lua/count_crashes.lua"),
    include_str!("../../lua/set_aside.lua"),
    include_str!("../../lua/settle.lua"),
    include_str!("../../lua/bury.lua"),
    include_str!("../../lua/release.lua"),
    include_str!("../../lua/release_many.lua"),
    include_str!("../../lua/remove_consumer.lua"),
];

/// What was put in, and what callers were told of it.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<Pages>,
    /// How often a risk has begun or ended: an odd number while answers may be lost.
    risk: AtomicU64,
}

/// An order that a caller asks for and is not told of yet.
pub struct Asked {
    order: i64,
    risk: u64,
}

/// The book's contents.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    /// Orders that were admitted, by id.
    pub orders: BTreeMap<i64, Wanted>,
    /// Entries that can never be written, by entry id.
    pub poison: BTreeSet<String>,
    /// Of these orders, those that may have left nothing: their callers got no answer, or it came while a failover may lose what
    /// was answered.
    pub may_be_lost: BTreeSet<i64>,
    /// Units that were loaded into Redis, by voucher.
    pub loaded: BTreeMap<i64, i64>,
    /// Redis has lost data: its stock and its journals prove nothing.
    pub redis_forgot: bool,
}

/// An order that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub user: i64,
    pub voucher: i64,
    pub quantity: i64,
    pub way: Way,
}

/// How an order came into the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through `admit.lua`: stock, buyers and journal know of it.
    Gate,
    /// Through a plain XADD, as by a foreign producer.
    Xadd,
}

impl Book {
    /// What stands there now. A copy: nothing is locked while a test waits.
    pub fn read(&self) -> Pages {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn write<T>(&self, change: impl FnOnce(&mut Pages) -> T) -> T {
        change(&mut self.pages.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on, a failover may lose what is answered. What was answered before is on the replicas once a WAIT that is sent
    /// afterwards has succeeded.
    pub fn begin_risk(&self) {
        assert_eq!(self.risk.fetch_add(1, SeqCst) % 2, 0, "one risk at a time");
    }

    /// What is asked from now on is not lost.
    pub fn end_risk(&self) {
        assert_eq!(self.risk.fetch_add(1, SeqCst) % 2, 1, "it has begun");
    }

    /// A caller asks for an order, which may be admitted although no answer comes.
    pub fn ask(&self, order: i64, wanted: Wanted) -> Asked {
        self.write(|pages| {
            pages.orders.insert(order, wanted);
            pages.may_be_lost.insert(order);
        });
        Asked { order, risk: self.risk.load(SeqCst) }
    }

    /// The caller was told that there is no such order.
    pub fn refused(&self, asked: &Asked) {
        self.write(|pages| {
            pages.orders.remove(&asked.order);
            pages.may_be_lost.remove(&asked.order);
        });
    }

    /// The caller was told that the order is admitted.
    pub fn told(&self, asked: &Asked) {
        if asked.risk.is_multiple_of(2) && asked.risk == self.risk.load(SeqCst) {
            self.write(|pages| _ = pages.may_be_lost.remove(&asked.order));
        }
    }

    pub fn note(&self, id: i64, wanted: Wanted) {
        self.write(|pages| _ = pages.orders.entry(id).or_insert(wanted));
    }
}

impl<M: Endpoint> Site<M> {
    /// Opens the sale of both vouchers, and loads the scripts.
    pub async fn open_sale(&self) {
        self.load(PLENTY, 100_000).await;
        self.load(SHORT, SHORT_UNITS).await;
        self.restock_redis(SHORT, 1_000).await;
        self.load_scripts().await;
    }

    /// Loads every script, so that the next EVALSHA finds it.
    pub async fn load_scripts(&self) {
        for script in SCRIPTS {
            self.sha(script).await;
        }
    }

    /// Loads a script, and answers with the hash by which it is called.
    pub async fn sha(&self, script: &str) -> String {
        self.client.script_load(script).await.expect("the script is loaded")
    }

    /// Calls Redis, with a command as one types it.
    pub async fn call(&self, command: &str) -> Value {
        self.redis_says(&command.split(' ').collect::<Vec<_>>()).await
    }

    /// How often Redis was asked for each command, in lower case; `xgroup|create` for a word and its second. What scripts call counts.
    pub async fn calls(&self) -> BTreeMap<String, u64> {
        let stats = self.call("INFO commandstats").await.as_string().expect("a text");
        let line = |line: &str| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
        };
        stats.lines().filter_map(line).collect()
    }

    /// How often Redis was asked for one of them.
    pub async fn calls_of(&self, command: &str) -> u64 {
        self.calls().await.get(command).copied().unwrap_or(0)
    }

    /// Requests that reach Redis within a while, whatever scripts do with them.
    pub async fn requests_within(&self, a_while: Duration) -> u64 {
        let before = self.requests().await;
        tokio::time::sleep(a_while).await;
        self.requests().await - before
    }

    async fn requests(&self) -> u64 {
        let stats = self.call("INFO stats").await.as_string().expect("a text");
        let line = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        line.and_then(|number| number.trim().parse().ok()).expect("a number")
    }

    /// Entries that are delivered and not acknowledged.
    pub async fn pending(&self) -> usize {
        let summary = self.call(&format!("XPENDING {STREAM} {GROUP}")).await.into_array();
        summary[0].as_usize().expect("a number")
    }

    /// How long the oldest pending entry was not delivered to anybody.
    pub async fn longest_idle_ms(&self) -> Option<u64> {
        let oldest = self.call(&format!("XPENDING {STREAM} {GROUP} - + 1")).await.into_array();
        oldest.first()?.clone().into_array().get(2)?.as_u64()
    }

    /// Users who are locked.
    pub async fn locks(&self) -> usize {
        self.call("KEYS lock:order:*").await.into_array().len()
    }

    /// More units in Redis.
    pub async fn restock_redis(&self, voucher: i64, units: i64) {
        let _: Value = self.client.incr_by(stock_key(voucher), units).await.expect("the stock is raised");
        self.book.write(|pages| *pages.loaded.entry(voucher).or_default() += units);
    }

    /// More units in MySQL.
    pub async fn restock_mysql(&self, voucher: i64, units: i64) {
        let sql = "UPDATE tb_seckill_voucher SET stock = stock + ?, initial_stock = initial_stock + ? \
                   WHERE voucher_id = ?";
        let row = sqlx::query(sql).bind(units).bind(units).bind(voucher);
        row.execute(&self.pool).await.expect("the stock is raised");
    }

    /// Admits `count` orders with ids from `first`, a multiple of 10, of all kinds: a tenth is sold out in MySQL, a
    /// tenth is a second order of its user, a tenth comes from a foreign producer.
    pub async fn rush(&self, first: i64, count: i64) {
        join_all((first..first + count).map(|id| async move {
            match id % 10 {
                3 => _ = self.add_order(id, id, PLENTY).await,
                5 => self.admit(id, id, SHORT, 1).await,
                // The user of the order before.
                7 => _ = self.add_order(id, id - 1, PLENTY).await,
                _ => self.admit(id, id, PLENTY, 1 + id % 3).await,
            }
        }))
        .await;
    }

    /// Admits `count` orders with ids from `first`, each of which will be written.
    pub async fn plain_rush(&self, first: i64, count: i64) {
        join_all((first..first + count).map(|id| self.admit(id, id, PLENTY, 1 + id % 3))).await;
    }

    /// Admits an order through the gate.
    pub async fn admit(&self, id: i64, user: i64, voucher: i64, quantity: i64) {
        let admission = Admission {
            order: id.try_into().expect("an order id"),
            user: user.try_into().expect("a user id"),
            voucher: voucher.try_into().expect("a voucher id"),
            quantity: quantity.try_into().expect("a quantity"),
            subjects: tidegate_orders::Subjects::none(),
            traceparent: None,
        };
        let reply = self.own_gate.admissions().admit(&admission).await.expect("the gate answers");
        assert_eq!(reply, AdmitReply::Admitted, "order {id}");
        self.book.note(id, Wanted { user, voucher, quantity, way: Way::Gate });
    }

    /// Adds two entries that can never be written: one that is no order, and one for a voucher that is not there.
    pub async fn add_poison(&self) {
        let no_order = self.add(&[("userId", "nobody"), ("voucherId", "1"), ("id", "1")]).await;
        let no_voucher = self.add(&[("userId", "1"), ("voucherId", "999"), ("id", "1")]).await;
        self.book.write(|pages| pages.poison.extend([no_order, no_voucher]));
    }

    /// Deletes the oldest orders from the stream, which are lost thereby.
    pub async fn delete_first_orders(&self, count: usize) {
        let entries: Vec<(String, BTreeMap<String, String>)> =
            self.client.xrange(STREAM, "-", "+", Some(count as u64)).await.expect("Redis answers");
        for (entry, fields) in entries {
            self.call(&format!("XDEL {STREAM} {entry}")).await;
            let id: i64 = fields["id"].parse().expect("an order id");
            self.book.write(|pages| _ = pages.orders.remove(&id));
        }
        self.book.write(|pages| pages.redis_forgot = true);
    }

    /// Redis has lost everything: orders that are in MySQL by now are accounted for, the others are gone.
    pub async fn redis_has_forgotten(&self) {
        let written: BTreeSet<i64> = self.orders().await.iter().map(|order| order.id).collect();
        self.book.write(|pages| {
            pages.orders.retain(|id, _| written.contains(id));
            pages.redis_forgot = true;
        });
    }
}
