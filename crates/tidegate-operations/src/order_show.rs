//! The state of one order: what both stores hold of it, with times, what follows from that, and what an operator can
//! do. It changes nothing.
//!
//! An order id gives neither the voucher nor the entry. So the search follows everything that names them: the row or
//! refusal in MySQL, dead letters, the journals of vouchers, the time within the id. Only if all this finds nothing, it
//! searches the stream, from its end backwards and within a limit.

mod decided;
mod next_step;
mod records;
mod redis_reader;
mod report;
mod search;

use tidegate_compare::{Progress, text::error_chain};
use tidegate_orders::{OrderId, Records, UserId, VoucherId};
use tidegate_stream::EntryId;

pub use decided::decided;
pub use next_step::NextStep;
pub use records::{Coverage, OrderRecords, SearchNotes};
pub use redis_reader::{
    EntryLocation, EntryRecord, JournalRecord, LockRecord, RedisOrders, StreamCoverage, carries,
};
pub use report::OrderReport;
pub use search::OrderReader;

use crate::{Stores, consumers::Consumers};

/// The number of vouchers whose journals (Redis hashes of admitted orders) are searched for an order without a known
/// voucher. The search covers the vouchers with the highest ids in MySQL.
pub const VOUCHER_LIMIT: u32 = 1_000;

/// The request to show one order, with the ids that the caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderQuery {
    /// The id of the order.
    pub order: OrderId,
    /// The voucher of the order; None: the caller does not know the voucher.
    pub voucher: Option<VoucherId>,
    /// The user of the order; None: the caller does not know the user.
    pub user: Option<UserId>,
    /// The id of the order's stream entry; None: the caller does not know the entry.
    pub entry: Option<EntryId>,
    /// The highest number of entries to read in each stream.
    pub budget: u64,
}

/// Searches Redis and MySQL for an order. If a store is unavailable, only the other store is searched, and the report
/// holds the error.
pub async fn show_order(stores: &Stores, query: OrderQuery, progress: &dyn Progress) -> OrderReport {
    let settings = stores.settings();
    let (redis, mysql) = tokio::join!(stores.redis(), stores.mysql());
    let mut errors = Vec::new();
    let mut keep = |error: anyhow::Error| errors.push(error_chain(&error));
    let (redis, mysql) = (redis.map_err(&mut keep).ok(), mysql.map_err(&mut keep).ok());

    let orders = redis.map(|store| RedisOrders { store });
    let mysql = mysql.map(|mysql| Records::new(mysql, settings.partition()));
    let patience = settings.mysql.statement_timeout;
    let reader = OrderReader { redis: orders.as_ref(), mysql, patience };
    progress.expect(query.budget.saturating_mul(2), "entries read");
    let mut records = reader.read(&query, |entries| progress.add(entries)).await;

    let mut workers_live = false;
    if let Some(redis) = redis {
        let consumers = Consumers::read(redis).await;
        workers_live = consumers.map_err(&mut keep).is_ok_and(|consumers| consumers.has_life());
    }
    errors.extend(std::mem::take(&mut records.search.errors));
    records.search.errors = errors;
    OrderReport::of(query, records, workers_live)
}
